// Writes into #found what is wrong with the pages in the frames.
"use strict";

const CLOSE = 1.5;

// Sizes of letters, px.
const READABLE = [9, 14];

function wrong(frame) {
  const doc = frame.contentDocument;
  const found = [];
  for (const one of doc.querySelectorAll("details")) one.open = true;
  const width = doc.documentElement.scrollWidth;
  if (width > frame.clientWidth) found.push(`the page is ${width} px wide`);
  for (const table of doc.querySelectorAll("table")) {
    const place = table.parentElement;
    const said = table.innerText.slice(0, 40);
    if (place.scrollWidth > place.clientWidth) {
      found.push(`a table of ${place.scrollWidth} px has ${place.clientWidth}: ${said}`);
    }
    for (const cell of table.querySelectorAll("th, td")) {
      if (cell.scrollWidth > cell.clientWidth + CLOSE) found.push(`a cell is cut: ${cell.innerText}`);
    }
  }
  for (const svg of doc.querySelectorAll("svg")) {
    const picture = svg.getBoundingClientRect();
    if (picture.width > 0) found.push(...wrongIn(svg, picture));
  }
  return found;
}

function wrongIn(svg, picture) {
  const found = [];
  const words = [];
  for (const text of svg.querySelectorAll("text")) {
    const box = text.getBoundingClientRect();
    const said = text.textContent.trim();
    if (said && box.width > 0) words.push({ said, box });
    const size = parseFloat(getComputedStyle(text).fontSize) * svg.getScreenCTM().a;
    if (size < READABLE[0] || size > READABLE[1]) found.push(`letters of ${size} px: ${said}`);
  }
  words.forEach(({ said, box }, at) => {
    if (
      box.left < picture.left - CLOSE ||
      box.right > picture.right + CLOSE ||
      box.top < picture.top - CLOSE ||
      box.bottom > picture.bottom + CLOSE
    ) {
      found.push(`cut: ${said}`);
    }
    for (const other of words.slice(at + 1)) {
      const across = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left);
      const down = Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top);
      // A line's box is higher than its letters.
      if (across > CLOSE && down > 0.4 * Math.min(box.height, other.box.height)) {
        found.push(`overlap: ${said} | ${other.said}`);
      }
    }
  });
  return found;
}

addEventListener("load", () => {
  const frames = [...document.querySelectorAll("iframe")];
  const lines = frames.flatMap((frame) => wrong(frame).map((what) => `${frame.title}: ${what}`));
  const looked = `${frames.length} pages were looked at`;
  document.querySelector("#found").textContent = lines.slice(0, 60).concat(looked).join("\n");
});
