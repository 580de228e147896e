"use strict";
// Sorts a table by a click on a heading, opens details for printing, saves the embedded numbers.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const body = table.tBodies[0];
      const key = (row) => row.cells[column].dataset.value;
      const order = (a, b) => {
        if (column === 0) return a.cells[0].textContent.localeCompare(b.cells[0].textContent) * (down ? -1 : 1);
        const [x, y] = [key(a), key(b)];
        // What was not measured stays at the end, whichever way.
        if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
        return (x - y) * (down ? -1 : 1);
      };
      body.append(...[...body.rows].sort(order));
    });
  });
}
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  closed.forEach((d) => { d.open = true; });
});
addEventListener("afterprint", () => closed.forEach((d) => { d.open = false; }));
for (const button of document.querySelectorAll("button.download")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const text = document.getElementById(button.dataset.of).textContent;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = button.dataset.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
}
