// What the pages on which worlds are played share: their elements, their messages, and asking the server.

import { Connection } from "./connection.js";

export const element = (id) => document.getElementById(id);

export function listItem(text) {
  const item = document.createElement("li");
  item.textContent = text;
  return item;
}

export function say(text) {
  element("message").textContent = text;
  element("message").hidden = !text;
}

// Counts what has been drawn, for whoever waits for it.
export function countDrawing() {
  document.body.dataset.ready = String(Number(document.body.dataset.ready ?? 0) + 1);
}

export function connect(path, playback) {
  return new Connection(path, (reason) => {
    playback.stop();
    say(`${reason} Start it again and reload this page.`);
  });
}

// Sends a message and shows the answer, if it has the expected type; anything else stops the playback. Returns whether it was shown.
export async function askAndShow(connection, playback, message, type, show) {
  const answer = await connection.ask(message);
  if (answer.type === type) {
    say("");
    show(answer);
    return true;
  }
  if (answer.type === "error") say(answer.message);
  playback.stop();
  return false;
}
