// The page: shows the state that the server sends, and sends what the player does.

import { Demos } from "./demos.js";
import { ACTIONS, keyOf } from "./keyboard.js";
import { fillLevels, showTask } from "./levels.js";
import { showMind } from "./mind.js";
import { MissionInput } from "./mission.js";
import { askAndShow, connect, countDrawing, element, listItem, say } from "./page.js";
import { Playback } from "./playback.js";
import { drawIcon, drawView, drawWorld } from "./tiles.js";

// The state of the game; what is shown differs from it during a replay.
let state = null;
let shown = null;
// The agent that the server lets watch; "" for none.
let watching = "";

const playback = new Playback({ button: element("expert"), speed: element("speed"), shown: element("speed-value") });
const connection = connect("play", playback);
const mission = new MissionInput(connection, tryMission);
const demos = new Demos(connection, replay);

// ------------------------------------------------------------ showing

function draw(next) {
  shown = next;
  const options = { letters: element("letters").checked, hide: element("hidden").checked };
  drawWorld(element("grid"), shown, options);
  drawView(element("view"), shown, options);
  drawIcon(element("carrying-icon"), shown.carrying, options);
}

function show(next) {
  state = next;
  draw(state);
  element("mission").textContent = state.mission;
  element("carrying").textContent = state.carried;
  const left = state.max_steps - state.step;
  element("steps").textContent = `${left} of ${state.max_steps}`;
  element("progress").max = state.max_steps;
  element("progress").value = left;
  element("action").textContent = state.action ?? "none";
  element("reward").textContent = state.reward.toFixed(3);
  element("verdict").hidden = !state.verdict;
  element("verdict").dataset.outcome = state.outcome;
  const hint = state.outcome === "success" ? "press n for the next mission" : "press u to undo, n for the next mission";
  element("verdict").textContent = state.verdict ? `${sign(state.outcome)} ${state.verdict}: ${hint}` : "";
  element("undo").disabled = !state.can_undo;
  for (const button of document.querySelectorAll("[data-action]")) button.disabled = state.outcome !== "playing";
  element("grid").setAttribute("aria-label", `The world. ${state.description.join(". ")}`);
  element("description").replaceChildren(...state.description.map(listItem));
  showMind(element("mind"), state.mind);
  element("plan-part").hidden = state.plan.length === 0;
  element("plan").replaceChildren(...state.plan.map(listItem));
  if (state.note) demos.note(state.note);
  countDrawing();
}

const sign = (outcome) => (outcome === "success" ? "✓" : "✗");

// ------------------------------------------------------------ playing

const ask = (message) => askAndShow(connection, playback, message, "state", show);

async function start(level, seed, own = null) {
  playback.stop();
  const message = { do: "start", level, seed };
  if (own) message.mission = own;
  if (!(await ask(message))) return;
  element("level").value = state.level;
  element("seed").value = state.seed;
  showTask(element("level"), element("task"));
  remember();
  mission.close();
}

// A link with this address shows the same mission.
function remember() {
  const query = new URLSearchParams({ level: state.level, seed: state.seed });
  if (state.own_mission) query.set("mission", state.mission);
  history.replaceState(null, "", `?${query}`);
  element("compare").href = `compare?${query}`;
  document.title = `BabyAI: ${state.mission}`;
}

function act(action) {
  playback.stop();
  if (state?.outcome === "playing") ask({ do: "act", action });
}

function undo() {
  playback.stop();
  if (state?.can_undo) ask({ do: "undo" });
}

const chosen = () => [element("level").value, Number(element("seed").value)];
const nextMission = () => start(element("level").value, state.seed + 1);
const restart = () => start(...chosen());

async function tryMission(text) {
  if (!text) return;
  playback.stop();
  const answer = await connection.ask({ do: "instruct", mission: text });
  if (answer.type === "error") return mission.showError(answer.message);
  if (answer.type !== "state") return;
  show(answer);
  remember();
  mission.close();
  element("own").blur();
}

// ------------------------------------------------------------ the expert, agents, and replays

const who = () => (element("who").value ? "agent" : "expert");

async function listAgents() {
  const answer = await connection.ask({ do: "agents" });
  for (const name of answer.names ?? []) element("who").append(new Option(name, name));
}

async function choose() {
  playback.stop();
  const agent = element("who").value;
  if (await ask({ do: "choose", agent: agent || null })) watching = agent;
  else element("who").value = watching;
}

function playExpert() {
  if (playback.playing) return playback.stop();
  playback.start(async () => state.outcome === "playing" && (await ask({ do: who() })) && state.outcome === "playing");
}

function stepExpert() {
  playback.stop();
  if (state?.outcome === "playing") ask({ do: who() });
}

// Shows a demonstration; the game itself stays where it is.
function replay(states) {
  playback.stop();
  const current = state;
  let step = 0;
  playback.start(async () => {
    if (step === states.length) {
      demos.note("End of the replay. Any action goes on with your game.");
      return false;
    }
    show({ ...current, ...states[step], mind: null, plan: [] });
    state = { ...current };
    step += 1;
    return true;
  });
}

// ------------------------------------------------------------ keyboard, buttons, start

function onKey(event) {
  const key = keyOf(event);
  const commands = { u: undo, n: nextMission, r: restart, e: playExpert, s: stepExpert };
  if (key in ACTIONS) act(ACTIONS[key]);
  else if (key in commands) commands[key]();
  else return;
  event.preventDefault();
}

async function begin() {
  document.addEventListener("keydown", onKey);
  for (const button of document.querySelectorAll("[data-action]")) {
    button.addEventListener("click", () => act(button.dataset.action));
  }
  element("undo").addEventListener("click", undo);
  element("next").addEventListener("click", nextMission);
  element("restart").addEventListener("click", restart);
  element("expert").addEventListener("click", playExpert);
  element("expert-step").addEventListener("click", stepExpert);
  element("who").addEventListener("change", choose);
  element("level").addEventListener("change", restart);
  element("seed").addEventListener("change", restart);
  for (const id of ["letters", "hidden"]) element(id).addEventListener("change", () => shown && draw(shown));
  new ResizeObserver(() => shown && draw(shown)).observe(element("grid").parentElement);
  await Promise.all([fillLevels(element("level")), connection.open()]);
  const query = new URLSearchParams(location.search);
  await start(query.get("level") ?? "GoToLocal", Number(query.get("seed") ?? 0), query.get("mission"));
  listAgents();
  // A wrong link still leads to a game.
  if (!state) {
    const reason = element("message").textContent;
    await start("GoToLocal", 0);
    say(reason);
  }
}

begin();
