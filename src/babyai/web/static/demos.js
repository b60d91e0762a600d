// Recording successes as demonstrations, listing them, and playing them back.

const element = (id) => document.getElementById(id);

export class Demos {
  constructor(connection, onReplay) {
    this.connection = connection;
    this.onReplay = onReplay;
    for (const id of ["record", "file", "person"]) element(id).addEventListener("change", () => this.record());
    element("list-demos").addEventListener("click", () => this.list());
  }

  async record() {
    const file = element("record").checked ? element("file").value : null;
    const answer = await this.connection.ask({ do: "record", file, person: element("person").value });
    if (answer.type === "error") {
      element("record").checked = false;
      this.note(answer.message);
    } else {
      this.note(answer.file ? `Successes are added to ${answer.file}.` : "");
    }
  }

  async list() {
    const file = element("file").value;
    const answer = await this.connection.ask({ do: "demos", file });
    if (answer.type === "error") return this.note(answer.message);
    if (!answer.rows.length) this.note(`Nothing is recorded in ${file} yet.`);
    element("demos").replaceChildren(...answer.rows.reverse().map((row) => this.row(file, row)));
  }

  row(file, demo) {
    const item = document.createElement("li");
    const text = document.createElement("span");
    text.textContent = `${demo.level}, seed ${demo.seed}: ${demo.mission} (${demo.steps} steps)`;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Replay";
    button.setAttribute("aria-label", `Replay ${text.textContent}`);
    button.addEventListener("click", async () => {
      const answer = await this.connection.ask({ do: "replay", file, row: demo.row });
      if (answer.type === "error") this.note(answer.message);
      else this.onReplay(answer.states);
    });
    item.append(text, button);
    return item;
  }

  note(text) {
    element("note").textContent = text;
  }
}
