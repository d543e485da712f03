"use strict";
// Sorts and searches the table of all lines. Without this the page shows the same in the order it was made in.
document.documentElement.classList.remove("without-script");
const table = document.getElementById("all-lines-table");
if (table) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const names = rows.map((row) => row.cells[0].textContent.toLowerCase() + " " + row.cells[1].textContent.toLowerCase());
  const said = document.getElementById("shown");
  const search = document.getElementById("search");
  const show = () => {
    const wanted = search.value.trim().toLowerCase();
    let shown = 0;
    rows.forEach((row, place) => {
      row.hidden = !names[place].includes(wanted);
      shown += row.hidden ? 0 : 1;
    });
    said.textContent = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} lines shown`;
  };
  search.addEventListener("input", show);
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    return "v" in cell.dataset ? Number(cell.dataset.v) : cell.textContent;
  };
  const compared = (one, other) => (typeof one === "number" ? one - other : one.localeCompare(other));
  table.tHead.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const head = button.closest("th");
    const isText = head.classList.contains("left");
    const before = head.getAttribute("aria-sort");
    const now = before === null ? (isText ? "ascending" : "descending") : before === "ascending" ? "descending" : "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", now);
    const sign = now === "ascending" ? 1 : -1;
    const keyed = rows.map((row, place) => [valueOf(row, head.cellIndex), place, row]);
    keyed.sort((a, b) => sign * compared(a[0], b[0]) || a[1] - b[1]);
    body.append(...keyed.map((each) => each[2]));
  });
  show();
}
