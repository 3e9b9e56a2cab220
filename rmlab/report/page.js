
// ------------------------------------------------------------------------------- Leaderboards: sorted by a click on a head
const cellText = (row, column) => row.cells[column].textContent.trim();

function sortBy(table, heads, column) {
  const down = heads[column].getAttribute("aria-sort") !== "descending";
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    const [x, y] = [cellText(a, column), cellText(b, column)];
    if (x === "" || y === "") return (x === "") - (y === "");
    const order = isNaN(x) || isNaN(y) ? x.localeCompare(y, "en", {numeric: true}) : x - y;
    return down ? -order : order;
  });
  table.tBodies[0].append(...rows);
  heads.forEach(head => head.removeAttribute("aria-sort"));
  heads[column].setAttribute("aria-sort", down ? "descending" : "ascending");
}

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const onclick = () => sortBy(table, heads, column);
    head.replaceChildren(make("button", {type: "button", onclick}, head.textContent.trim()));
  });
  const field = table.closest("section").querySelector("input.filter");
  field.addEventListener("input", () => {
    for (const row of table.tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(field.value.toLowerCase());
  });
}

// ------------------------------------------------ Explorers: opened by the address, which says the benchmark and the view
const explorers = new Map();

function openExplorer(name, parts) {
  const sections = [...document.querySelectorAll("section.explorer")];
  const section = sections.find(candidate => candidate.dataset.benchmark === name);
  sections.forEach(other => { other.hidden = other !== section; });
  if (!section) return;
  if (explorers.has(name)) explorers.get(name).select({...DEFAULTS, ...fromAddress(parts)}, {save: false});
  else {
    const [payload, ...lines] = section.querySelector("script").textContent.split("\n");
    explorers.set(name, mountExplorer(section.querySelector("div"), JSON.parse(payload), lines, parts));
  }
}

function followAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const alone = document.querySelector("table.sortable") ? null : document.querySelector("section.explorer")?.dataset.benchmark;
  const name = parts.get("b") ?? alone;
  if (!name) return;
  openExplorer(name, parts);
  if (!alone) document.querySelector("section.explorer:not([hidden])")?.scrollIntoView();
}

addEventListener("hashchange", followAddress);
addEventListener("keydown", event => { // n and p, wherever in the page the focus is but in a box for text
  const shown = document.querySelector("section.explorer:not([hidden])");
  if (shown && event.target === document.body) explorers.get(shown.dataset.benchmark).pressKey(event);
});
followAddress();
