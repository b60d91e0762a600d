// A chart of several curves as SVG: tooltips by mouse and by keyboard, and the same as a table.
// Curves differ by color, by dashes and by the shape of their marks, so that no one of these is needed.

import { Axis, formatNumber } from "./axis.js";

export const MARKS = ["●", "■", "▲", "◆", "▼", "✚", "○", "□"];
const DASHES = ["none", "7 3", "2 3", "9 3 2 3", "14 4", "4 2", "1 4", "9 3 2 3 2 3"];
const HEIGHT = 240;
const MARGIN = { left: 52, right: 14, top: 10, bottom: 34 };
const TABLE_ROWS = 12;

function svg(name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

export function html(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// A row of a table; the first cell is its heading.
export const tableRow = ([first, ...rest]) =>
  html("tr", {}, html("th", { scope: "row" }, first), ...rest.map((cell) => html("td", {}, cell)));

export const tableHead = (cells) =>
  html("thead", {}, html("tr", {}, ...cells.map((cell) => html("th", { scope: "col" }, cell))));

// Exponential moving average, corrected for its start.
export function smoothed(values, weight) {
  if (!weight) return values;
  let sum = 0;
  let norm = 0;
  return values.map((value) => {
    sum = weight * sum + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return sum / norm;
  });
}

// The position of the point that is closest to x; the xs increase.
export function nearest(xs, x) {
  let low = 0;
  let high = xs.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
}

// Whether a curve has values on both sides of x.
const covers = (curve, x) => curve.x.length > 0 && curve.x[0] <= x && x <= curve.x.at(-1);

const legendItem = (text, style) =>
  html("span", { class: `style-${style % MARKS.length}` }, html("span", { class: "swatch" }, MARKS[style % MARKS.length]), ` ${text}`);

export class Chart {
  constructor(title, unit = "") {
    this.title = title;
    this.unit = unit;
    this.curves = [];
    this.position = null;
    this.drawing = svg("svg", { "aria-hidden": "true", height: HEIGHT });
    this.tip = html("div", { class: "tip", hidden: "" });
    this.plot = html("div", {
      class: "plot", tabindex: "0", role: "slider", "aria-label": `${title}: position in the chart`, "aria-valuemin": "0",
    }, this.drawing, this.tip);
    this.table = html("table", { "aria-label": title });
    this.details = html("details", {}, html("summary", {}, "Table"), html("div", { class: "scroll" }, this.table));
    this.legend = html("div", { class: "legend" });
    this.element = html("figure", { class: "chart panel" }, html("figcaption", {}, title), this.legend, this.plot, this.details);
    this.plot.addEventListener("pointermove", (event) => this.pointAt(event));
    this.plot.addEventListener("pointerleave", () => this.select(null));
    this.plot.addEventListener("blur", () => this.select(null));
    this.plot.addEventListener("focus", () => this.position ?? this.select(this.allX.length - 1));
    this.plot.addEventListener("keydown", (event) => this.onKey(event));
    this.details.addEventListener("toggle", () => this.fillTable());
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  // Curves are { name, style, x, y, low?, high?, group? }; options { xLabel, smooth, log }. Groups make a legend.
  update(curves, options) {
    this.options = options;
    this.curves = curves.map((curve) => {
      const keep = curve.y.map((value) => !options.log || value > 0);
      const pick = (values) => values?.filter((_, k) => keep[k]);
      const y = pick(curve.y);
      return {
        ...curve, x: pick(curve.x), y, low: pick(curve.low), high: pick(curve.high), line: smoothed(y, options.smooth),
      };
    });
    this.allX = [...new Set(this.curves.flatMap((curve) => curve.x))].sort((a, b) => a - b);
    this.plot.setAttribute("aria-valuemax", String(Math.max(0, this.allX.length - 1)));
    const groups = new Map(curves.filter((curve) => curve.group).map((curve) => [curve.group, curve.style]));
    this.legend.replaceChildren(...[...groups].map(([group, style]) => legendItem(group, style)));
    this.draw();
    this.fillTable();
  }

  // ------------------------------------------------------------ drawing

  draw() {
    const width = this.plot.clientWidth;
    if (!width || !this.options) return;
    this.drawing.setAttribute("width", width);
    this.drawing.replaceChildren();
    const values = this.curves.flatMap((curve) => curve.y);
    if (!values.length) {
      this.drawing.append(svg("text", { x: width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "no values yet"));
      return;
    }
    this.makeAxes(width, values);
    this.drawAxes(width);
    for (const curve of this.curves) this.drawCurve(curve);
    this.cursor = svg("line", { class: "cursor", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, visibility: "hidden" });
    this.drawing.append(this.cursor);
    if (this.position !== null) this.select(Math.min(this.position, this.allX.length - 1));
  }

  makeAxes(width, values) {
    const isPercent = this.unit === "%" && !this.options.log;
    const low = values.reduce((a, b) => Math.min(a, b));
    const high = values.reduce((a, b) => Math.max(a, b));
    const [from, to] = [HEIGHT - MARGIN.bottom, MARGIN.top];
    this.yAxis = new Axis(isPercent ? 0 : low, isPercent ? 100 : high, from, to, { log: this.options.log, count: 5 });
    const ends = [this.allX[0], this.allX.at(-1)];
    const count = Math.max(2, Math.floor(width / 80));
    this.xAxis = new Axis(Math.min(0, ends[0]), ends[1], MARGIN.left, width - MARGIN.right, { count });
  }

  drawAxes(width) {
    for (const tick of this.yAxis.ticks) {
      const y = this.yAxis.pixel(tick);
      this.drawing.append(svg("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y }));
      const label = `${formatNumber(tick)}${this.unit && ` ${this.unit}`}`;
      this.drawing.append(svg("text", { x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" }, label));
    }
    for (const tick of this.xAxis.ticks) {
      const x = this.xAxis.pixel(tick);
      const bottom = HEIGHT - MARGIN.bottom;
      this.drawing.append(svg("line", { class: "grid", x1: x, x2: x, y1: bottom, y2: bottom + 5 }));
      this.drawing.append(svg("text", { x, y: bottom + 17, "text-anchor": "middle" }, formatNumber(tick)));
    }
    const label = { x: width - MARGIN.right, y: HEIGHT - 3, "text-anchor": "end", class: "axis-label" };
    this.drawing.append(svg("text", label, this.options.xLabel));
  }

  points(xs, ys) {
    return xs.map((x, k) => `${this.xAxis.pixel(x).toFixed(1)},${this.yAxis.pixel(ys[k]).toFixed(1)}`);
  }

  drawCurve(curve) {
    if (!curve.x.length) return;
    const group = svg("g", { class: `curve style-${curve.style % MARKS.length}` });
    if (curve.low && !this.options.log) {
      const clamp = (values) => values.map((value) => Math.min(Math.max(value, this.yAxis.low), this.yAxis.high));
      const outline = [...this.points(curve.x, clamp(curve.high)), ...this.points(curve.x, clamp(curve.low)).reverse()];
      group.append(svg("polygon", { class: "band", points: outline.join(" ") }));
    }
    if (this.options.smooth) group.append(svg("polyline", { class: "raw", points: this.points(curve.x, curve.y).join(" ") }));
    const line = this.points(curve.x, curve.line);
    const dashes = DASHES[curve.style % DASHES.length];
    group.append(svg("polyline", { class: "line", points: line.join(" "), "stroke-dasharray": dashes }));
    group.append(svg("title", {}, curve.name));
    this.drawMarks(group, curve, line);
    this.drawing.append(group);
  }

  // A few marks, at other places for each style, and one at the end.
  drawMarks(group, curve, line) {
    const count = 5;
    const offset = (curve.style % MARKS.length) / MARKS.length;
    const places = Array.from({ length: count }, (_, k) => Math.floor((line.length * (k + offset)) / count));
    for (const place of new Set([...places, line.length - 1])) {
      const [x, y] = line[place].split(",");
      group.append(svg("text", { class: "mark", x, y, dy: "0.35em", "text-anchor": "middle" }, MARKS[curve.style % MARKS.length]));
    }
  }

  // ------------------------------------------------------------ tooltip

  pointAt(event) {
    if (!this.allX?.length || !this.xAxis) return;
    const x = this.xAxis.value(event.clientX - this.plot.getBoundingClientRect().left);
    this.select(nearest(this.allX, x));
  }

  onKey(event) {
    const last = this.allX.length - 1;
    const page = Math.max(1, Math.round(last / 10));
    const here = this.position ?? last;
    const places = {
      ArrowLeft: here - 1, ArrowRight: here + 1, ArrowDown: here - 1, ArrowUp: here + 1,
      PageDown: here - page, PageUp: here + page, Home: 0, End: last, Escape: null,
    };
    if (!(event.key in places)) return;
    event.preventDefault();
    const place = places[event.key];
    this.select(place === null ? null : Math.min(Math.max(place, 0), last));
  }

  // Shows the values at one of the xs; null hides them.
  select(position) {
    this.position = this.allX?.length ? position : null;
    this.tip.hidden = this.position === null;
    this.cursor?.setAttribute("visibility", this.position === null ? "hidden" : "visible");
    if (this.position === null) return;
    const x = this.allX[this.position];
    const pixel = this.xAxis.pixel(x);
    this.cursor.setAttribute("x1", pixel);
    this.cursor.setAttribute("x2", pixel);
    const heading = `${formatNumber(x)} ${this.options.xLabel}`;
    const values = this.curves.filter((curve) => covers(curve, x)).map((curve) => [curve, this.valueAt(curve, x)]);
    const lines = values.map(([curve, value]) => html("div", {}, legendItem(`${value} ${curve.name}`, curve.style)));
    this.tip.replaceChildren(html("strong", {}, heading), ...lines);
    const isRight = pixel > this.plot.clientWidth / 2;
    this.tip.style.left = isRight ? "auto" : `${pixel + 10}px`;
    this.tip.style.right = isRight ? `${this.plot.clientWidth - pixel + 10}px` : "auto";
    this.plot.setAttribute("aria-valuenow", String(this.position));
    const spoken = values.map(([curve, value]) => `${curve.name} ${value}`).join(", ");
    this.plot.setAttribute("aria-valuetext", `${heading}: ${spoken}`);
  }

  valueAt(curve, x) {
    if (!covers(curve, x)) return "–";
    return `${formatNumber(curve.line[nearest(curve.x, x)])}${this.unit && ` ${this.unit}`}`;
  }

  // ------------------------------------------------------------ table

  // The curves at evenly spaced places; made only while it is open.
  fillTable() {
    if (!this.details.open) return;
    const shown = this.curves.filter((curve) => curve.x.length);
    const last = this.allX.length - 1;
    const count = Math.min(TABLE_ROWS, last + 1);
    const places = Array.from({ length: count }, (_, k) => Math.round((last * k) / Math.max(1, count - 1)));
    const rows = places.map((place) => this.allX[place]).map((x) =>
      tableRow([formatNumber(x), ...shown.map((curve) => this.valueAt(curve, x))]));
    const head = tableHead([this.options.xLabel, ...shown.map((curve) => curve.name)]);
    this.table.replaceChildren(head, html("tbody", {}, ...rows));
  }
}
