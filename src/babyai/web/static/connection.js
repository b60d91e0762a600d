// The websocket to the server. Each message is answered by exactly one message, in order.

export class Connection {
  constructor(onClose) {
    this.waiting = [];
    this.onClose = onClose;
  }

  open() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    this.socket = new WebSocket(`${scheme}://${location.host}/play`);
    this.socket.addEventListener("message", (event) => this.waiting.shift()?.(JSON.parse(event.data)));
    this.socket.addEventListener("close", (event) => this.onClose(event.reason || "The server has stopped."));
    return new Promise((resolve) => this.socket.addEventListener("open", resolve));
  }

  // The answer to a message.
  ask(message) {
    if (this.socket.readyState !== WebSocket.OPEN) return Promise.resolve({ type: "closed" });
    return new Promise((resolve) => {
      this.waiting.push(resolve);
      this.socket.send(JSON.stringify(message));
    });
  }
}
