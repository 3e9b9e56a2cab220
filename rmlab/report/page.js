"use strict";
// Everything from data enters the page as text (textContent), never as HTML.
const byId = id => document.getElementById(id);
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

// Leaderboards: sorted by a click on a head, filtered by name.
const exact = (row, column) => row.cells[column].dataset.v ?? row.cells[column].textContent;
function sortBy(table, heads, column) {
  const head = heads[column], down = head.getAttribute("aria-sort") !== "descending";
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    const x = exact(a, column), y = exact(b, column);
    if (x === "" || y === "") return (x === "") - (y === "");
    const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
    return down ? -order : order;
  });
  table.tBodies[0].append(...rows);
  heads.forEach(other => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
}
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) =>
    head.querySelector("button").addEventListener("click", () => sortBy(table, heads, column)));
}
for (const field of document.querySelectorAll("input.filter")) {
  const rows = byId(field.dataset.table).tBodies[0].rows;
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
}

// The prompts behind a number. The address says what is shown: #b=benchmark&model=...&column=...&prompt=domain/id
const STYLES = ["concise", "plain", "markdown"], LEVELS = ["easy", "normal", "hard"];
const OUTCOMES = {l: "lost", t: "tied", w: "won", "-": "no answer"};
const FIELDS = ["b", "model", "other", "column", "chosen", "rejected", "outcome", "q"];
const FIRST = 200;
const parsed = new Map();
let limit = FIRST, shown = [], listed = "";

function benchmark(name) {
  if (!parsed.has(name)) {
    const script = [...document.querySelectorAll("script[data-benchmark]")].find(s => s.dataset.benchmark === name);
    if (!script) return null;
    const data = JSON.parse(script.textContent);
    data.numbers = new Map();
    parsed.set(name, data);
  }
  return parsed.get(name);
}
function floats(data, kind, model) {
  if (!data[kind]) return null;
  const key = `${kind} ${model}`;
  if (!data.numbers.has(key)) {
    const bytes = Uint8Array.from(atob(data[kind][model]), c => c.charCodeAt(0));
    data.numbers.set(key, new Float32Array(bytes.buffer));
  }
  return data.numbers.get(key);
}
const state = () => new URLSearchParams(location.hash.slice(1));
function go(change) {
  const next = state();
  for (const [name, value] of Object.entries(change)) value === "" ? next.delete(name) : next.set(name, value);
  location.hash = next.toString();
}
// Numbers beside each other: three figures of the largest, the others as many decimals; "0" is exactly zero.
function numbers(values) {
  const known = values.filter(x => Number.isFinite(x)), largest = Math.max(0, ...known.map(Math.abs));
  const size = largest > 0 ? Number(largest.toExponential(2).split("e")[1]) : 0;
  const least = known.some(x => x !== 0 && Math.abs(x) < 0.5) ? 1 : 0;
  const form = x => size < -6 ? x.toExponential(2) : x.toFixed(Math.max(2 - size, least));
  return values.map(x => Number.isNaN(x) ? "–" : x === 0 ? "0" : form(x).replaceAll("-", "−"));
}
const domainOf = (data, prompt) => data.domain.name[data.domain.code[prompt]];
const nameOf = (data, prompt) => `${domainOf(data, prompt)}/${data.id[prompt]}`;

// Items that the filters leave, before the outcome is looked at.
function selected(data, at) {
  const where = data.where[at.get("column") || "overall"] || {}, item = data.item;
  const cell = name => STYLES.indexOf(at.get(name) || ""), words = (at.get("q") || "").toLowerCase();
  const domains = where.domain && new Set(where.domain), subsets = where.subset && new Set(where.subset);
  const level = where.level ? LEVELS.indexOf(where.level[0]) : -1;
  const chosen = cell("chosen"), rejected = cell("rejected"), found = [], hits = new Map();
  const says = prompt => {
    if (!hits.has(prompt)) {
      const text = `${nameOf(data, prompt)} ${data.texts?.prompt[prompt] ?? ""}`;
      hits.set(prompt, text.toLowerCase().includes(words));
    }
    return hits.get(prompt);
  };
  for (let i = 0; i < item.prompt.length; i++) {
    const prompt = item.prompt[i];
    if (domains && !domains.has(domainOf(data, prompt))) continue;
    if (subsets && !subsets.has(item.subset.name[item.subset.code[i]])) continue;
    if (level >= 0 && item.level[i] !== level) continue;
    if (chosen >= 0 && item.chosen_style[i] !== chosen) continue;
    if (rejected >= 0 && item.rejected_style[i] !== rejected) continue;
    if (words && !says(prompt)) continue;
    found.push(i);
  }
  return found;
}
function promptsOf(data, items, model, outcome) {
  const said = data.outcome[model], groups = new Map();
  for (const i of items) {
    const group = groups.get(data.item.prompt[i]) || {prompt: data.item.prompt[i], items: [], w: 0, t: 0, l: 0, "-": 0};
    group.items.push(i);
    if (said[i] !== " ") group[said[i]]++;
    groups.set(group.prompt, group);
  }
  const all = [...groups.values()].filter(g => g.w + g.t + g.l + g["-"] > 0);
  const order = new Intl.Collator("en", {numeric: true});
  const place = g => data.domain.code[g.prompt];
  all.sort((a, b) => place(a) - place(b) || order.compare(data.id[a.prompt], data.id[b.prompt]));
  return outcome ? all.filter(g => g[outcome] > 0) : all;
}
function shareOfModels(data, items) {
  let won = 0, known = 0;
  for (const said of data.outcome)
    for (const i of items) if ("wtl".includes(said[i])) { known++; won += said[i] === "w"; }
  return known ? won / known : NaN;
}

function options(select, pairs, value) {
  select.replaceChildren(...pairs.map(([key, text]) => make("option", {value: key}, text)));
  select.value = value;
  select.closest("label").hidden = pairs.length < 2;
}
function fillControls(data, at, model) {
  const form = byId("filters").elements, words = (names, none) => [["", none], ...names.map(n => [n, n])];
  options(form.b, [...document.querySelectorAll("script[data-benchmark]")].map(s => [s.dataset.benchmark, s.dataset.title]), at.get("b"));
  options(form.model, data.models.map(m => [m, m]), data.models[model]);
  options(form.other, words(data.models.filter(m => m !== data.models[model]), "none"), at.get("other") || "");
  options(form.column, Object.keys(data.where).map(c => [c === "overall" ? "" : c, c === "overall" ? "all" : c.replaceAll("_", " ")]), at.get("column") || "");
  const styles = data.cells ? words(STYLES, "any") : [];
  options(form.chosen, styles, at.get("chosen") || "");
  options(form.rejected, styles, at.get("rejected") || "");
  options(form.outcome, [["", "any"], ...Object.entries(OUTCOMES)], at.get("outcome") || "");
  if (form.q.value !== (at.get("q") || "")) form.q.value = at.get("q") || "";
}
function showMatrix(data, at, model) {
  const place = byId("matrix"), own = data.cells?.[data.models[model]];
  if (!own) return place.replaceChildren();
  const head = make("tr", {}, make("th", {}, "chosen ↓ rejected →"), ...STYLES.map(s => make("th", {scope: "col"}, s)));
  const rows = STYLES.map((row, i) => make("tr", {}, make("th", {scope: "row"}, row), ...STYLES.map((column, j) => {
    const share = own.share[3 * i + j], ties = own.n_ties[3 * i + j];
    const link = make("a", {href: "#"}, share === null ? "–" : share.toFixed(2), ties ? ` (${ties} ${ties === 1 ? "tie" : "ties"})` : "");
    link.addEventListener("click", event => { event.preventDefault(); go({chosen: row, rejected: column, column: "", prompt: ""}); });
    const now = at.get("chosen") === row && at.get("rejected") === column;
    return make("td", {class: now ? "now" : "", style: share === null ? "" : shade(share)}, link);
  })));
  place.replaceChildren(make("table", {class: "matrix"}, make("thead", {}, head), make("tbody", {}, ...rows)));
}
const shade = share => share >= 0.5 ? `background: rgba(33,102,172,${0.7 * (share - 0.5)})` : `background: rgba(178,24,43,${0.7 * (0.5 - share)})`;

function showList(data, at, model) {
  const key = JSON.stringify(FIELDS.map(f => at.get(f)));
  if (key !== listed) { limit = FIRST; listed = key; shown = promptsOf(data, selected(data, at), model, at.get("outcome") || ""); }
  const count = name => shown.reduce((sum, g) => sum + g[name], 0);
  byId("count").textContent = `${shown.length.toLocaleString("en")} prompts: ${count("w").toLocaleString("en")} won, ` +
    `${count("t").toLocaleString("en")} tied, ${count("l").toLocaleString("en")} lost` + (count("-") ? `, ${count("-")} without an answer` : "");
  const head = make("tr", {}, ...["prompt", "won", "tied", "lost", "all models"].map(text => make("th", {scope: "col"}, text)));
  const rows = shown.slice(0, limit).map(group => {
    const name = nameOf(data, group.prompt), next = new URLSearchParams(at);
    next.set("prompt", name);
    const share = shareOfModels(data, group.items);
    const row = make("tr", at.get("prompt") === name ? {class: "now"} : {}, make("td", {class: "left"}, make("a", {href: `#${next}`}, name)),
      ...["w", "t", "l"].map(o => make("td", {}, String(group[o]))), make("td", {}, Number.isNaN(share) ? "–" : share.toFixed(2)));
    return row;
  });
  byId("list").replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
  byId("more").hidden = shown.length <= limit;
}

const split = text => typeof Intl.Segmenter === "function"
  ? [...new Intl.Segmenter(undefined, {granularity: "word"}).segment(text)].map(s => s.segment)
  : text.match(/\s+|[^\s]+/g) || [];
function difference(one, other) {
  let a = split(one), b = split(other), start = 0, end = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const head = a.slice(0, start), tail = end ? a.slice(-end) : [];
  a = a.slice(start, a.length - end); b = b.slice(start, b.length - end);
  if (a.length * b.length > 4e6) return [["=", head.join("")], ["-", a.join("")], ["+", b.join("")], ["=", tail.join("")]];
  const width = b.length + 1, longest = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--)
    longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1 : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
  const parts = [["=", head.join("")]];
  const add = (kind, word) => parts[parts.length - 1][0] === kind ? parts[parts.length - 1][1] += word : parts.push([kind, word]);
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { add("=", a[i++]); j++; }
    else if (j >= b.length || (i < a.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) add("-", a[i++]);
    else add("+", b[j++]);
  }
  add("=", tail.join(""));
  return parts;
}
function showDifference(data, chosen, rejected, place) {
  const texts = data.texts?.answer;
  if (!texts || texts[chosen] === undefined || texts[rejected] === undefined) return place.replaceChildren();
  const marks = difference(texts[chosen], texts[rejected]).filter(([, text]) => text)
    .map(([kind, text]) => kind === "=" ? text : make(kind === "-" ? "del" : "ins", {}, text));
  place.replaceChildren(make("h4", {}, "From the chosen to the rejected answer"), make("div", {class: "text", dir: "auto"}, ...marks));
}
function showPrompt(data, at, model) {
  const place = byId("detail"), prompt = data.id.findIndex((_, k) => nameOf(data, k) === at.get("prompt"));
  if (!at.get("prompt") || prompt < 0) return place.replaceChildren(make("p", {class: "note"}, at.get("prompt") ? `There is no prompt ${at.get("prompt")} here.` : "Choose a prompt."));
  const models = [model, data.models.indexOf(at.get("other") || "")].filter(m => m >= 0);
  const parts = [navigation(data, prompt), make("h3", {tabindex: "-1"}, nameOf(data, prompt))];
  const text = data.texts?.prompt[prompt];
  parts.push(text === undefined ? make("p", {class: "note"}, data.texts ? "The texts of this prompt are not in the page." : "The page was written without texts.") : make("div", {class: "text prompt", dir: "auto"}, text));
  for (const note of data.texts?.note[prompt] ?? []) parts.push(make("p", {class: "wrong", dir: "auto"}, make("b", {}, "What is wrong: "), note));
  const answers = data.answer.prompt.flatMap((p, i) => p === prompt ? [i] : []);
  const contrast = make("div", {id: "difference"});
  const scores = models.map(m => {
    const all = floats(data, "score", m);
    return all ? numbers(answers.map(i => all[i])).map(said => `${data.models[m]}: ${said}`) : answers.map(() => "");
  });
  if (data.item.chosen) parts.push(...models.map(m => comparisons(data, prompt, m, answers, contrast)));
  else parts.push(...models.map(m => itemOutcomes(data, prompt, m)));
  parts.push(contrast);
  ["chosen", "rejected"].forEach((label, code) => parts.push(make("h4", {}, `${label} answers`), make("div", {class: "cards"},
    ...answers.flatMap((i, k) => data.answer.label[i] === code ? [card(data, i, scores.map(own => own[k]))] : []))));
  place.replaceChildren(...parts);
}
function navigation(data, prompt) {
  const place = shown.findIndex(g => g.prompt === prompt), bar = make("p", {class: "steps"});
  for (const [text, step, key] of [["← previous", -1, "p"], ["next →", 1, "n"]]) {
    const button = make("button", {type: "button", title: `key ${key}`}, text);
    const other = shown[place + step];
    button.disabled = place < 0 || !other;
    button.addEventListener("click", () => go({prompt: nameOf(data, other.prompt)}));
    button.dataset.key = key;
    bar.append(button);
  }
  return bar;
}
const nameAnswer = (data, i) => STYLES[data.answer.style[i]] || `answer ${data.answer.slot[i] + 1}`;
function card(data, i, scores) {
  const text = data.texts?.answer[i], id = data.answer.id[i], prompt = data.answer.prompt[i];
  const parts = [make("h5", {}, nameAnswer(data, i), id === data.id[prompt] ? "" : ` (${id})`), make("p", {class: "note"}, scores.filter(said => said).join(" · "))];
  if (text !== undefined) parts.push(make("div", {class: "text", dir: "auto", tabindex: "0"}, text));
  return make("div", {class: "card"}, ...parts);
}
function comparisons(data, prompt, model, answers, contrast) {
  const of = (code, slot) => answers.find(i => data.answer.label[i] === code && data.answer.slot[i] === slot);
  const item = data.item, said = data.outcome[model], scores = floats(data, "score", model), margins = floats(data, "margin", model);
  const items = item.prompt.flatMap((p, i) => p === prompt && said[i] !== " " ? [i] : []);
  const chosen = [...new Set(items.map(i => item.chosen[i]))].sort((a, b) => a - b), rejected = [...new Set(items.map(i => item.rejected[i]))].sort((a, b) => a - b);
  const head = make("tr", {}, make("th", {}, "chosen ↓ rejected →"), ...rejected.map(s => make("th", {scope: "col"}, nameAnswer(data, of(1, s)))));
  const margin = i => scores ? scores[of(0, item.chosen[i])] - scores[of(1, item.rejected[i])] : margins ? margins[i] : NaN;
  const shown = new Map(numbers(items.map(margin)).map((text, k) => [items[k], text === "–" ? "" : ` ${text}`]));
  const rows = chosen.map(c => make("tr", {}, make("th", {scope: "row"}, nameAnswer(data, of(0, c))), ...rejected.map(r => {
    const i = items.find(k => item.chosen[k] === c && item.rejected[k] === r);
    if (i === undefined) return make("td");
    const button = make("button", {type: "button"}, `${OUTCOMES[said[i]]}${shown.get(i)}`);
    button.addEventListener("click", () => showDifference(data, of(0, c), of(1, r), contrast));
    return make("td", {class: `outcome-${said[i]}`}, button);
  })));
  return make("div", {class: "scroll"}, make("table", {class: "matrix"}, make("caption", {}, `${data.models[model]}: outcome and margin`), make("thead", {}, head), make("tbody", {}, ...rows)));
}
function itemOutcomes(data, prompt, model) {
  const said = data.item.prompt.flatMap((p, i) => p === prompt ? [OUTCOMES[data.outcome[model][i]] || "no row"] : []);
  return make("p", {}, `${data.models[model]}: ${said.join(", ")}`);
}

function show() {
  const at = state(), data = at.get("b") && benchmark(at.get("b")), panel = byId("browse");
  if (!panel) return;
  panel.hidden = !data;
  if (!data) return;
  const model = Math.max(data.models.indexOf(at.get("model")), 0);
  fillControls(data, at, model);
  showMatrix(data, at, model);
  showList(data, at, model);
  showPrompt(data, at, model);
  byId("said").textContent = [...document.querySelectorAll("script[data-benchmark]")].find(s => s.dataset.benchmark === at.get("b")).dataset.said;
}
if (byId("browse")) {
  const form = byId("filters");
  let waiting = 0;
  form.addEventListener("submit", event => event.preventDefault());
  form.addEventListener("change", event => {
    if (event.target.name === "b") { location.hash = new URLSearchParams({b: event.target.value}).toString(); return; }
    go({[event.target.name]: event.target.value});
  });
  form.elements.q.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => go({q: form.elements.q.value}), 250); });
  byId("more").addEventListener("click", () => { limit += FIRST; show(); });
  document.addEventListener("keydown", event => {
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
    byId("detail").querySelector(`button[data-key="${event.key === "n" ? "n" : event.key === "p" ? "p" : "-"}"]`)?.click();
  });
  addEventListener("hashchange", event => {
    const before = new URLSearchParams(new URL(event.oldURL).hash.slice(1)), now = state();
    show();
    if (!now.get("b")) return;
    if (!before.get("b") || before.get("model") !== now.get("model") || before.get("column") !== now.get("column")) byId("browse").scrollIntoView();
    if (before.get("prompt") !== now.get("prompt")) byId("detail").scrollIntoView({block: "nearest"});
  });
  show();
  if (state().get("b")) byId(state().get("prompt") ? "detail" : "browse").scrollIntoView();
}
