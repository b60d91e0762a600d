// Plays at the chosen speed: calls a step again and again, until it says that there is no more or somebody pauses.

export class Playback {
  constructor({ button, speed, shown }) {
    this.button = button;
    this.speed = speed;
    this.current = null;
    speed.addEventListener("input", () => { shown.value = speed.value; });
  }

  get playing() {
    return this.current !== null;
  }

  start(step) {
    this.label("Pause", true);
    let due = performance.now();
    const tick = async () => {
      const more = await step();
      // Paused, and perhaps started again, while the step was under way.
      if (this.current !== tick) return;
      if (!more) return this.stop();
      // Steps are due at fixed times, so that waiting for the server does not slow them down.
      due = Math.max(due + 1000 / Number(this.speed.value), performance.now() - 50);
      this.timer = setTimeout(tick, Math.max(0, due - performance.now()));
    };
    this.current = tick;
    this.timer = setTimeout(tick, 0);
  }

  stop() {
    clearTimeout(this.timer);
    this.current = null;
    this.label("Play", false);
  }

  label(text, pressed) {
    this.button.setAttribute("aria-pressed", String(pressed));
    this.button.querySelector("span").textContent = text;
  }
}
