// The results of studies: the paper's tables with our figures, and the learning curves of all measured runs.

import { Chart, html, tableHead, tableRow } from "./chart.js";

const element = (id) => document.getElementById(id);
const SHADES = { better: " ▲", worse: " ▼" };

// Notes are Markdown; links and emphasis become plain text.
const plain = (text) => text.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").replace(/[*`]/g, "");

function cellContent(cell) {
  const paper = html("span", { class: "muted" }, `paper ${cell.paper}${SHADES[cell.paper_shade] ?? ""}`);
  if (!cell.ours) return html("div", {}, paper);
  const figure = `ours ${cell.ours}${SHADES[cell.shade] ?? ""}${cell.agrees === false ? " ≠" : ""}`;
  return html("div", {}, paper, html("br"), html(cell.solved ? "strong" : "span", {}, figure));
}

function gridElement(grid, onlyMeasured) {
  const rows = grid.rows.filter((row) => !onlyMeasured || row.cells.some((cell) => cell.ours));
  const parts = [
    html("h3", {}, grid.title),
    html("p", {}, `In ${grid.unit}; ${grid.measured} of ${grid.total} cells measured.`),
  ];
  if (rows.length) {
    const body = rows.map((row) => tableRow([row.name, ...row.cells.map(cellContent)]));
    const table = html("table", { "aria-label": grid.title }, tableHead(["", ...grid.columns]), html("tbody", {}, ...body));
    parts.push(html("div", { class: "scroll" }, table));
  }
  if (grid.details.length) parts.push(detailsElement(grid));
  return html("section", {}, ...parts);
}

function detailsElement(grid) {
  const body = grid.details.map((line) => tableRow(line.map(plain)));
  const table = html("table", { "aria-label": `${grid.title}: measured cells` }, tableHead(grid.detail_headings), html("tbody", {}, ...body));
  const notes = grid.notes.map((note) => html("p", { class: "muted" }, plain(note)));
  return html("details", {}, html("summary", {}, "Measured cells, and how"), html("div", { class: "scroll" }, table), ...notes);
}

export class Study {
  constructor(connection) {
    this.connection = connection;
    this.results = null;
    element("measured").addEventListener("change", () => this.showGrids());
  }

  // Asks for results that are newer; returns whether to ask again soon.
  async update() {
    const answer = await this.connection.ask({ do: "study", since: this.results?.version ?? "" });
    if (answer.type === "busy") return true;
    if (answer.type === "error") element("study-status").textContent = answer.message;
    if (answer.type === "study") {
      this.results = answer;
      element("study-status").textContent = answer.problems.join("\n");
      this.showGrids();
      this.showCharts();
    }
    return false;
  }

  showGrids() {
    const onlyMeasured = element("measured").checked;
    element("grids").replaceChildren(...(this.results?.grids ?? []).map((grid) => gridElement(grid, onlyMeasured)));
  }

  showCharts() {
    const charts = this.results.charts.map((each) => [new Chart(each.title, "%"), each]);
    element("study-charts").replaceChildren(...charts.map(([chart]) => chart.element));
    for (const [chart, { curves, x_label: xLabel }] of charts) chart.update(curves, { xLabel, smooth: 0, log: false });
  }
}
