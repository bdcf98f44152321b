// What the mesh has, kept fresh by the console's WebSocket.

import { ended, socket } from "./api.js";

const MOST_EVENTS = 500;
const AGAIN = [500, 1000, 2000, 5000];
const MANY = 2;
const SESSION_ENDED = 4401;

export class Store {
  constructor() {
    this.sandboxes = new Map();
    this.events = [];
    this.loaded = false;
    this.version = 0;  // It counts what changed the sandboxes.
    this.problem = "";
    this.listeners = new Set();
    this.attempts = 0;
    this.planned = false;
  }

  subscribe(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  // A storm of changes is drawn once a frame.
  notify() {
    if (this.planned) return;
    this.planned = true;
    setTimeout(() => {
      this.planned = false;
      for (const listener of this.listeners) listener();
    }, 50);
  }

  open() {
    this.closed = false;
    const connection = this.connection = socket("live");
    connection.onmessage = (message) => this.take(JSON.parse(message.data));
    connection.onclose = (event) => {
      if (this.closed) return;
      if (event.code === SESSION_ENDED) return ended("This session has ended.");
      this.problem = `Not connected: what you see may be old. Trying again…${this.attempts < MANY ? "" : " If a proxy is between, it has to pass on WebSockets."}`;
      this.notify();
      setTimeout(() => this.again(), AGAIN[Math.min(this.attempts++, AGAIN.length - 1)]);
    };
  }

  // A session that has ended is refused before there is a WebSocket, which does not say why.
  async again() {
    if (this.closed) return;
    const response = await fetch("api/session").catch(() => null);
    if (response && response.status === 401) return ended("This session has ended.");
    if (!this.closed) this.open();
  }

  close() {
    this.closed = true;
    this.connection?.close();
  }

  take(message) {
    if (message.type === "away") {
      this.problem = `${message.message}. Trying again…`;
    } else if (message.type === "older") {
      this.problem = `${message.message}.`;
    } else {
      this.problem = "";
      this.attempts = 0;
    }
    if (message.type === "all") {
      this.sandboxes = new Map(message.sandboxes.map((one) => [one.id, one]));
      this.version += 1;
      this.loaded = true;
    } else if (message.type === "changed") {
      for (const one of message.sandboxes) this.sandboxes.set(one.id, one);
      for (const id of message.gone) this.sandboxes.delete(id);
      this.version += 1;
    } else if (message.type === "events") {
      this.events = (message.whole ? [] : this.events).concat(message.events).slice(-MOST_EVENTS);
    }
    this.notify();
  }
}
