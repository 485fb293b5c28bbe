// The table of all rows: filtered, sorted, a page at a time, each row opens to its detail.

const PAGE = matchMedia("(max-width: 46rem)").matches ? 15 : 50;
const NUMBERS = { change: "change", limit: "limit", "seen from": "detectable", old: "old", new: "new", value: "new" };

class Table {
  constructor(data, root) {
    this.data = data;
    this.rows = data.shown.rows;
    this.root = root;
    this.table = root.querySelector("#table");
    this.columns = data.shown.columns;
    this.axis = forestAxis(this.rows, data.effect);
    this.order = null;
    this.start = 0;
    this.form = root.querySelector("form");
    this.text = this.rows.map((row) => row.cells.at(-1).toLowerCase());
    this.table.classList.toggle("alone", !data.shown.columns.includes("change"));
    this.filters();
    this.headings();
    this.pages();
    this.show();
  }

  filters() {
    const counts = d3.rollup(this.rows, (v) => v.length, (row) => row.verdict);
    const box = this.form.querySelector("fieldset");
    for (const verdict of this.data.shown.verdicts.filter((verdict) => counts.has(verdict))) {
      const check = make("input", { type: "checkbox", name: "verdict", value: verdict, checked: true });
      box.append(make("label", {}, check, ` ${verdict} (${counts.get(verdict)})`));
    }
    for (const metric of new Set(this.rows.map((row) => row.metric))) {
      this.form.elements.metric.append(make("option", { value: metric }, metric));
    }
    this.form.hidden = false;
    this.form.addEventListener("input", () => this.show(0));
    this.form.addEventListener("submit", (event) => event.preventDefault());
  }

  headings() {
    const cells = [...this.table.tHead.rows[0].cells];
    cells[1].replaceChildren(forestTicks(this.axis));
    const names = [this.columns.at(-1), null, ...this.columns.slice(0, -1)];
    names.forEach((name, k) => {
      if (name === null) return;
      const button = make("button", { type: "button" }, name);
      button.addEventListener("click", () => this.sort(name, cells[k]));
      cells[k].replaceChildren(button);
    });
  }

  pages() {
    this.root.querySelector("#pages").hidden = this.rows.length <= PAGE;
    this.root.querySelector("#earlier").addEventListener("click", () => this.show(this.start - PAGE));
    this.root.querySelector("#later").addEventListener("click", () => this.show(this.start + PAGE));
  }

  // First the other way round for numbers, largest first; the verdicts' own order is worst first.
  sort(name, cell) {
    const numeric = name in NUMBERS;
    const before = cell.getAttribute("aria-sort");
    const descending = before ? before === "ascending" : numeric;
    for (const other of this.table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    cell.setAttribute("aria-sort", descending ? "descending" : "ascending");
    this.order = { value: this.key(name), descending };
    this.show(0);
  }

  key(name) {
    if (name in NUMBERS) return (row) => row[NUMBERS[name]];
    if (name === this.columns[0]) return (row) => this.data.shown.verdicts.indexOf(row.verdict);
    return (row) => row.cells[this.columns.indexOf(name)];
  }

  wanted() {
    const words = this.form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const metric = this.form.elements.metric.value;
    const verdicts = new Set([...this.form.querySelectorAll("[name=verdict]:checked")].map((box) => box.value));
    const found = this.rows.filter((row, k) =>
      verdicts.has(row.verdict) && (!metric || row.metric === metric) && words.every((word) => this.text[k].includes(word)));
    if (!this.order) return found;
    const { value, descending } = this.order;
    return d3.sort(found, (a, b) => {
      // what has no value comes last either way
      const missing = (value(a) == null) - (value(b) == null);
      return missing || (descending ? d3.descending : d3.ascending)(value(a), value(b));
    });
  }

  show(start = this.start) {
    const found = this.wanted();
    this.start = Math.max(0, start < found.length ? start : 0);
    const shown = found.slice(this.start, this.start + PAGE);
    this.table.tBodies[0].replaceChildren(...shown.map((row) => this.row(row)));
    const last = this.start + shown.length;
    this.root.querySelector("#count").textContent = found.length
      ? `Rows ${this.start + 1} to ${last} of ${found.length}` : "No row is so.";
    this.root.querySelector("#earlier").disabled = this.start === 0;
    this.root.querySelector("#later").disabled = last >= found.length;
  }

  row(row) {
    const button = make("button", { type: "button", "aria-expanded": "false" }, row.cells.at(-1));
    const forestCell = make("td", { className: "forest" }, forest(row, this.axis, this.data.effect));
    const cells = row.cells.slice(0, -1).map((text, k) => make("td", { "data-label": this.columns[k] }, text));
    const line = make("tr", { className: row.verdict }, make("th", { scope: "row" }, button), forestCell, ...cells);
    button.addEventListener("click", () => this.toggle(button, line, row));
    return line;
  }

  toggle(button, line, row) {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    if (open) return line.nextElementSibling.remove();
    const cell = make("td", { colSpan: line.cells.length });
    line.after(make("tr", { className: "detail" }, cell));
    cell.append(detail(this.data, row, this.table.clientWidth - 24));
  }
}
