"use strict";
const root = document.documentElement;
const theme = document.getElementById("theme");
const themes = ["auto", "light", "dark"];
theme.hidden = false;
theme.addEventListener("click", () => {
  const next = themes[(themes.indexOf(root.dataset.theme || "auto") + 1) % themes.length];
  if (next === "auto") delete root.dataset.theme;
  else root.dataset.theme = next;
  theme.textContent = "Theme: " + next;
});

function value(row, column) {
  const cell = row.cells[column];
  const known = cell.dataset.value;
  return known === undefined ? cell.textContent.trim() : Number(known);
}

function sort(header) {
  const table = header.closest("table");
  const column = header.cellIndex;
  const descending = header.getAttribute("aria-sort") !== "descending";
  for (const other of header.parentElement.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const rows = Array.from(table.tBodies[0].rows);
  rows.sort((a, b) => {
    const [x, y] = [value(a, column), value(b, column)];
    const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
    return descending ? -order : order;
  });
  table.tBodies[0].append(...rows);
}

for (const header of document.querySelectorAll("table.sorts thead th")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = header.textContent;
  button.addEventListener("click", () => sort(header));
  header.replaceChildren(button);
}
