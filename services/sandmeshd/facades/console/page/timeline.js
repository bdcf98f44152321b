// Events: of one sandbox as its timeline, of all as a list.

import { html, useState } from "./preact.js";
import { clock, middle } from "./format.js";

const BAD = new Set(["lost", "failed"]);
const ENDS = new Set(["stopping", "deleted"]);

export function Timeline({ events, linked }) {
  if (!events.length) return html`<p class="nothing">No events.</p>`;
  return html`<ol class="timeline">${events.map((one) => html`<li key=${one.id} class=${BAD.has(one.kind) ? "bad" : ENDS.has(one.kind) ? "calm" : ""}>
    <time datetime=${new Date(one.time).toISOString()}>${clock(one.time)}</time> <strong>${one.kind}</strong>
    ${linked && one.sandbox ? html` <a href=${`#/sandbox/${encodeURIComponent(one.sandbox)}`}>${one.sandbox}</a>` : null}
    ${one.reason ? html` <span class="reason">${one.reason}</span>` : null}
    <span class="faint"> by ${middle(one.actor) || "the mesh"}${one.fault ? ` · fault: ${one.fault}` : ""}</span></li>`)}</ol>`;
}

export function Events({ store }) {
  const [words, setWords] = useState("");
  const wanted = words.toLowerCase();
  const found = store.events.filter((one) => `${one.sandbox} ${one.kind} ${one.reason} ${one.actor}`.toLowerCase().includes(wanted));
  return html`<div class="bar"><h1>Events</h1><input type="search" placeholder="Filter" aria-label="Filter" value=${words}
    onInput=${(event) => setWords(event.target.value)} /></div><${Timeline} events=${found.slice().reverse()} linked />`;
}
