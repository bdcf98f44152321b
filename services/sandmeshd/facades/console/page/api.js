// Requests of the page, and who is told when the session has ended.

export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let onEnded = () => {};
export function whenEnded(handler) { onEnded = handler; }
export function ended(message) { onEnded(message); }

export async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(`api/${path}`, { redirect: "error", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, "The console does not answer. Is `sandmesh console` still running?");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  const message = body.detail || `the request failed with status ${response.status}`;
  if (response.status === 401) onEnded(message);
  throw new Failure(response.status, message);
}

export async function json(path, options) { return (await request(path, options)).json(); }

export function post(path, body) {
  return json(path, { method: "POST", body: JSON.stringify(body ?? {}), headers: { "Content-Type": "application/json" } });
}

export function box(id) { return `sandboxes/${encodeURIComponent(id)}`; }

export const HAS_SOCKETS = typeof WebSocket === "function";

export function socket(path) {
  const url = new URL(`api/${path}`, location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  url.hash = "";
  return new WebSocket(url);
}
