// The keys of the pages on which worlds are played.

export const ACTIONS = {
  ArrowLeft: "left", ArrowRight: "right", ArrowUp: "forward",
  p: "pickup", d: "drop", t: "toggle", " ": "toggle", Enter: "done",
};

// The key of an event; null if it belongs to the browser, or to the control that has the focus.
export function keyOf(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  const target = event.target;
  if (target.matches("input:not([type=checkbox]):not([type=range]), select, textarea")) return null;
  // Space and Enter press a focused button or follow a link.
  if (target.matches("a, button, summary, input") && (event.key === " " || event.key === "Enter")) return null;
  if (target.matches("input[type=range]") && event.key.startsWith("Arrow")) return null;
  return event.key.length === 1 ? event.key.toLowerCase() : event.key;
}
