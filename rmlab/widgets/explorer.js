// The explorer: from a number to the prompts behind it and their answers. A plain ES module with two entry points: `render`
// for anywidget in Jupyter, where texts and token rewards come from the kernel, and `mountExplorer` for a page of its
// own, where they stand in the page. Everything from data enters the page as text (textContent); only HTML that the
// Python side has rendered and sanitised is set as HTML.

// ---------------------------------------------------------------------------------------------------------- Constants
const STYLES = ["concise", "plain", "markdown"];
const LEVELS = ["easy", "normal", "hard"];
const LABELS = ["chosen", "rejected"];
const [NO_ROW, MISSING, LOSS, TIE, WIN] = [-2, -1, 0, 1, 2];
const OUTCOMES = {loss: LOSS, tie: TIE, win: WIN, missing: MISSING};
const OUTCOME_NAMES = {[LOSS]: "lost", [TIE]: "tied", [WIN]: "won", [MISSING]: "missing"};
const CORNER = "chosen ↓ rejected →";
const ROW_HEIGHT = 50; // pixels of a prompt in the list; explorer.css says the same
const TALL = 400, MANY_LINES = 10; // a card with fewer characters and lines has nothing to expand
const MAX_WORDS = 3000; // of each text that is compared: the comparison is quadratic
const DEFAULTS = {models: [], domain: null, subset: null, cell: null, level: null, outcome: null,
  margin: [null, null], text: "", order: "worst", prompt: null};

// --------------------------------------------------------------------------------------------------- Numbers as texts
// Numbers that stand beside each other: three figures of the largest, the others as many decimals; "0" is exactly zero.
function formatNumbers(values) {
  const finite = values.filter(Number.isFinite);
  const largest = Math.max(0, ...finite.map(Math.abs));
  const size = largest > 0 ? Number(largest.toExponential(2).split("e")[1]) : 0;
  const least = finite.some(x => x !== 0 && Math.abs(x) < 0.5) ? 1 : 0;
  const format = x => (size < -6 ? x.toExponential(2) : x.toFixed(Math.max(2 - size, least)));
  return values.map(x => (Number.isFinite(x) ? (x === 0 ? "0" : format(x).replaceAll("-", "−")) : "–"));
}

// Two decimals of a share, a tie to the even one, as Python rounds.
function formatShare(share) {
  const hundredths = share * 100, below = Math.floor(hundredths);
  return ((hundredths - below === 0.5 ? below + (below % 2) : Math.round(hundredths)) / 100).toFixed(2);
}

const count = n => n.toLocaleString("en");
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

// -------------------------------------------------------------------------------------------------------- Data columns
const ARRAYS = {int8: Int8Array, int32: Int32Array, float32: Float32Array, float64: Float64Array};

// A column is bytes (from a kernel) or base 64 (in a page).
function decodeColumn({dtype, data}) {
  const bytes = typeof data === "string"
    ? Uint8Array.from(atob(data), character => character.charCodeAt(0))
    : new Uint8Array(data.buffer, data.byteOffset, data.byteLength).slice();
  return new ARRAYS[dtype](bytes.buffer);
}

// The values in the order of their first places, and the number of each.
function encode(texts) {
  const values = [...new Set(texts)], numbers = new Map(values.map((value, k) => [value, k]));
  return [values, texts.map(text => numbers.get(text))];
}

class Data {
  constructor(payload) {
    Object.assign(this, payload);
    const columns = Object.fromEntries(Object.entries(payload.columns).map(([name, column]) => [name, decodeColumn(column)]));
    Object.assign(this, columns);
    this.ids = payload.prompts.id;
    [this.domains, this.domain] = encode(payload.prompts.domain);
    [this.subsets, this.subset] = encode(payload.prompts.subset);
    this.nItems = this.number.length;
    this.nAnswers = this.answer_number.length;
    // A cell of the matrix is 3 * chosen style + rejected style, -1 where one is missing.
    this.cell = this.chosen_style.map((style, i) => (style < 0 || this.rejected_style[i] < 0 ? -1 : 3 * style + this.rejected_style[i]));
    // Answers and comparisons of a prompt: where each begins.
    this.answersOf = this.group(this.answer_number);
    this.itemsOf = this.group(this.number);
    this.margins = new Map();
  }
  group(numbers) {
    const rows = this.ids.map(() => []);
    numbers.forEach((number, row) => rows[number].push(row));
    return rows;
  }
  // Margins of a model; where the table has none, 1 for a win, 0 for a tie, -1 for a loss.
  marginsOf(model) {
    if (this.margins.has(model)) return this.margins.get(model);
    const values = new Float64Array(this.nItems);
    const [items, answers] = [model * this.nItems, model * this.nAnswers];
    for (let i = 0; i < this.nItems; i++) {
      if (this.score) values[i] = this.score[answers + this.chosen[i]] - this.score[answers + this.rejected[i]];
      else values[i] = this.margin[items + i];
    }
    this.margins.set(model, values);
    return values;
  }
  // A section of the benchmark is several subsets.
  subsetCodes(name) {
    return new Set([...(this.sections[name] ?? []), name].map(subset => this.subsets.indexOf(subset)));
  }
  // Why a selection is impossible, or null. The choices are those of `rmlab.explore`, which made this data.
  refuse({models, cell, margin, ...selection}) {
    for (const [name, choices] of Object.entries(this.choices))
      for (const value of [{models, cell, ...selection}[name]].flat())
        if (value !== null && !choices.includes(value)) return `Selection: ${name} "${value}" is not in this data.`;
    if (models.length > 2 || models[0] === models[1]) return "Selection: choose one model or two different ones.";
    if (cell && cell.length !== 2) return "Selection: a cell is a chosen and a rejected style.";
    const isRange = margin.length === 2 && !margin.some(Number.isNaN) && inRange(margin[0] ?? -Infinity, [null, margin[1]]);
    return isRange ? null : "Selection: the lowest margin is above the highest.";
  }
  key(number) {
    return [this.benchmark, this.domains[this.domain[number]], this.ids[number]];
  }
  find(key) {
    return key ? this.ids.findIndex((id, k) => id === key[2] && this.domains[this.domain[k]] === key[1]) : -1;
  }
  answerName(answer) {
    return STYLES[this.answer_style[answer]] ?? `answer ${this.answer_slot[answer] + 1}`;
  }
  fullName(answer) {
    return `${LABELS[this.answer_label[answer]]} ${this.answerName(answer)}`;
  }
}

// ----------------------------------------------------------------------------------------- Selection: what fits, ordered
const levelOfCell = cell => 1 + Math.sign((cell % 3) - Math.floor(cell / 3));
const cellCode = cell => 3 * STYLES.indexOf(cell[0]) + STYLES.indexOf(cell[1]);
const inRange = (value, [low, high]) => (low === null || value >= low) && (high === null || value <= high);

// The prompts of the domain, the subset and the word; `hits`: the prompts that hold the word, null for no word.
function scopeOf(data, selection, hits) {
  const domain = selection.domain === null ? -1 : data.domains.indexOf(selection.domain);
  const subsets = selection.subset === null ? null : data.subsetCodes(selection.subset);
  return prompt => (domain < 0 || data.domain[prompt] === domain) && (!subsets || subsets.has(data.subset[prompt]))
    && (!hits || hits.has(prompt));
}

// The prompts with a comparison that fits, as `rmlab.explore(...).select(...).frame` has them.
function matchPrompts(data, selection, hits) {
  const [first, second] = selection.models.map(name => data.models.indexOf(name));
  const compared = second !== undefined;
  const inScope = scopeOf(data, selection, hits);
  const [margins, others] = [data.marginsOf(first), compared ? data.marginsOf(second) : null];
  const cell = selection.cell ? cellCode(selection.cell) : -1;
  const level = LEVELS.indexOf(selection.level);
  const matches = [];
  data.itemsOf.forEach((items, number) => {
    if (!inScope(number)) return;
    const match = {number, n: 0, lost: 0, flips: 0, margin: 0, other: 0};
    let known = 0, knownOther = 0;
    for (const i of items) {
      const outcome = data.outcome[first * data.nItems + i];
      const otherOutcome = compared ? data.outcome[second * data.nItems + i] : outcome;
      const flip = outcome >= LOSS && otherOutcome >= LOSS && outcome !== otherOutcome;
      if (outcome === NO_ROW || (cell >= 0 && data.cell[i] !== cell)) continue;
      if (level >= 0 && (data.cell[i] < 0 || levelOfCell(data.cell[i]) !== level)) continue;
      if (selection.outcome !== null && !(selection.outcome === "flip" ? flip : outcome === OUTCOMES[selection.outcome])) continue;
      if (!inRange(margins[i], selection.margin)) continue;
      match.n++;
      match.lost += outcome === LOSS;
      match.flips += flip;
      if (!Number.isNaN(margins[i])) { match.margin += margins[i]; known++; }
      if (compared && !Number.isNaN(others[i])) { match.other += others[i]; knownOther++; }
    }
    match.margin /= known; // NaN where no margin is known
    match.other /= knownOther;
    if (match.n) matches.push(match);
  });
  return sortMatches(matches, selection.order, compared);
}

function sortMatches(matches, order, compared) {
  if (order === "data") return matches;
  const sign = order === "worst" ? 1 : -1;
  const distance = match => -Math.abs(match.margin - match.other);
  const by = compared ? distance : match => match.margin;
  const last = (a, b) => Number.isNaN(by(a)) - Number.isNaN(by(b));
  return matches.sort((a, b) => (compared ? sign * (b.flips - a.flips) : 0) || last(a, b) || sign * (by(a) - by(b)) || 0);
}

// The nine cells of a model: `rmlab.matrix` for the whole table, and the plain share of a domain, a subset or a word.
function matrixOf(data, selection, model, hits) {
  const inScope = scopeOf(data, selection, hits);
  const cells = Array.from({length: 9}, () => ({credit: 0, n: 0, ties: 0}));
  const total = {won: 0, tied: 0, lost: 0, missing: 0};
  for (let i = 0; i < data.nItems; i++) {
    const outcome = data.outcome[model * data.nItems + i];
    if (outcome === NO_ROW || !inScope(data.number[i])) continue;
    total[OUTCOME_NAMES[outcome]]++;
    if (outcome === MISSING || data.cell[i] < 0) continue;
    const cell = cells[data.cell[i]];
    cell.ties += outcome === TIE;
    if (outcome === TIE && data.tieCredit === null) continue;
    cell.n++;
    cell.credit += outcome === WIN ? 1 : outcome === TIE ? data.tieCredit : 0;
  }
  const whole = selection.domain === null && selection.subset === null && !hits;
  const shares = cells.map((cell, k) => (whole ? data.shares?.[9 * model + k] ?? NaN : cell.credit / cell.n));
  return {shares, cells, total, reason: whole ? data.reasons[model] ?? "" : ""};
}

// --------------------------------------------------------------------------------------------------- Elements of a page
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter(child => child !== null));
  return element;
}

function trusted(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

// Blue for what is above, red for what is below; the strength goes from 0 to 1.
function tint(element, strength) {
  if (!Number.isFinite(strength) || strength === 0) return element;
  element.classList.add(strength > 0 ? "rmlab-high" : "rmlab-low");
  element.style.setProperty("--tint", Math.min(1, Math.abs(strength)).toFixed(3));
  return element;
}

function makeSelect(label, options, onchange) {
  const select = make("select", {"aria-label": label, onchange: () => onchange(select.value)});
  fillOptions(select, options);
  const field = make("label", {class: "rmlab-field"}, label, select);
  return {field, select};
}

function fillOptions(select, options) {
  select.replaceChildren(...options.map(([value, text]) => make("option", {value}, text)));
}

function makeTable(caption, head, rows) {
  const heading = make("tr", {}, ...head.map((text, k) => make(k ? "th" : "td", k ? {scope: "col"} : {}, text)));
  const table = make("table", {class: "rmlab-table"}, caption ? make("caption", {}, caption) : null,
    make("thead", {}, heading), make("tbody", {}, ...rows));
  return make("div", {class: "rmlab-scroll", tabindex: "0", role: "region", "aria-label": caption || head[0] || "table"}, table);
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // no clipboard outside a secure page
    const area = make("textarea", {style: "position: fixed; opacity: 0"}, text);
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], {type: "text/csv"}));
  make("a", {href: address, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// A text that a spreadsheet would run as a formula gets a quote before it.
function toCsv(rows) {
  const formula = /^\s*(?![-+](\d+\.?\d*|\.\d+)(e[-+]?\d+)?$)[=+\-@＝＋－＠]/i;
  const cell = value => {
    const text = typeof value === "number" ? (Number.isNaN(value) ? "" : String(value)) : String(value).replace(formula, "'$&");
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map(row => row.map(cell).join(",") + "\n").join("");
}

// ------------------------------------------------------------------------------------------------- Two texts word by word
// Words with the white space behind them; Chinese and Japanese words without any.
function splitWords(text) {
  const parts = typeof Intl.Segmenter === "function"
    ? [...new Intl.Segmenter(undefined, {granularity: "word"}).segment(text)].map(part => part.segment)
    : text.match(/\s+|\S+/g) ?? [];
  const words = [];
  for (const part of parts) {
    if (words.length && !part.trim()) words[words.length - 1] += part;
    else words.push(part);
  }
  return words;
}

// [["=" | "-" | "+", text], ...] from the first to the second text: longest common subsequence between equal ends.
function compareTexts(first, second) {
  const [a, b] = [first, second].map(text => splitWords(text).slice(0, MAX_WORDS));
  const same = (x, y) => x.trim() === y.trim();
  let start = 0, end = 0;
  while (start < a.length && start < b.length && same(a[start], b[start])) start++;
  while (end < a.length - start && end < b.length - start && same(a.at(-1 - end), b.at(-1 - end))) end++;
  const [x, y] = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
  const width = y.length + 1, longest = new Uint16Array((x.length + 1) * width);
  for (let i = x.length - 1; i >= 0; i--)
    for (let j = y.length - 1; j >= 0; j--)
      longest[i * width + j] = same(x[i], y[j])
        ? longest[(i + 1) * width + j + 1] + 1 : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
  const parts = [["=", b.slice(0, start).join("")]];
  const add = (kind, word) => (parts.at(-1)[0] === kind ? (parts.at(-1)[1] += word) : parts.push([kind, word]));
  for (let i = 0, j = 0; i < x.length || j < y.length;) {
    if (i < x.length && j < y.length && same(x[i], y[j])) { i++; add("=", y[j++]); }
    else if (j >= y.length || (i < x.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) add("-", x[i++]);
    else add("+", y[j++]);
  }
  if (end) add("=", b.slice(b.length - end).join(""));
  return parts.filter(part => part[1]);
}

// --------------------------------------------------------------------------------------------------------- The explorer
// `source`: texts(number), search(text) and tokens(answer) give promises; `selection` and `annotations` are kept in step
// with the outside by `save`; `link(selection)` is what can be copied to come back.
class Explorer {
  constructor(root, payload, source) {
    this.root = root;
    this.source = source;
    this.data = new Data(payload);
    this.annotations = {...source.annotations};
    this.view = "Rendered";
    this.difference = null; // the two answers that are compared, once chosen
    this.buildPage();
    this.select(source.selection ?? {}, {save: false});
  }

  buildPage() {
    this.problem = make("div", {class: "rmlab-problem", role: "alert", hidden: true});
    this.bar = make("div", {class: "rmlab-bar", role: "search"});
    this.side = make("div", {class: "rmlab-side"});
    this.main = make("div", {class: "rmlab-main"});
    this.buildControls();
    this.matrices = make("div");
    this.buildList();
    this.side.append(this.matrices, this.status, this.list);
    this.buildPanel();
    this.root.classList.add("rmlab");
    this.keepKeys();
    this.root.append(this.bar, this.problem, make("div", {class: "rmlab-columns"}, this.side, this.main));
  }

  // A key pressed in here is nobody else's: JupyterLab would cut the notebook's cell at "x". It asks the element in focus
  // alone whether it may take a key, and a click on what takes no focus would give the focus to the notebook's cell.
  keepKeys() {
    const {root} = this;
    root.tabIndex = -1;
    root.addEventListener("focusin", ({target}) => {
      this.focused = target;
      target.dataset.lmSuppressShortcuts = "true";
    });
    root.addEventListener("focusout", event => { if (event.relatedTarget) this.focused = null; });
    root.addEventListener("keydown", event => {
      this.pressKey(event);
      if (!event.ctrlKey && !event.metaKey) event.stopPropagation();
    });
  }

  // What is drawn anew, hidden or disabled loses the focus; then the explorer has it.
  keepFocus() {
    if (this.focused && !this.focused.matches(":focus")) this.root.focus({preventScroll: true});
  }

  // Change what is shown. Without a prompt the first of the new list is opened.
  async select(changes, {save = true} = {}) {
    const selection = {...DEFAULTS, ...this.selection, prompt: null, ...changes};
    if (!selection.models.length) selection.models = this.data.models.slice(0, 1);
    if (selection.outcome === "flip" && selection.models.length < 2) selection.outcome = null;
    const refusal = this.data.refuse(selection);
    if (refusal) {
      if (this.selection) this.showControls(); // as they were
      else await this.select({}, {save: false});
      this.complain(refusal);
      return;
    }
    this.selection = selection;
    this.told.textContent = "";
    this.showControls();
    const turn = (this.turn = {});
    try {
      const words = selection.text.trim();
      if (words && words !== this.searched?.words) {
        this.status.textContent = "searching …";
        const hits = new Set(await this.source.search(words));
        if (turn !== this.turn) return; // something else has been asked for since
        this.searched = {words, hits};
      }
      const hits = words ? this.searched.hits : null;
      this.showMatrices(hits);
      this.matches = matchPrompts(this.data, selection, hits);
    } catch (error) {
      this.complain(error);
      return;
    }
    this.complain(null);
    const number = this.data.find(selection.prompt);
    this.showList();
    await this.open(number >= 0 ? number : this.matches[0]?.number ?? -1, {save});
  }

  complain(error) {
    this.problem.hidden = !error;
    this.problem.textContent = error ? String(error.message ?? error) : "";
  }

  // ------------------------------------------------------------------------------------------------------------ Filters
  buildControls() {
    const {data} = this, all = ["", "all"], names = values => values.map(value => [value, value]);
    const choose = name => value => this.select({[name]: value || null});
    const fields = {
      model: makeSelect("Model", names(data.models), value => this.selectModels(value, this.selection.models[1])),
      other: makeSelect("Compare with", [["", "none"], ...names(data.models)], value => this.selectModels(this.selection.models[0], value)),
      domain: makeSelect("Domain", [all, ...names(data.domains)], choose("domain")),
      subset: makeSelect("Subset", [all, ...names([...Object.keys(data.sections), ...data.subsets])], choose("subset")),
      level: makeSelect("Level", [all, ...names(LEVELS)], choose("level")),
      outcome: makeSelect("Outcome", [all], choose("outcome")),
      order: makeSelect("Order", [], value => this.select({order: value})),
    };
    this.fields = fields;
    fields.other.field.hidden = data.models.length < 2;
    fields.domain.field.hidden = data.domains.length < 2;
    fields.subset.field.hidden = data.subsets.length < 2 || String(data.subsets) === String(data.domains);
    fields.level.field.hidden = !data.cell.some(cell => cell >= 0);
    const limit = (side, label) => make("input", {type: "number", step: "any", "aria-label": `${label} margin`, placeholder: label,
      onchange: event => {
        const margin = [...this.selection.margin];
        margin[side] = event.target.value === "" ? null : Number(event.target.value);
        this.select({margin});
      }});
    this.limits = [limit(0, "lowest"), limit(1, "highest")];
    const range = make("div", {class: "rmlab-field", role: "group", "aria-label": "margin", hidden: !data.hasMargins}, "Margin",
      make("span", {class: "rmlab-range"}, ...this.limits));
    let waiting = 0;
    const placeholder = data.hasTexts === false ? "id of a prompt" : "word in prompt or answers";
    const find = () => { // while one types, and at once where one leaves the box
      clearTimeout(waiting);
      if (this.search.value !== this.selection.text) this.select({text: this.search.value});
    };
    const later = () => { clearTimeout(waiting); waiting = setTimeout(find, 250); };
    this.search = make("input", {type: "search", dir: "auto", placeholder, oninput: later, onchange: find});
    const search = make("label", {class: "rmlab-field rmlab-search"}, "Search", this.search);
    this.reset = make("button", {type: "button", onclick: () => this.select({...DEFAULTS, models: this.selection.models})}, "Clear filters");
    const {model, other, domain, subset, level, outcome, order} = fields;
    this.bar.append(...[model, other, domain, subset, level, outcome].map(entry => entry.field), range, order.field, search, this.reset);
  }

  // A margin belongs to a model: another model forgets it.
  selectModels(first, second) {
    const models = second && second !== first ? [first, second] : [first];
    this.select({models, ...(first !== this.selection.models[0] ? {margin: [null, null]} : {})});
  }

  showControls() {
    const {fields, selection} = this, [first, second] = selection.models;
    fillOptions(fields.outcome.select, [["", "all"], ["loss", "wrong (loss)"], ["tie", "tie"], ["win", "right (win)"],
      ["missing", "missing"], ...(second ? [["flip", "models disagree"]] : [])]);
    fillOptions(fields.order.select, [["worst", second ? "most disagreement first" : "lowest margin first"],
      ["best", second ? "most agreement first" : "highest margin first"], ["data", "as in the data"]]);
    fields.model.select.value = first;
    fields.other.select.value = second ?? "";
    for (const name of ["domain", "subset", "level", "outcome", "order"]) fields[name].select.value = selection[name] ?? "";
    this.limits.forEach((input, side) => { input.value = selection.margin[side] ?? ""; });
    if (this.search.value.trim() !== selection.text.trim()) this.search.value = selection.text;
    const filters = ["domain", "subset", "cell", "level", "outcome"];
    this.reset.hidden = !(filters.some(name => selection[name] !== null) || selection.text || selection.margin.some(limit => limit !== null));
    this.keepFocus();
  }

  // ----------------------------------------------------------------------------------------------------------- Matrices
  showMatrices(hits) {
    const {data, selection} = this;
    const focused = this.matrices.contains(document.activeElement) ? document.activeElement.dataset.place : null;
    this.matrices.replaceChildren(...selection.models.map((name, place) => {
      const {shares, cells, total, reason} = matrixOf(data, selection, data.models.indexOf(name), hits);
      const counts = Object.entries(total).filter(([, n]) => n).map(([word, n]) => `${word} ${count(n)}`).join(", ");
      const parts = [make("h4", {}, name), make("p", {class: "rmlab-quiet"}, counts || "no comparisons")];
      if (!data.shares) parts.push(make("p", {class: "rmlab-quiet"}, "No matrix: not all of these answers have a style."));
      else {
        if (reason) parts.push(make("p", {class: "rmlab-note"}, `No matrix: ${reason}. A domain has its own: choose one above.`));
        parts.push(this.makeMatrix(name, place, shares, cells));
      }
      return make("section", {"aria-label": `matrix of ${name}`}, ...parts);
    }));
    if (focused) this.matrices.querySelector(`[data-place="${focused}"]`)?.focus();
  }

  makeMatrix(name, place, shares, cells) {
    const chosen = this.selection.cell ? cellCode(this.selection.cell) : -1;
    const stop = Math.max(chosen, 0);
    const title = `${name}: share won, chosen style (rows) by rejected style (columns)`;
    const grid = make("div", {class: "rmlab-matrix", role: "group", "aria-label": title},
      make("span", {class: "rmlab-corner"}, CORNER), ...STYLES.map(style => make("span", {class: "rmlab-head"}, style)));
    shares.forEach((share, k) => {
      const cell = [STYLES[Math.floor(k / 3)], STYLES[k % 3]], level = LEVELS[levelOfCell(k)];
      const ties = cells[k].ties ? `, ${plural(cells[k].ties, "tie")}` : "";
      const number = Number.isNaN(share) ? "missing" : `${formatShare(share)} won`;
      const label = `chosen ${cell[0]} against rejected ${cell[1]}, ${level}: ${number}, ${plural(cells[k].n, "comparison")}${ties}`;
      if (k % 3 === 0) grid.append(make("span", {class: "rmlab-head rmlab-row"}, cell[0]));
      grid.append(tint(make("button", {type: "button", title: label, "aria-label": label, "aria-pressed": String(k === chosen),
        tabindex: k === stop ? "0" : "-1", "data-place": `${place}-${k}`, disabled: cells[k].n + cells[k].ties === 0,
        onclick: () => this.select({cell: k === chosen ? null : cell})},
      make("b", {}, Number.isNaN(share) ? "–" : formatShare(share)), make("span", {}, level)), 2 * share - 1));
    });
    return grid;
  }

  // --------------------------------------------------------------------------------------------------------------- List
  // Only the rows in sight are in the page, so that 10,000 prompts scroll as ten do.
  buildList() {
    this.status = make("p", {class: "rmlab-quiet rmlab-status", role: "status"});
    this.rows = make("div", {class: "rmlab-rows"});
    this.list = make("div", {class: "rmlab-list", role: "listbox", tabindex: "0", "aria-label": "prompts that fit"}, this.rows);
    this.list.addEventListener("scroll", () => requestAnimationFrame(() => this.drawRows()));
    this.prefix = `rmlab-${Math.random().toString(36).slice(2)}`;
  }

  showList() {
    const total = {n: 0, lost: 0, flips: 0};
    for (const match of this.matches) for (const name of Object.keys(total)) total[name] += match[name];
    const flips = this.selection.models[1] ? `, ${count(total.flips)} flips` : "";
    this.status.textContent = this.matches.length
      ? `${plural(this.matches.length, "prompt")}: ${count(total.lost)} of ${plural(total.n, "comparison")} lost${flips}`
      : "No prompt fits this selection; widen one of the filters.";
    this.rows.style.height = `${ROW_HEIGHT * this.matches.length}px`;
    this.list.hidden = !this.matches.length;
    this.list.scrollTop = 0;
  }

  drawRows() {
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW_HEIGHT) - 5);
    const last = Math.min(this.matches.length, first + Math.ceil((this.list.clientHeight || 600) / ROW_HEIGHT) + 10);
    const shown = this.matches.slice(first, last);
    const [margins, others] = ["margin", "other"].map(name => formatNumbers(shown.map(match => match[name])));
    this.rows.replaceChildren(...shown.map((match, k) => this.makeRow(match, first + k, margins[k], others[k])));
    this.list.setAttribute("aria-activedescendant", `${this.prefix}-${this.place}`);
  }

  makeRow(match, place, margin, other) {
    const {data} = this, compared = this.selection.models[1] !== undefined;
    const value = data.hasMargins ? (compared ? `${margin} / ${other}` : margin) : "";
    const [, domain, id] = data.key(match.number), subset = data.subsets[data.subset[match.number]];
    const marked = this.annotations[match.number] ? " · annotated" : "";
    const flips = compared ? ` · ${plural(match.flips, "flip")}` : "";
    const note = `${subset === domain ? domain : subset} · ${id} · ${match.lost} of ${match.n} lost${flips}${marked}`;
    const row = make("div", {class: "rmlab-option", role: "option", id: `${this.prefix}-${place}`,
      "aria-selected": String(match.number === this.number), "aria-setsize": this.matches.length,
      "aria-posinset": place + 1, onclick: () => { this.open(match.number); this.reveal(); }},
    make("span", {class: "rmlab-title", dir: "auto"}, data.heads[match.number] || id),
    tint(make("span", {class: "rmlab-value"}, value), Math.sign(match.margin)),
    make("span", {class: "rmlab-quiet"}, note));
    row.style.top = `${ROW_HEIGHT * place}px`;
    return row;
  }

  // Where the answers stand below the list, a prompt that is opened brings them into sight.
  reveal() {
    const {top} = this.main.getBoundingClientRect();
    if (top < 0 || top > window.innerHeight * 0.6) this.main.scrollIntoView({block: "start"});
  }

  step(by) {
    const match = this.matches[this.place < 0 ? 0 : this.place + by];
    if (match) this.open(match.number);
  }

  // --------------------------------------------------------------------------------------------------------- One prompt
  buildPanel() {
    const button = (text, title, onclick) => make("button", {type: "button", title, onclick}, text);
    this.previous = button("← Previous", "previous prompt (key p)", () => this.step(-1));
    this.next = button("Next →", "next prompt (key n)", () => this.step(1));
    this.where = make("span", {class: "rmlab-quiet", role: "status"});
    this.heading = make("div");
    this.note = make("textarea", {rows: "1", dir: "auto", placeholder: "a note of your own on this prompt", oninput: () => this.annotate()});
    const views = ["Rendered", "Raw", "Differences", "Style", ...(this.data.hasTokens ? ["Tokens"] : [])];
    this.views = make("div", {class: "rmlab-views", role: "group", "aria-label": "show the answers as"}, ...views.map(name =>
      make("button", {type: "button", "data-view": name, "aria-pressed": String(name === this.view), onclick: () => this.showView(name)}, name)));
    this.comparison = make("div", {class: "rmlab-tables"});
    this.body = make("div");
    this.allModels = make("details", {hidden: this.data.models.length < 2 || !this.data.score, ontoggle: () => this.showAllModels()},
      make("summary", {}, `Scores of all ${count(this.data.models.length)} models`), make("div"));
    this.main.append(make("div", {class: "rmlab-pager"}, this.previous, this.where, this.next), this.heading,
      make("label", {class: "rmlab-annotation"}, "Annotation", this.note), this.comparison, this.views, this.body,
      this.allModels, this.buildExports());
  }

  async open(number, {save = true} = {}) {
    this.number = number;
    this.place = this.matches.findIndex(match => match.number === number);
    this.difference = null;
    this.selection.prompt = number < 0 ? null : this.data.key(number);
    this.scrollToPlace();
    this.drawRows();
    if (save) this.source.save(this.selection);
    this.showLink();
    this.main.hidden = number < 0;
    if (number < 0) return;
    this.previous.disabled = this.place <= 0;
    this.next.disabled = this.place >= this.matches.length - 1 && this.place >= 0;
    this.where.textContent = this.place < 0 ? "not in this selection" : `${count(this.place + 1)} of ${count(this.matches.length)}`;
    this.note.value = this.annotations[number] ?? "";
    this.keepFocus();
    try {
      const texts = await this.source.texts(number);
      if (number !== this.number) return;
      this.texts = texts;
      this.showPrompt();
    } catch (error) {
      this.complain(error);
    }
  }

  scrollToPlace() {
    const top = ROW_HEIGHT * this.place, {scrollTop, clientHeight} = this.list;
    if (this.place < 0) return;
    if (top < scrollTop) this.list.scrollTop = top;
    else if (top + ROW_HEIGHT > scrollTop + clientHeight) this.list.scrollTop = top + ROW_HEIGHT - clientHeight;
  }

  showPrompt() {
    const {data, number, texts} = this, [, domain, id] = data.key(number), subset = data.subsets[data.subset[number]];
    const place = [domain, ...(subset === domain ? [] : [subset]), `id ${id}`].join(" · ");
    const head = make("h4", {}, "Prompt ", make("span", {class: "rmlab-quiet"}, place));
    const absent = data.hasTexts === false ? "This page was written without texts." : "The texts of this prompt are not in the page.";
    const text = texts.prompt ? this.makeText(texts.prompt, "prompt", "rmlab-prompt") : make("p", {class: "rmlab-quiet"}, absent);
    const notes = (texts.notes ?? []).map(([title, note]) => make("p", {class: "rmlab-note", dir: "auto"}, make("b", {}, `${title}. `), note));
    const top = make("div", {class: "rmlab-card-top"}, head, this.makeExpander(texts.prompt, "prompt"));
    this.heading.replaceChildren(make("div", {class: "rmlab-card"}, top, text), ...notes);
    this.comparison.replaceChildren(...this.selection.models.map(model => this.makeComparisons(model)));
    this.showView(this.view);
    if (this.allModels.open) this.showAllModels();
  }

  // A table of one model's comparisons: margins, or outcomes where there are none. A click compares the two texts.
  makeComparisons(name) {
    const {data, number} = this, model = data.models.indexOf(name), margins = data.marginsOf(model);
    const items = data.itemsOf[number].filter(i => data.outcome[model * data.nItems + i] !== NO_ROW);
    const [rows, columns] = [data.chosen, data.rejected].map(side => data.answersOf[number].filter(answer => items.some(i => side[i] === answer)));
    const texts = new Map(formatNumbers(items.map(i => margins[i])).map((text, k) => [items[k], text]));
    const largest = Math.max(...items.map(i => Math.abs(margins[i])).filter(Number.isFinite), 0) || 1;
    const body = rows.map(chosen => make("tr", {}, make("th", {scope: "row"}, data.answerName(chosen)), ...columns.map(rejected => {
      const i = items.find(item => data.chosen[item] === chosen && data.rejected[item] === rejected);
      if (i === undefined) return make("td");
      const outcome = OUTCOME_NAMES[data.outcome[model * data.nItems + i]];
      const label = `chosen ${data.answerName(chosen)} against rejected ${data.answerName(rejected)}: ${outcome}; compare the texts`;
      const button = make("button", {type: "button", title: label, "aria-label": `${texts.get(i)}, ${label}`,
        onclick: () => this.compareAnswers(chosen, rejected)}, data.hasMargins ? texts.get(i) : outcome);
      return tint(make("td", {}, button), margins[i] / largest);
    })));
    return makeTable(`${name}: ${data.hasMargins ? "margins" : "outcomes"}`, [CORNER, ...columns.map(answer => data.answerName(answer))], body);
  }

  showView(name) {
    this.view = name;
    for (const button of this.views.children) button.setAttribute("aria-pressed", String(button.dataset.view === name));
    if (this.texts === undefined) return; // they are on their way, and will be shown so
    const draw = {Differences: () => this.makeDifferences(), Style: () => this.makeStyles(), Tokens: () => this.makeTokens()}[name];
    const hasTexts = this.texts.answers !== undefined;
    this.body.replaceChildren(...[hasTexts && draw ? draw() : this.makeAnswers()].flat());
    this.keepFocus();
  }

  makeAnswers() {
    const {data} = this, answers = data.answersOf[this.number];
    const scores = this.selection.models.map(name => {
      const model = data.models.indexOf(name);
      return data.score ? formatNumbers(answers.map(answer => data.score[model * data.nAnswers + answer])) : [];
    });
    return LABELS.flatMap((label, code) => {
      const cards = answers.flatMap((answer, k) => {
        if (data.answer_label[answer] !== code) return [];
        const called = `${label} ${data.answerName(answer)}`, shown = this.texts.answers?.[k];
        const model = m => (scores.length > 1 ? `${this.selection.models[m]} ` : "");
        const values = scores.flatMap((texts, m) => texts[k] === undefined ? [] : [make("span", {}, model(m), make("b", {}, texts[k]))]);
        const top = make("div", {class: "rmlab-card-top"}, make("span", {}, data.answerName(answer)),
          make("span", {class: "rmlab-scores"}, ...values), this.makeExpander(shown, called));
        return [make("div", {class: "rmlab-card"}, top, shown ? this.makeText(shown, called, "rmlab-body") : null)];
      });
      return cards.length ? [make("h4", {class: "rmlab-label"}, label), this.makeGrid(cards)] : [];
    });
  }

  makeGrid(cards) {
    const grid = make("div", {class: "rmlab-grid"}, ...cards);
    grid.style.setProperty("--answers", Math.min(cards.length, 3));
    return grid;
  }

  makeText(shown, called, kind) {
    const content = this.view === "Raw" ? make("pre", {class: "rmlab-raw"}, shown.raw) : trusted(shown.html);
    const sentence = () => `The first ${count(shown.raw.length)} of ${count(shown.length)} characters are shown.`;
    const cut = shown.length ? make("p", {class: "rmlab-quiet"}, sentence()) : null;
    return make("div", {class: `rmlab-text ${kind}`, dir: "auto", tabindex: "0", role: "region", "aria-label": called}, content, cut);
  }

  makeExpander(shown, called) {
    if (!shown || (shown.raw.length < TALL && shown.raw.split("\n").length < MANY_LINES)) return null;
    return make("label", {class: "rmlab-expander"}, make("input", {type: "checkbox", "aria-label": `expand: ${called}`}), "expand");
  }

  compareAnswers(chosen, rejected) {
    this.difference = [chosen, rejected];
    this.showView("Differences");
    this.views.scrollIntoView({block: "nearest"});
  }

  // The answers of the selected cell; without a cell two of the same style.
  usualDifference(answers) {
    const {data} = this, {cell} = this.selection;
    const [chosen, rejected] = LABELS.map((_, label) => answers.filter(answer => data.answer_label[answer] === label));
    const ofStyle = (side, style) => side.find(answer => style >= 0 && data.answer_style[answer] === style) ?? side[0];
    const first = cell ? ofStyle(chosen, STYLES.indexOf(cell[0])) : chosen[0];
    const style = cell ? STYLES.indexOf(cell[1]) : data.answer_style[first];
    return [first, ofStyle(rejected, style)];
  }

  makeDifferences() {
    const {data} = this, answers = data.answersOf[this.number];
    this.difference ??= this.usualDifference(answers);
    const options = answers.map(answer => [String(answer), data.fullName(answer)]);
    const selects = ["From", "to"].map((label, side) => {
      const {field, select} = makeSelect(label, options, value => { this.difference[side] = Number(value); this.showView("Differences"); });
      select.value = String(this.difference[side]);
      return field;
    });
    const [first, second] = this.difference.map(answer => this.texts.answers[answers.indexOf(answer)].raw);
    const marks = compareTexts(first, second).map(([kind, text]) => (kind === "=" ? text : make(kind === "-" ? "del" : "ins", {}, text)));
    const legend = make("span", {class: "rmlab-quiet rmlab-diff"}, make("del", {}, "only in the first"), " ", make("ins", {}, "only in the second"));
    const text = {class: "rmlab-text rmlab-diff", dir: "auto", tabindex: "0", role: "region", "aria-label": "differences"};
    return [make("div", {class: "rmlab-bar rmlab-plain"}, ...selects, legend), make("div", text, ...marks)];
  }

  makeStyles() {
    const {data} = this, answers = data.answersOf[this.number];
    const rows = answers.map((answer, k) => make("tr", {}, make("th", {scope: "row"}, data.fullName(answer)),
      ...this.texts.answers[k].counts.map(value => make("td", {}, count(value)))));
    return makeTable("Style features of each answer", ["", ...data.features.map(name => name.replaceAll("_", " "))], rows);
  }

  makeTokens() {
    const {data} = this, answers = data.answersOf[this.number], place = make("div", {"aria-live": "polite"});
    const options = answers.map(answer => [String(answer), data.fullName(answer)]);
    const {field} = makeSelect("Answer", options, value => show(Number(value)));
    const show = async answer => {
      place.replaceChildren(make("p", {class: "rmlab-quiet"}, "scoring …"));
      try {
        place.replaceChildren(...this.paintTokens(await this.source.tokens(answer)));
      } catch (error) {
        place.replaceChildren(make("div", {class: "rmlab-problem", role: "alert"}, String(error.message ?? error)));
      }
    };
    show(answers[0]);
    return [make("div", {class: "rmlab-bar rmlab-plain"}, field), place];
  }

  paintTokens({text, reward, change, method}) {
    const moves = change.map(value => value ?? NaN), largest = Math.max(0, ...moves.map(Math.abs).filter(Number.isFinite));
    const pieces = text.map((piece, k) => {
      const move = Number.isNaN(moves[k]) ? "" : `, change ${moves[k].toFixed(3)}`;
      return tint(make("span", {title: `reward ${reward[k].toFixed(3)}${move}`}, piece), moves[k] / (largest || 1));
    });
    const how = method[0] === "token" ? "change after each token" : "change when a sentence is left out";
    return [make("p", {class: "rmlab-quiet"}, `Score ${reward.at(-1).toFixed(3)}. Colour: ${how}; the strongest is ${largest.toFixed(3)}.`),
      make("div", {class: "rmlab-text rmlab-tokens", tabindex: "0", role: "region", "aria-label": "tokens"}, ...pieces)];
  }

  showAllModels() {
    if (!this.allModels.open || this.number < 0) return;
    const {data} = this, answers = data.answersOf[this.number];
    const rows = data.models.map((name, model) => make("tr", {}, make("th", {scope: "row"}, name),
      ...formatNumbers(answers.map(answer => data.score[model * data.nAnswers + answer])).map(text => make("td", {}, text))));
    const head = ["", ...answers.map(answer => data.fullName(answer))];
    this.allModels.lastElementChild.replaceChildren(makeTable("Scores of all models", head, rows));
  }

  // ------------------------------------------------------------------------------------------------- Links, CSV and notes
  buildExports() {
    const button = (text, onclick) => make("button", {type: "button", onclick}, text);
    const copied = (text, what) => copyText(text).then(() => { this.told.textContent = `${what} copied`; });
    const name = this.data.benchmark.replace(/[^\w.-]+/g, "-");
    this.link = make("code", {class: "rmlab-code", tabindex: "0", role: "region", "aria-label": this.source.linkName});
    this.told = make("span", {class: "rmlab-quiet", role: "status"});
    this.saveNotes = button("Download annotations", () => download(`${name}-annotations.csv`, toCsv(this.annotationRows())));
    const {linkName} = this.source;
    return make("div", {class: "rmlab-exports"}, make("div", {class: "rmlab-buttons"},
      button(`Copy ${linkName}`, () => copied(this.source.link(this.selection), linkName)),
      button("Copy CSV", () => copied(toCsv(this.listRows()), plural(this.matches.length, "prompt"))),
      button("Download CSV", () => download(`${name}-prompts.csv`, toCsv(this.listRows()))), this.saveNotes, this.told), this.link);
  }

  showLink() {
    this.link.textContent = this.source.link(this.selection);
    this.saveNotes.hidden = !Object.keys(this.annotations).length;
  }

  // The list as a table: the columns of `View.frame`, and the notes.
  listRows() {
    const compared = this.selection.models[1] !== undefined, {data} = this;
    const head = ["benchmark", "domain", "id", "subset", "prompt", "n_pairs", "lost", "margin"];
    const rows = this.matches.map(match => [...data.key(match.number), data.subsets[data.subset[match.number]],
      data.heads[match.number] ?? "", match.n, match.lost, match.margin,
      ...(compared ? [match.other, match.flips] : []), this.annotations[match.number] ?? ""]);
    return [[...head, ...(compared ? ["other", "flips"] : []), "annotation"], ...rows];
  }

  annotationRows() {
    const rows = Object.entries(this.annotations).map(([number, note]) => [...this.data.key(Number(number)), note]);
    return [["benchmark", "domain", "id", "annotation"], ...rows];
  }

  annotate() {
    if (this.note.value) this.annotations[this.number] = this.note.value;
    else delete this.annotations[this.number];
    this.saveNotes.hidden = !Object.keys(this.annotations).length;
    this.source.saveAnnotations({...this.annotations});
  }

  // ------------------------------------------------------------------------------------------------------------ Keyboard
  pressKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox]), select, textarea")) return;
    const by = {n: 1, p: -1}[event.key];
    if (by) this.step(by);
    else if (event.target === this.list) this.pressInList(event.key);
    else if (event.target.dataset.place) this.pressInMatrix(event);
    else return;
    if (by || /^(Arrow|Home|End|Page)/.test(event.key)) event.preventDefault();
  }

  pressInList(key) {
    const page = Math.max(1, Math.floor(this.list.clientHeight / ROW_HEIGHT) - 1), last = this.matches.length - 1;
    const step = {ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -last - 1, End: last + 1}[key];
    const place = Math.min(last, Math.max(0, this.place + (step ?? 0)));
    if (step !== undefined && place !== this.place) this.open(this.matches[place].number);
  }

  pressInMatrix(event) {
    const [matrix, place] = event.target.dataset.place.split("-").map(Number);
    const step = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: 3, ArrowUp: -3, Home: -place, End: 8 - place}[event.key];
    if (step !== undefined) this.matrices.querySelector(`[data-place="${matrix}-${place + step}"]`)?.focus();
  }
}

// ------------------------------------------------------------------------------------------------- Entry from Jupyter
function kernelSource(model) {
  const waiting = new Map();
  const ask = (kind, about) => new Promise((resolve, reject) => {
    const id = Math.random().toString(36).slice(2);
    waiting.set(id, {resolve, reject});
    model.send({kind, id, about});
  });
  const hear = message => {
    const question = waiting.get(message.id);
    waiting.delete(message.id);
    if (message.error) question?.reject(new Error(message.error));
    else question?.resolve(message.answer);
  };
  model.on("msg:custom", hear);
  const set = (name, value) => { model.set(name, value); model.save_changes(); };
  const source = {
    selection: model.get("selection"),
    annotations: model.get("annotations"),
    linkName: "code for this view",
    link: selection => `rmlab.explore(scores, responses).select(${pythonArguments(selection)})`,
    texts: prompt => ask("texts", prompt),
    search: text => ask("search", text),
    tokens: answer => ask("tokens", answer),
    save: selection => { source.last = JSON.stringify(selection); set("selection", {...selection}); },
    saveAnnotations: annotations => set("annotations", annotations),
    close: () => model.off("msg:custom", hear),
  };
  return source;
}

function pythonArguments(selection) {
  const literal = value => (value === null ? "None" : typeof value === "string" ? pythonString(value) : Array.isArray(value)
    ? `(${value.map(literal).join(", ")}${value.length === 1 ? "," : ""})` : String(value));
  return Object.entries(selection).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(DEFAULTS[name]))
    .map(([name, value]) => `${name}=${literal(value)}`).join(", ");
}

// Lone halves of surrogate pairs and control characters as escapes, which Python reads alike.
const pythonString = text => `'${text.replace(/[\\']/g, "\\$&").replace(
  /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]/gu,
  unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`)}'`;

function render({model, el}) {
  const source = kernelSource(model);
  const root = make("div");
  el.append(root);
  const explorer = new Explorer(root, model.get("data"), source);
  const follow = () => {
    const selection = model.get("selection");
    if (JSON.stringify(selection) !== source.last) explorer.select({...DEFAULTS, ...selection}, {save: false});
  };
  model.on("change:selection", follow);
  return () => { model.off("change:selection", follow); source.close(); };
}

export default {render};

// ---------------------------------------------------------------------------------------------- Entry from a page alone
// The selection as the part of an address behind "#", and back.
function toAddress(selection) {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(selection))
    if (JSON.stringify(value) !== JSON.stringify(DEFAULTS[name])) for (const part of [value].flat()) parts.append(name, part ?? "");
  return parts.toString();
}

function fromAddress(parts) {
  const selection = {};
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    const values = parts.getAll(name);
    if (!values.length) continue;
    if (name === "margin") selection.margin = values.map(value => (value === "" ? null : Number(value)));
    else selection[name] = Array.isArray(usual) || name === "cell" || name === "prompt" ? values : values[0];
  }
  return selection;
}

// `payload` stands in the page as JSON; `lines`: a line of JSON for each prompt whose texts are in the page, else "".
export function mountExplorer(root, payload, lines, parts) {
  const store = `rmlab-annotations ${document.title} ${payload.benchmark}`;
  const texts = number => JSON.parse(lines[number] || "{}");
  const searchable = number => {
    const {prompt, answers} = texts(number);
    return [payload.prompts.id[number], prompt?.raw ?? "", ...(answers ?? []).map(answer => answer.raw)].join("\n").toLowerCase();
  };
  let searched = null, annotations = {};
  try { annotations = JSON.parse(localStorage.getItem(store) ?? "{}"); } catch { /* a browser without storage */ }
  const source = {
    selection: fromAddress(parts),
    annotations,
    linkName: "link",
    link: selection => `${location.href.split("#")[0]}#${new URLSearchParams({b: payload.benchmark})}&${toAddress(selection)}`,
    texts: async number => texts(number),
    search: async text => {
      searched ??= payload.prompts.id.map((_, number) => searchable(number));
      const words = text.toLowerCase();
      return searched.flatMap((spoken, number) => (spoken.includes(words) ? [number] : []));
    },
    save: selection => history.replaceState(null, "", source.link(selection)),
    saveAnnotations: notes => { try { localStorage.setItem(store, JSON.stringify(notes)); } catch { /* they can be downloaded */ } },
  };
  return new Explorer(root, {...payload, hasTokens: false, hasTexts: lines.some(line => line)}, source);
}
