"use strict";
// Sorts a table by a click on a heading, makes what pictures say where they are pointed at, opens details for printing,
// saves the embedded numbers.
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
const svg = document.querySelector("svg")?.namespaceURI;
for (const picture of document.querySelectorAll("svg:has(.hits)")) {
  picture.addEventListener("pointerenter", () => {
    for (const all of picture.querySelectorAll(".hits")) {
      const [words, places] = [all.dataset.words.split("\n"), all.dataset.texts.split("\n")];
      const width = all.getAttribute("width") / places.length;
      places.forEach((place, at) => {
        if (!place) return;
        const texts = place.split(";");
        const one = all.cloneNode();
        delete one.dataset.words;
        delete one.dataset.texts;
        one.setAttribute("class", "hit");
        one.setAttribute("x", +all.getAttribute("x") + at * width);
        one.setAttribute("width", width);
        const title = document.createElementNS(svg, "title");
        title.textContent = words.map((word, n) => word + (texts[n] ?? "")).join("");
        one.append(title);
        all.before(one);
      });
      all.remove();
    }
  }, { once: true });
}
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  closed.forEach((d) => { d.open = true; });
});
addEventListener("afterprint", () => closed.forEach((d) => { d.open = false; }));
for (const button of document.querySelectorAll("button.download")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const held = document.getElementById(button.dataset.of);
    const type = { type: "application/json" };
    let figures = new Blob([held.textContent], type);
    if (held.type === "application/gzip") {
      const packed = new Blob([Uint8Array.from(atob(held.textContent), (c) => c.charCodeAt(0))]);
      const stream = packed.stream().pipeThrough(new DecompressionStream("gzip"));
      figures = new Blob([await new Response(stream).arrayBuffer()], type);
    }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(figures);
    link.download = button.dataset.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
}
