// The page on which two players take steps at the same time, each in its own copy of the same world.

import { ACTIONS, keyOf } from "./keyboard.js";
import { fillLevels, showTask } from "./levels.js";
import { showMind } from "./mind.js";
import { askAndShow, connect, countDrawing, element, listItem, say } from "./page.js";
import { Playback } from "./playback.js";
import { drawWorld } from "./tiles.js";

const SIGNS = { success: "✓", failure: "✗", timeout: "✗", playing: "…" };
let pair = null;

const playback = new Playback({ button: element("playing"), speed: element("speed"), shown: element("speed-value") });
const connection = connect("compare", playback);

// ------------------------------------------------------------ one side

class Side {
  constructor(section) {
    section.append(element("side").content.cloneNode(true));
    this.label = section.getAttribute("aria-label");
    this.part = (name) => section.querySelector(`[data-part=${name}]`);
    this.who = this.part("who");
    this.who.setAttribute("aria-label", `Who plays on the ${this.label.toLowerCase()}`);
    this.who.addEventListener("change", restart);
    new ResizeObserver(() => this.draw()).observe(section);
  }

  get name() {
    return this.who.selectedOptions[0]?.textContent ?? this.who.value;
  }

  draw() {
    if (!this.state) return;
    drawWorld(this.part("grid"), this.state, { letters: element("letters").checked, hide: element("hidden").checked });
  }

  show(state) {
    this.state = state;
    this.draw();
    this.part("steps").textContent = `${state.step} of ${state.max_steps}`;
    this.part("action").textContent = state.action ?? "none";
    this.part("carrying").textContent = state.carried;
    const verdict = this.part("verdict");
    verdict.hidden = !(state.verdict || state.problem);
    verdict.dataset.outcome = state.problem ? "failure" : state.outcome;
    verdict.textContent = state.problem ? `✗ no solution: ${state.problem}` : `${SIGNS[state.outcome]} ${state.verdict}`;
    this.part("grid").setAttribute("aria-label", `${this.label}: the world of ${this.name}. ${state.description.join(". ")}`);
    this.part("description").replaceChildren(...state.description.map(listItem));
    this.part("plan-part").hidden = state.plan.length === 0;
    this.part("plan").replaceChildren(...state.plan.map(listItem));
    showMind(this.part("mind"), state.mind);
  }

  // How it ended, in words.
  ending() {
    const { outcome, step, problem } = this.state;
    if (problem) return `${this.name} found no solution`;
    return { success: `${this.name} succeeded after ${step} steps`, failure: `${this.name} failed after ${step} steps`,
      timeout: `${this.name} ran out of steps` }[outcome];
  }
}

const sides = [...document.querySelectorAll(".side")].map((section) => new Side(section));

// ------------------------------------------------------------ both

function show(next) {
  pair = next;
  pair.sides.forEach((state, number) => sides[number].show(state));
  element("mission").textContent = pair.sides[0].mission;
  element("turn").hidden = !pair.person;
  element("hint").textContent = pair.person
    ? "Each of your actions is one step for both." : "Both take a step at the same time.";
  element("hint").hidden = pair.over;
  element("playing").disabled = element("step").disabled = pair.person || pair.over;
  element("summary").textContent = pair.over ? `${sides.map((side) => side.ending()).join("; ")}.` : "";
  countDrawing();
}

const ask = (message) => askAndShow(connection, playback, message, "pair", show);

async function start(level, seed, own = null) {
  playback.stop();
  const message = { do: "start", level, seed, players: sides.map((side) => side.who.value) };
  if (own) message.mission = own;
  if (!(await ask(message))) {
    // The players are those of the episode that goes on.
    pair?.sides.forEach((state, number) => { sides[number].who.value = state.player; });
    return;
  }
  element("level").value = pair.sides[0].level;
  element("seed").value = pair.sides[0].seed;
  showTask(element("level"), element("task"));
  remember();
}

// A link with this address shows the same mission and the same players.
function remember() {
  const [first] = pair.sides;
  const query = new URLSearchParams({ level: first.level, seed: first.seed });
  if (first.own_mission) query.set("mission", first.mission);
  element("play").href = `./?${query}`;
  query.set("left", sides[0].who.value);
  query.set("right", sides[1].who.value);
  history.replaceState(null, "", `?${query}`);
  document.title = `BabyAI: ${first.mission}`;
}

const ownMission = () => (pair?.sides[0].own_mission ? pair.sides[0].mission : null);
const nextMission = () => start(element("level").value, pair.sides[0].seed + 1);

function restart() {
  const level = element("level").value;
  const seed = Number(element("seed").value);
  const same = pair && level === pair.sides[0].level && seed === pair.sides[0].seed;
  start(level, seed, same ? ownMission() : null);
}

function step() {
  playback.stop();
  if (pair && !pair.person && !pair.over) ask({ do: "step" });
}

function play() {
  if (playback.playing) return playback.stop();
  if (!pair || pair.person || pair.over) return;
  playback.start(async () => (await ask({ do: "step" })) && !pair.over);
}

function act(action) {
  if (pair?.person) ask({ do: "step", action });
}

// ------------------------------------------------------------ keyboard, buttons, start

function onKey(event) {
  const key = keyOf(event);
  const commands = { n: nextMission, r: restart, e: play, s: step };
  if (key in ACTIONS && pair?.person) act(ACTIONS[key]);
  else if (key in commands) commands[key]();
  else return;
  event.preventDefault();
}

async function listAgents() {
  const answer = await connection.ask({ do: "agents" });
  for (const side of sides) {
    for (const name of answer.names ?? []) side.who.append(new Option(name, `agent:${name}`));
  }
}

// Somebody named in the address who is not there is left out, and the page says so.
function choosePlayers(query) {
  const wanted = [query.get("left") ?? "expert", query.get("right") ?? sides[1].who.options[2]?.value ?? "person"];
  wanted.forEach((value, number) => { sides[number].who.value = value; });
  const missing = wanted.filter((_, number) => !sides[number].who.value);
  for (const side of sides) side.who.value ||= "expert";
  return missing.length ? `There is no ${missing.join(" and no ")} here.` : "";
}

async function begin() {
  document.addEventListener("keydown", onKey);
  for (const button of document.querySelectorAll("[data-action]")) {
    button.addEventListener("click", () => act(button.dataset.action));
  }
  element("next").addEventListener("click", nextMission);
  element("restart").addEventListener("click", restart);
  element("playing").addEventListener("click", play);
  element("step").addEventListener("click", step);
  element("level").addEventListener("change", restart);
  element("seed").addEventListener("change", restart);
  for (const id of ["letters", "hidden"]) {
    element(id).addEventListener("change", () => sides.forEach((side) => side.draw()));
  }
  await Promise.all([fillLevels(element("level")), connection.open()]);
  await listAgents();
  const query = new URLSearchParams(location.search);
  const problem = choosePlayers(query);
  await start(query.get("level") ?? "GoToLocal", Number(query.get("seed") ?? 0), query.get("mission"));
  // A wrong link still leads to a mission.
  if (!pair) {
    const reason = element("message").textContent;
    for (const side of sides) side.who.value = "expert";
    await start("GoToLocal", 0);
    say(reason);
  }
  if (problem) say(problem);
}

begin();
