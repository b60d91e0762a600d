// The input for a mission of one's own, with completion from the grammar.

export class MissionInput {
  constructor(connection, onMission) {
    this.connection = connection;
    this.input = document.getElementById("own");
    this.list = document.getElementById("phrases");
    this.error = document.getElementById("mission-error");
    this.chosen = -1;
    this.input.addEventListener("input", () => this.complete());
    this.input.addEventListener("focus", () => this.complete());
    this.input.addEventListener("keydown", (event) => this.onKey(event));
    document.getElementById("mission-form").addEventListener("submit", (event) => {
      event.preventDefault();
      onMission(this.input.value.trim());
    });
  }

  async complete() {
    const text = this.input.value;
    const answer = await this.connection.ask({ do: "complete", text });
    if (answer.type !== "completions" || answer.text !== this.input.value) return;
    this.show(answer.phrases);
  }

  show(phrases) {
    this.chosen = -1;
    this.list.replaceChildren(...phrases.map((phrase, number) => this.option(phrase, number)));
    this.list.hidden = phrases.length === 0;
    this.input.setAttribute("aria-expanded", String(phrases.length > 0));
    this.input.removeAttribute("aria-activedescendant");
  }

  option(phrase, number) {
    const option = document.createElement("li");
    option.id = `phrase-${number}`;
    option.role = "option";
    option.textContent = phrase;
    option.setAttribute("aria-selected", "false");
    option.addEventListener("mousedown", (event) => {
      event.preventDefault();
      this.accept(phrase);
    });
    return option;
  }

  onKey(event) {
    const options = [...this.list.children];
    if (event.key === "Escape") {
      this.show([]);
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && options.length) {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      this.chosen = (this.chosen + step + options.length + (this.chosen < 0 && step < 0 ? 1 : 0)) % options.length;
      options.forEach((option, number) => option.setAttribute("aria-selected", String(number === this.chosen)));
      this.input.setAttribute("aria-activedescendant", options[this.chosen].id);
    } else if (event.key === "Enter" && this.chosen >= 0) {
      event.preventDefault();
      this.accept(options[this.chosen].textContent);
    }
  }

  // Replaces the word that is being typed by the phrase.
  accept(phrase) {
    const text = this.input.value;
    const kept = text.slice(0, text.search(/\S*$/));
    this.input.value = `${kept}${phrase} `;
    this.complete();
  }

  showError(message) {
    this.error.textContent = message;
    this.error.hidden = !message;
  }

  close() {
    this.show([]);
    this.showError("");
  }
}
