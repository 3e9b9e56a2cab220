// Buttons in a grid or a list, at most one of them pressed. All text is set with textContent.
function part(parent, kind, name, text) {
  const node = document.createElement(kind);
  node.className = name;
  if (text !== undefined) node.textContent = text;
  parent.appendChild(node);
  return node;
}

function button(parent, item, number, model) {
  const node = part(parent, "button", "rmlab-choice");
  node.type = "button";
  node.dataset.number = number;
  node.disabled = Boolean(item.disabled);
  node.setAttribute("aria-label", item.label || item.text);
  if (item.label) node.title = item.label;
  if (typeof item.tint === "number") {
    node.classList.add(item.tint < 0 ? "rmlab-low" : "rmlab-high");
    node.style.setProperty("--tint", Math.min(1, Math.abs(item.tint)).toFixed(3));
  }
  part(node, "span", "rmlab-choice-text", item.text);
  if (item.value) part(node, "span", "rmlab-choice-value", item.value);
  if (item.note) part(node, "span", "rmlab-choice-note", item.note);
  node.addEventListener("click", () => {
    const again = model.get("value") === number;
    if (again && !model.get("may_clear")) return;
    model.set("value", again ? -1 : number);
    model.save_changes();
  });
  return node;
}

function press(root, model) {
  const value = model.get("value");
  const nodes = [...root.querySelectorAll("button")];
  const stop = nodes.find((n) => Number(n.dataset.number) === value) || nodes.find((n) => !n.disabled);
  for (const node of nodes) {
    node.setAttribute("aria-pressed", String(Number(node.dataset.number) === value));
    node.tabIndex = node === stop ? 0 : -1;
  }
  if (value >= 0 && stop && root.scrollHeight > root.clientHeight) show(root, stop);
}

// A pressed button out of sight: the list scrolls, the page does not.
function show(root, node) {
  const [list, item] = [root.getBoundingClientRect(), node.getBoundingClientRect()];
  if (item.top < list.top) root.scrollTop -= list.top - item.top;
  if (item.bottom > list.bottom) root.scrollTop += item.bottom - list.bottom;
}

function draw(root, model) {
  const held = root.contains(document.activeElement) ? document.activeElement.dataset.number : undefined;
  const [rows, columns, across] = [model.get("row_names"), model.get("column_names"), model.get("columns")];
  root.replaceChildren();
  root.className = `rmlab-choices ${across > 1 ? "rmlab-matrix" : "rmlab-list"}`;
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", model.get("caption"));
  root.style.setProperty("--columns", across);
  if (columns.length) {
    part(root, "span", "rmlab-head rmlab-head-corner", model.get("corner"));
    for (const name of columns) part(root, "span", "rmlab-head rmlab-head-column", name);
  }
  model.get("items").forEach((item, number) => {
    if (rows.length && number % across === 0) part(root, "span", "rmlab-head rmlab-head-row", rows[number / across]);
    button(root, item, number, model);
  });
  press(root, model);
  if (held !== undefined) root.querySelector(`[data-number="${held}"]`)?.focus();
}

function move(event, root, across) {
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[event.key];
  const nodes = [...root.querySelectorAll("button")];
  const now = nodes.indexOf(document.activeElement);
  const next = { Home: 0, End: nodes.length - 1 }[event.key] ?? (step === undefined ? undefined : now + step);
  if (now < 0 || next === undefined) return;
  event.preventDefault();
  event.stopPropagation();
  nodes[next]?.focus();
}

function render({ model, el }) {
  const root = document.createElement("div");
  el.appendChild(root);
  root.addEventListener("keydown", (event) => move(event, root, model.get("columns")));
  const again = () => draw(root, model);
  for (const name of ["items", "columns", "row_names", "column_names", "corner", "caption"]) model.on(`change:${name}`, again);
  model.on("change:value", () => press(root, model));
  draw(root, model);
}

export default { render };
