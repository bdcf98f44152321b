// Events: of one sandbox as its timeline, of all as a list.

import { html, useState } from "./preact.js";
import { outcome, Servers, useCalls } from "./calls.js";
import { Allow, refusal } from "./network.js";
import { clock, middle, milliseconds } from "./format.js";

const BAD = new Set(["lost", "failed", "egress_refused", "out_of_memory"]);
const ENDS = new Set(["stopping", "deleted"]);

// What a create's time went to: a bar whose parts are as wide as they took, and the same in words.
function Phases({ phases }) {
  const words = phases.map(([name, took]) => `${name} ${milliseconds(took)}`).join(", ");
  return html`<span class="phases"><span class="bar-of" role="img" aria-label=${words}>${phases.map(([name, took]) =>
    html`<i key=${name} class=${`phase-${name}`} style=${{ flexGrow: Math.max(took, 0.1) }}></i>`)}</span>
    ${phases.map(([name, took]) => html`<span class="phase" key=${name}><i class=${`phase-${name}`}></i>${name} ${milliseconds(took)}</span> `)}</span>`;
}

function Call({ one }) {
  const end = outcome(one), bad = one.failed || (one.took !== null && one.reason !== "EXITED");
  return html`<li class=${bad ? "bad call" : "call"}><time datetime=${new Date(one.time).toISOString()}>${clock(one.time)}</time> <code>${one.tool}</code>
    <span class="faint"> ${one.took === null ? "" : `${milliseconds(one.took)} · `}</span><span class=${bad ? "state bad" : "faint"}>${end}</span></li>`;
}

// The events of one sandbox, and between them the calls that were made in it.
export function History({ id, events, usable }) {
  const [shown, setShown] = useState(true);
  const [found, load] = useCalls(id, usable);
  return html`${usable ? html`<p class="buttons"><label class="check"><input type="checkbox" checked=${shown} onChange=${(event) => setShown(event.target.checked)} />
      Calls (${found.calls.length})</label><button onClick=${load}>Read again</button>${found.why ? html`<span class="note" role="status">${found.why}</span>` : null}</p>` : null}
    <${Servers} servers=${found.servers} /><${Timeline} events=${events} calls=${shown ? found.calls : []} allow=${usable ? id : ""} />`;
}

export function Timeline({ events, calls, linked, allow }) {
  const all = [...events, ...(calls ?? [])];
  if (!all.length) return html`<p class="nothing">No events.</p>`;
  if (calls?.length) all.sort((one, other) => one.time - other.time);
  return html`<ol class="timeline">${all.map((one, at) => one.tool !== undefined ? html`<${Call} key=${`call-${at}`} one=${one} />` : html`<li key=${one.id} class=${BAD.has(one.kind) ? "bad" : ENDS.has(one.kind) ? "calm" : ""}>
    <time datetime=${new Date(one.time).toISOString()}>${clock(one.time)}</time> <strong>${one.kind}</strong>
    ${linked && one.sandbox ? html` <a href=${`#/sandbox/${encodeURIComponent(one.sandbox)}`}>${one.sandbox}</a>` : null}
    ${(one.phases || []).length ? html`<${Phases} phases=${one.phases} />` : null}
    ${one.reason ? html` <span class="reason">${one.reason}</span>` : null}
    ${allow && refusal(one) ? html` <${Allow} id=${allow} host=${refusal(one).host} />` : null}
    <span class="faint"> by ${middle(one.actor) || "the mesh"}${one.fault ? ` · fault: ${one.fault}` : ""}</span></li>`)}</ol>`;
}

export function Events({ store }) {
  const [words, setWords] = useState("");
  const wanted = words.toLowerCase();
  const found = store.events.filter((one) => `${one.sandbox} ${one.kind} ${one.reason} ${one.actor}`.toLowerCase().includes(wanted));
  return html`<div class="bar"><h1>Events</h1><input type="search" placeholder="Filter" aria-label="Filter" value=${words}
    onInput=${(event) => setWords(event.target.value)} /></div><${Timeline} events=${found.slice().reverse()} linked />`;
}
