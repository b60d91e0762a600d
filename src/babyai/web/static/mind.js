// What the chosen agent thinks: probabilities of its actions, its value estimate over time, its attention to words, its map.

import { drawWorld } from "./tiles.js";

function row(name, prob) {
  const line = document.createElement("tr");
  const label = document.createElement("th");
  label.scope = "row";
  label.textContent = name;
  const meter = document.createElement("meter");
  meter.value = prob;
  meter.setAttribute("aria-hidden", "true");
  const bar = document.createElement("td");
  bar.append(meter);
  const percent = document.createElement("td");
  percent.textContent = `${(100 * prob).toFixed(1)} %`;
  line.append(label, bar, percent);
  return line;
}

function curve(values) {
  const low = Math.min(0, ...values);
  const span = Math.max(1, ...values) - low;
  const points = values.map((value, k) => {
    const x = (300 * k) / Math.max(1, values.length - 1);
    return `${x.toFixed(1)},${(58 - (56 * (value - low)) / span).toFixed(1)}`;
  });
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", points.join(" "));
  return line;
}

// Thicker underlines for more attention; the exact weight is the word's tooltip.
function word([text, weight]) {
  const span = document.createElement("span");
  span.textContent = text;
  span.title = `${(100 * weight).toFixed(1)} %`;
  span.style.borderBottomWidth = `${Math.round(12 * weight)}px`;
  return span;
}

// What the agent has not seen yet stays black.
function showMap(canvas, { grid, agent }) {
  const visible = grid.map((row) => "1".repeat(row.length / 2));
  drawWorld(canvas, { grid, agent, visible }, { letters: true, hide: false });
}

// Fills the parts of a section, which are named by their attribute `data-part`.
export function showMind(section, mind) {
  section.hidden = !mind;
  if (!mind) return;
  const part = (name) => section.querySelector(`[data-part=${name}]`);
  part("probs").replaceChildren(...Object.entries(mind.probs).map(([name, prob]) => row(name, prob)));
  part("value").textContent = mind.values.at(-1).toFixed(3);
  part("values").replaceChildren(curve(mind.values));
  part("attention-part").hidden = mind.attention.length === 0;
  part("attention").replaceChildren(...mind.attention.flatMap((each) => [word(each), " "]));
  part("map-part").hidden = !mind.map;
  if (mind.map) showMap(part("map"), mind.map);
}
