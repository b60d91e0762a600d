// Draws worlds and views on a canvas. A cell is two characters, as in the layouts of babyai:
// "##" wall, ".." empty, "??" unseen, or a color letter (r g b p y a) and a kind (o k x d l /).

const COLORS = { r: "#ff4136", g: "#2ecc40", b: "#4a7dff", p: "#b565f0", y: "#ffdc00", a: "#9aa0a6" };
const FLOOR = "#101215";
const SEEN_FLOOR = "#3b4048";
const LINE = "#4d535c";
const WALL = "#5d636d";
const SEEN_WALL = "#868d98";
const UNSEEN = "#000000";

// Sets the size in device pixels; returns the side of a cell.
function prepare(canvas, columns, rows, cssWidth) {
  const scale = window.devicePixelRatio || 1;
  const side = Math.max(8, Math.round((cssWidth * scale) / columns));
  if (canvas.width !== side * columns || canvas.height !== side * rows) {
    canvas.width = side * columns;
    canvas.height = side * rows;
  }
  return side;
}

// Each tile is drawn once, because copying it is much faster.
const tiles = new Map();

function tile(cell, seen, letters, side) {
  const key = `${cell} ${seen} ${letters} ${side}`;
  if (!tiles.has(key)) {
    if (tiles.size > 1000) tiles.clear();
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = side;
    const context = canvas.getContext("2d");
    context.scale(side, side);
    drawCell(context, 0, 0, cell, seen, letters);
    tiles.set(key, canvas);
  }
  return tiles.get(key);
}

function box(context, x, y, left, top, width, height) {
  context.fillRect(x + left, y + top, width, height);
}

function disc(context, x, y, radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}

function frame(context, x, y, margin, width) {
  context.lineWidth = width;
  const inset = margin + width / 2;
  context.strokeRect(x + inset, y + inset, 1 - 2 * inset, 1 - 2 * inset);
}

const SHAPES = {
  o: (context, x, y) => disc(context, x + 0.5, y + 0.5, 0.32),
  k: (context, x, y, floor) => {
    box(context, x, y, 0.45, 0.3, 0.14, 0.58);
    box(context, x, y, 0.3, 0.58, 0.16, 0.09);
    box(context, x, y, 0.3, 0.79, 0.16, 0.09);
    disc(context, x + 0.52, y + 0.27, 0.19);
    context.fillStyle = floor;
    disc(context, x + 0.52, y + 0.27, 0.07);
  },
  x: (context, x, y) => {
    frame(context, x, y, 0.12, 0.09);
    box(context, x, y, 0.14, 0.45, 0.72, 0.09);
  },
  d: (context, x, y) => {
    frame(context, x, y, 0.02, 0.07);
    frame(context, x, y, 0.14, 0.05);
    disc(context, x + 0.73, y + 0.5, 0.07);
  },
  l: (context, x, y) => {
    context.globalAlpha = 0.45;
    box(context, x, y, 0.04, 0.04, 0.92, 0.92);
    context.globalAlpha = 1;
    frame(context, x, y, 0.02, 0.09);
    box(context, x, y, 0.4, 0.46, 0.32, 0.08);
    disc(context, x + 0.36, y + 0.5, 0.1);
  },
  "/": (context, x, y) => box(context, x, y, 0.84, 0, 0.14, 1),
};

function drawCell(context, x, y, cell, seen, letters) {
  const floor = seen ? SEEN_FLOOR : FLOOR;
  context.fillStyle = cell === "??" ? UNSEEN : cell === "##" ? (seen ? SEEN_WALL : WALL) : floor;
  context.fillRect(x, y, 1, 1);
  if (cell === "##" || cell === "??") return;
  context.strokeStyle = LINE;
  context.lineWidth = 0.03;
  context.strokeRect(x, y, 1, 1);
  if (cell === "..") return;
  const [color, kind] = cell;
  context.fillStyle = context.strokeStyle = COLORS[color];
  SHAPES[kind](context, x, y, floor);
  if (letters) drawLetter(context, x, y, color);
}

function drawLetter(context, x, y, letter) {
  context.font = "bold 0.42px system-ui, sans-serif";
  context.textAlign = "right";
  context.textBaseline = "alphabetic";
  context.lineWidth = 0.12;
  context.lineJoin = "round";
  context.strokeStyle = "#000";
  context.fillStyle = "#fff";
  context.strokeText(letter, x + 0.95, y + 0.86);
  context.fillText(letter, x + 0.95, y + 0.86);
}

function drawAgent(context, side, x, y, heading) {
  context.save();
  context.scale(side, side);
  context.translate(x + 0.5, y + 0.5);
  context.rotate((heading * Math.PI) / 2);
  context.beginPath();
  context.moveTo(-0.36, -0.32);
  context.lineTo(0.38, 0);
  context.lineTo(-0.36, 0.32);
  context.closePath();
  context.fillStyle = "#fff";
  context.strokeStyle = "#000";
  context.lineWidth = 0.06;
  context.fill();
  context.stroke();
  context.restore();
}

const cellAt = (row, x) => row.slice(2 * x, 2 * x + 2);

// The whole world; with `hide`, cells that the agent does not see are black.
export function drawWorld(canvas, state, { letters, hide }) {
  const columns = state.grid[0].length / 2;
  const side = prepare(canvas, columns, state.grid.length, canvas.parentElement.clientWidth);
  const context = canvas.getContext("2d");
  state.grid.forEach((row, y) => {
    for (let x = 0; x < columns; x += 1) {
      const seen = state.visible[y][x] === "1";
      const cell = hide && !seen ? "??" : cellAt(row, x);
      context.drawImage(tile(cell, seen, letters, side), x * side, y * side);
    }
  });
  drawAgent(context, side, ...state.agent);
}

// The agent's view; the agent is at the bottom in the middle.
export function drawView(canvas, state, { letters }) {
  const size = state.view.length;
  const side = prepare(canvas, size, size, 160);
  const context = canvas.getContext("2d");
  const middle = (size - 1) / 2;
  state.view.forEach((row, y) => {
    for (let x = 0; x < size; x += 1) {
      // In the agent's own cell the view holds what it carries, which is shown elsewhere.
      const cell = y === size - 1 && x === middle ? ".." : cellAt(row, x);
      context.drawImage(tile(cell, true, letters, side), x * side, y * side);
    }
  });
  drawAgent(context, side, middle, size - 1, 3);
}

export function drawIcon(canvas, cell, { letters }) {
  const side = prepare(canvas, 1, 1, 24);
  canvas.getContext("2d").drawImage(tile(cell ?? "..", false, letters, side), 0, 0);
}
