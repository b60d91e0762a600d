// The page of runs: which are shown, their learning curves while they train, and the results of studies.

import { formatNumber } from "./axis.js";
import { Chart, html, MARKS, tableHead, tableRow } from "./chart.js";
import { Connection } from "./connection.js";
import { Study } from "./study.js";

const SESSION_ENDED = 1001;
const POLL = 2000;
const SOON = 50;
const LIST_EVERY = 3;
// A log that grew in the last minutes belongs to a run that is training, as far as can be seen.
const RECENT = 120;
const MAX_SHOWN = MARKS.length;
const MAX_METRICS = 24;
// Shown first, as far as a run has them; all others can be chosen.
const DEFAULTS = [
  "success", "validation", "solo_success/BossLevel", "loss", "accuracy", "agent_accuracy", "return", "entropy",
  "played_success", "frames_per_second",
];

const element = (id) => document.getElementById(id);
const isPercent = (name) => /(success|success_rate|accuracy|validation)$|^solo_success\//.test(name);

let runs = [];
let axes = ["row"];
let folder = "";
// The chosen runs: name → { style, answer }.
const chosen = new Map();
let metrics = null;
const charts = new Map();
let timer = null;
let polling = false;
let polls = 0;

const connection = new Connection("runs", (reason, code) => {
  clearTimeout(timer);
  // Sessions end after some hours, but training may take days. The address says what is shown.
  if (code === SESSION_ENDED) return location.reload();
  element("message").textContent = `${reason} Start it again and reload this page.`;
  element("message").hidden = false;
});
const study = new Study(connection);

// ------------------------------------------------------------ the list

const titleOf = (name) => (name === "." ? folder : name);

function ageOf(run) {
  if (!run.changed) return "no rows yet";
  const seconds = Math.max(0, Date.now() / 1000 - run.changed);
  const [count, unit] = seconds < 90 ? [seconds, "s"] : seconds < 5400 ? [seconds / 60, "min"]
    : seconds < 129600 ? [seconds / 3600, "h"] : [seconds / 86400, "days"];
  return `${seconds < RECENT ? "training; " : ""}last row ${Math.round(count)} ${unit} ago`;
}

function runItem(run) {
  const box = html("input", { type: "checkbox", value: run.name });
  box.checked = chosen.has(run.name);
  box.disabled = !box.checked && chosen.size >= MAX_SHOWN;
  box.addEventListener("change", () => (box.checked ? choose(run.name) : drop(run.name)));
  const style = chosen.get(run.name)?.style;
  const swatch = html("span", { class: `swatch style-${style}` }, style === undefined ? "" : MARKS[style]);
  const about = html("small", { class: "muted" }, [run.kind, run.options, ageOf(run)].filter(Boolean).join(", "));
  return html("li", {}, html("label", {}, box, swatch, html("span", {}, titleOf(run.name))), about);
}

function showRuns() {
  const words = element("filter").value.toLowerCase().split(/\s+/);
  const text = (run) => `${run.name} ${run.kind} ${run.options}`.toLowerCase();
  const found = runs.filter((run) => chosen.has(run.name) || words.every((word) => text(run).includes(word)));
  // The list is made anew, so the focus has to be put back.
  const focused = document.activeElement?.closest("#runs") ? document.activeElement.value : null;
  element("runs").replaceChildren(...found.map(runItem));
  if (focused !== null) element("runs").querySelector(`input[value="${CSS.escape(focused)}"]`)?.focus();
  const hidden = runs.length - found.length;
  element("more").textContent = !runs.length ? `There are no runs in ${folder} yet. For example: babyai train imitation --levels GoToLocal`
    : hidden ? `${hidden} more do not match the filter.` : "";
}

function choose(name) {
  if (chosen.has(name) || chosen.size >= MAX_SHOWN) return;
  const used = new Set([...chosen.values()].map((each) => each.style));
  chosen.set(name, { style: MARKS.findIndex((_, style) => !used.has(style)), answer: null });
  changed();
}

function drop(name) {
  chosen.delete(name);
  changed();
}

async function listRuns() {
  const answer = await connection.ask({ do: "runs" });
  if (answer.type !== "runs") return;
  ({ runs, axes, folder } = answer);
  element("folder").textContent = `Runs below ${folder}`;
  showRuns();
}

// ------------------------------------------------------------ the controls

const names = () => [...new Set([...chosen.values()].flatMap((each) => each.answer?.names ?? []))];
const shownMetrics = () => {
  const known = names().filter((name) => !axes.includes(name));
  return (metrics ?? DEFAULTS).filter((name) => known.includes(name)).slice(0, MAX_METRICS);
};
const asked = () => (metrics ?? DEFAULTS).slice(0, MAX_METRICS);

function showMetrics() {
  const shown = shownMetrics();
  const focused = document.activeElement?.closest("#metrics") ? document.activeElement.value : null;
  const known = names().filter((name) => !axes.includes(name));
  element("metrics").replaceChildren(...known.map((name) => {
    const box = html("input", { type: "checkbox", value: name });
    box.checked = shown.includes(name);
    box.disabled = !box.checked && shown.length >= MAX_METRICS;
    box.addEventListener("change", () => {
      metrics = box.checked ? [...shownMetrics(), name] : shownMetrics().filter((each) => each !== name);
      changed();
    });
    return html("li", {}, html("label", {}, box, html("span", {}, name)));
  }));
  if (focused !== null) element("metrics").querySelector(`input[value="${CSS.escape(focused)}"]`)?.focus();
}

function showAxes() {
  const known = axes.filter((name) => names().includes(name));
  const options = known.length ? known : ["row"];
  const current = element("axis").value;
  if ([...element("axis").options].map((each) => each.value).join() === options.join()) return;
  element("axis").replaceChildren(...options.map((name) => new Option(name, name)));
  element("axis").value = options.includes(current) ? current : options[0];
}

// Something else is to be shown: all curves are asked for again.
function changed() {
  for (const each of chosen.values()) each.key = null;
  remember();
  showRuns();
  show();
  poll();
}

function changeAxis() {
  remember();
  poll();
}

function remember() {
  const query = new URLSearchParams([...chosen.keys()].map((name) => ["run", name]));
  for (const name of metrics ?? []) query.append("metric", name);
  if (element("axis").value) query.set("x", element("axis").value);
  if (Number(element("smooth").value)) query.set("smooth", element("smooth").value);
  if (element("log").checked) query.set("log", "1");
  if (element("studies").open) query.set("studies", "1");
  history.replaceState(null, "", `?${query}`);
}

// What the address says; without runs in it, the newest ones.
function restore() {
  const query = new URLSearchParams(location.search);
  const known = new Set(runs.map((run) => run.name));
  const wanted = query.getAll("run").filter((name) => known.has(name));
  const first = wanted.length ? wanted : runs.slice(0, 3).map((run) => run.name);
  if (query.has("metric")) metrics = query.getAll("metric");
  if (query.has("x")) {
    element("axis").replaceChildren(new Option(query.get("x"), query.get("x")));
  }
  element("smooth").value = query.get("smooth") ?? 0;
  element("smooth-value").value = element("smooth").value;
  element("log").checked = query.has("log");
  element("studies").open = query.has("studies");
  first.slice(0, MAX_SHOWN).forEach((name, style) => chosen.set(name, { style, answer: null }));
}

// ------------------------------------------------------------ the curves

function curvesOf(metric) {
  const factor = isPercent(metric) ? 100 : 1;
  const scaled = (values) => (factor === 1 ? values : values?.map((value) => factor * value));
  return [...chosen].map(([name, { style, answer }]) => {
    // One that is over another axis is about to be replaced.
    const series = answer?.axis === element("axis").value ? answer.series[metric] : undefined;
    return {
      name: titleOf(name), style, x: series?.x ?? [], y: scaled(series?.y) ?? [], low: scaled(series?.low), high: scaled(series?.high),
    };
  });
}

function show() {
  showMetrics();
  const wanted = shownMetrics();
  for (const [name, chart] of charts) {
    if (!wanted.includes(name)) {
      chart.element.remove();
      charts.delete(name);
    }
  }
  for (const name of wanted) {
    if (!charts.has(name)) charts.set(name, new Chart(name, isPercent(name) ? "%" : ""));
    const chart = charts.get(name);
    if (!chart.element.isConnected) element("charts").append(chart.element);
    chart.update(curvesOf(name), {
      xLabel: element("axis").value, smooth: Number(element("smooth").value), log: element("log").checked && !isPercent(name),
    });
  }
  showLast(wanted);
  showStatus();
  document.body.dataset.ready = String(Number(document.body.dataset.ready ?? 0) + 1);
}

// The newest values of all shown runs.
function showLast(wanted) {
  if (!chosen.size) return element("last").replaceChildren();
  const rows = [...chosen].map(([name, { style, answer }]) => tableRow([
    `${MARKS[style]} ${titleOf(name)}`, answer ? formatNumber(answer.rows) : "–", ...wanted.map((metric) => lastOf(answer, metric)),
  ]));
  const head = tableHead(["run", "rows", ...wanted]);
  element("last").replaceChildren(html("caption", {}, "Newest values"), head, html("tbody", {}, ...rows));
}

function lastOf(answer, metric) {
  const value = answer?.series[metric]?.y.at(-1);
  return value === undefined ? "–" : isPercent(metric) ? `${formatNumber(100 * value)} %` : formatNumber(value);
}

function showStatus() {
  const parts = [];
  for (const [name, { answer, problem, read, behind }] of chosen) {
    if (problem) parts.push(problem);
    if (behind) parts.push(`reading ${titleOf(name)}: ${Math.floor((100 * read) / (read + behind))} %`);
    if (answer?.sampled > 1) parts.push(`${titleOf(name)}: one of ${answer.sampled} rows is shown, because the log is large`);
    if (answer?.damaged) parts.push(`${titleOf(name)}: ${answer.damaged} lines could not be read`);
  }
  const text = parts.join("; ");
  if (element("status").textContent !== text) element("status").textContent = text;
}

// ------------------------------------------------------------ live

// Asks for what is new in one run; returns whether to ask again soon.
async function updateRun(name, each) {
  const key = JSON.stringify([asked(), element("axis").value]);
  const since = each.key === key ? each.version : -1;
  const answer = await connection.ask({ do: "metrics", run: name, names: asked(), axis: element("axis").value || "row", since });
  if (answer.type === "busy") return true;
  each.problem = answer.type === "error" ? answer.message : "";
  if (answer.type === "metrics") Object.assign(each, { answer, key });
  if (answer.type === "metrics" || answer.type === "unchanged") {
    Object.assign(each, { version: answer.version, read: answer.read, behind: answer.behind });
  }
  each.isNew = answer.type !== "unchanged";
  return Boolean(answer.behind);
}

async function poll() {
  clearTimeout(timer);
  if (polling) {
    // The one under way may have asked for what is no longer shown.
    polling = "again";
    return;
  }
  polling = true;
  let soon = false;
  for (const [name, each] of [...chosen]) soon = (await updateRun(name, each)) || soon;
  const before = element("axis").value;
  showAxes();
  // The first answer says which axes there are; the curves over the one that is chosen then come with the next.
  const isAxisNew = element("axis").value !== before;
  if (!isAxisNew && [...chosen.values()].some((each) => each.isNew)) show();
  else showStatus();
  if (element("studies").open) soon = (await study.update()) || soon;
  polls += 1;
  if (polls % LIST_EVERY === 0) await listRuns();
  const again = polling === "again" || isAxisNew;
  polling = false;
  if (again) return poll();
  if (connection.isOpen && (soon || isLive())) timer = setTimeout(poll, soon ? SOON : POLL);
}

const isLive = () => element("live").getAttribute("aria-pressed") === "true" && !document.hidden;

function toggleLive() {
  const live = element("live").getAttribute("aria-pressed") !== "true";
  element("live").setAttribute("aria-pressed", String(live));
  element("live").querySelector("span").textContent = live ? "Live" : "Paused";
  if (live) poll();
}

async function begin() {
  element("filter").addEventListener("input", showRuns);
  element("live").addEventListener("click", toggleLive);
  element("axis").addEventListener("change", changeAxis);
  element("smooth").addEventListener("input", () => {
    element("smooth-value").value = element("smooth").value;
    remember();
    show();
  });
  element("log").addEventListener("change", () => { remember(); show(); });
  element("studies").addEventListener("toggle", () => { remember(); poll(); });
  document.addEventListener("visibilitychange", () => isLive() && poll());
  await connection.open();
  await listRuns();
  restore();
  changed();
}

begin();
