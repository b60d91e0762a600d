// The websocket to the server. Each message is answered by exactly one message, in order.

export class Connection {
  constructor(path, onClose) {
    this.path = path;
    this.waiting = [];
    this.onClose = onClose;
  }

  open() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    this.socket = new WebSocket(`${scheme}://${location.host}/${this.path}`);
    this.socket.addEventListener("message", (event) => this.waiting.shift()?.(JSON.parse(event.data)));
    this.socket.addEventListener("close", (event) => this.closed(event));
    return new Promise((resolve) => this.socket.addEventListener("open", resolve));
  }

  get isOpen() {
    return this.socket.readyState === WebSocket.OPEN;
  }

  closed({ reason, code }) {
    for (const resolve of this.waiting.splice(0)) resolve({ type: "closed" });
    this.onClose(reason || "The server has stopped.", code);
  }

  // The answer to a message.
  ask(message) {
    if (!this.isOpen) return Promise.resolve({ type: "closed" });
    return new Promise((resolve) => {
      this.waiting.push(resolve);
      this.socket.send(JSON.stringify(message));
    });
  }
}
