// The calls of a sandbox, and its MCP servers: read when a person asks, since that is a use of the sandbox.

import { html, useEffect, useState } from "./preact.js";
import { box, json } from "./api.js";

export function useCalls(id, usable) {
  const [found, setFound] = useState({ calls: [], servers: [], why: "" });
  const load = () => json(`${box(id)}/calls`).then(setFound, (error) => setFound((before) => ({ ...before, why: error.message })));
  useEffect(() => { if (usable) load(); }, [id, usable]);
  return [found, load];
}

export function outcome(call) {
  if (call.took === null) return "runs";
  if (call.reason !== "EXITED") return call.reason.toLowerCase().replaceAll("_", " ");
  return call.failed ? "error" : "ok";
}

export function Servers({ servers }) {
  if (!servers.length) return null;
  return html`<h2>MCP servers</h2><div class="scroll"><table class="cards"><thead><tr><th>Server</th><th>State</th><th>Tools</th><th>Problem</th></tr></thead><tbody>
    ${servers.map((one) => html`<tr key=${one.name}><td data-name="Server">${one.name}</td><td data-name="State"><span class=${`state ${one.state === "FAILED" ? "bad" : one.state === "READY" ? "good" : "calm"}`}>${one.state.toLowerCase()}</span></td>
      <td data-name="Tools">${one.tools}</td><td data-name="Problem">${one.error || html`<span class="faint">none</span>`}</td></tr>`)}</tbody></table></div>`;
}
