// What a sandbox reaches: its grant, its traffic, and what it was refused.

import { html, useEffect, useState } from "./preact.js";
import { box, json, post } from "./api.js";
import { bytes, clock, shortened } from "./format.js";

const WEB = new Set(["80", "443"]);

// The reason of a refusal is "host:port: why", or "host:port, 3 times: why".
export function refusal(event) {
  const found = event.kind === "egress_refused" && /^(\S+?):(\d+)(?:, (\d+) times)?: ([^]*)$/.exec(event.reason);
  if (!found) return null;
  const [, host, port, times, why] = found;
  return { host: WEB.has(port) || host.includes(":") ? host : `${host}:${port}`, times: Number(times ?? 1), why, time: event.time };
}

export function Allow({ id, host, done }) {
  const [note, setNote] = useState("");
  const allow = async () => {
    try { await post(`${box(id)}/network/allow`, { host }); setNote("Allowed."); done?.(); } catch (error) { setNote(error.message); }
  };
  return html`<span class="actions compact"><button disabled=${note === "Allowed."} onClick=${allow} aria-label=${`Allow ${host}`}>Allow</button><span class="note" role="status">${note}</span></span>`;
}

function refusals(events) {
  const found = new Map();
  for (const one of events.map(refusal).filter(Boolean)) {
    found.set(one.host, { ...one, times: one.times + (found.get(one.host)?.times ?? 0) });
  }
  return [...found.values()].sort((a, b) => b.time - a.time);
}

function described({ mode, hosts }) {
  if (mode === "public") return `Public addresses${hosts.length ? ", and these:" : "."}`;
  return mode === "hosts" && hosts.length ? "Only these:" : "Nothing.";
}

export function Network({ id, events, session }) {
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState("");
  const load = () => json(`${box(id)}/network`).then((value) => { setFound(value); setProblem(""); }, (error) => setProblem(error.message));
  useEffect(() => { load(); }, [id]);
  const deny = (host) => post(`${box(id)}/network/deny`, { host }).then(load, (error) => setProblem(error.message));
  const refused = refusals(events), granted = found?.grant;
  return html`<p class="buttons"><button onClick=${load}>Read again</button></p>
    ${problem ? html`<p class="problem" role="alert">${problem}</p>` : null}
    <h2>It may reach</h2>${found === null ? null : granted === null ? html`<p class="nothing">${found.why}</p>` : html`<p>${described(granted)}</p>
      ${granted.hosts.length ? html`<ul class="hosts">${granted.hosts.map((host) => html`<li key=${host}><code>${host}</code>
        ${session.read_only ? null : html`<button class="quiet" aria-label=${`Deny ${host}`} onClick=${() => deny(host)}>Deny</button>`}</li>`)}</ul>` : null}`}
    <h2>It was refused</h2>${refused.length ? html`<div class="scroll"><table class="cards"><thead><tr><th>Host</th><th>Times</th><th>Last</th><th>Why</th><th><span class="hidden">Actions</span></th></tr></thead><tbody>
      ${refused.map((one) => html`<tr key=${one.host}><td data-name="Host"><code>${shortened(one.host, 100)}</code></td><td data-name="Times">${one.times}</td><td data-name="Last">${clock(one.time)}</td><td data-name="Why">${one.why}</td>
        <td class="end">${session.read_only || !granted ? null : html`<${Allow} id=${id} host=${one.host} done=${load} />`}</td></tr>`)}</tbody></table></div>`
      : html`<p class="nothing">Nothing was refused.</p>`}
    <h2>Traffic</h2>${found?.hosts.length ? html`<div class="scroll"><table><thead><tr><th>Host</th><th>Connections</th><th>Sent</th><th>Received</th></tr></thead><tbody>
      ${found.hosts.map((one) => html`<tr key=${one.host}><td><code>${shortened(one.host, 100)}</code></td><td>${one.connections}${one.open ? ` (${one.open} open)` : ""}</td><td>${bytes(one.sent)}</td><td>${bytes(one.received)}</td></tr>`)}</tbody></table></div>`
      : html`<p class="nothing">No host has been connected to.</p>`}`;
}
