// Axes: ticks at round numbers, linear or logarithmic, and numbers as text.

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });

export function formatNumber(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value !== 0 && Math.abs(value) < 0.001) return value.toExponential(2);
  return compact.format(value);
}

// Round numbers between low and high.
export function linearTicks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) ticks.push(k * step + 0);
  return ticks;
}

// Powers of ten; between few of them, also 2 and 5 times these.
function logTicks(low, high) {
  const ticks = [];
  const factors = high / low < 100 ? [1, 2, 5] : [1];
  const last = Math.ceil(Math.log10(high));
  for (let k = Math.floor(Math.log10(low)); k <= last; k += 1) {
    ticks.push(...factors.map((factor) => factor * 10 ** k).filter((tick) => tick >= low && tick <= high));
  }
  return ticks;
}

// Maps values to pixels.
export class Axis {
  constructor(low, high, from, to, { log = false, count = 5 } = {}) {
    if (high <= low) [low, high] = log ? [low / 2, low * 2] : [low - 0.5, low + 0.5];
    this.scale = log ? Math.log10 : (value) => value;
    this.unscale = log ? (value) => 10 ** value : (value) => value;
    [this.low, this.high, this.from, this.to] = [this.scale(low), this.scale(high), from, to];
    this.ticks = log ? logTicks(low, high) : linearTicks(low, high, count);
  }

  pixel(value) {
    return this.from + ((this.to - this.from) * (this.scale(value) - this.low)) / (this.high - this.low);
  }

  value(pixel) {
    return this.unscale(this.low + ((this.high - this.low) * (pixel - this.from)) / (this.to - this.from));
  }
}
