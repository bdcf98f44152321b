// One sandbox: its record, timeline, terminal, files, and cells of Python.

import { html, useEffect, useState } from "./preact.js";
import { box, json } from "./api.js";
import { Actions } from "./actions.js";
import { History } from "./timeline.js";
import { Usage } from "./usage.js";
import { Watch } from "./watch.js";
import { Terminal } from "./terminal.js";
import { Files } from "./files.js";
import { Cells } from "./cells.js";
import { Network } from "./network.js";
import { Ports } from "./ports.js";
import { Forks, Snapshots } from "./snapshots.js";
import { State } from "./list.js";
import { age, clock, middle, plain } from "./format.js";

const TABS = [["timeline", "Timeline"], ["usage", "Usage"], ["terminal", "Terminal"], ["files", "Files"], ["python", "Python"], ["network", "Network"], ["ports", "Ports"], ["forks", "Forks"], ["logs", "Logs"]];
const USING = new Set(["usage", "terminal", "files", "python", "ports"]);
const ENDED = new Set(["GONE", "FAILED", "LOST", "STOPPING"]);

function Facts({ one }) {
  const facts = [["Template", one.template], ["Forked from", one.parent], ["Image", one.image], ["Owner", one.user || (one.in_use ? "administrator" : "pool")],
    ["Session", one.session], ["Node", one.node], ["Driver", one.driver], ["Made", clock(one.created)],
    ["Age", age(Date.now() - one.created)], ["Ends in", one.expires ? age(one.expires - Date.now()) : ""],
    ["Labels", Object.entries(one.labels).map(([name, value]) => `${name}=${value}`).join(", ")]];
  return html`<dl class="facts">${facts.filter(([, value]) => value).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd title=${value}>${["Owner", "Session"].includes(name) ? middle(value) : value}</dd></div>`)}</dl>`;
}

function Logs({ id }) {
  const [text, setText] = useState(null);
  const [problem, setProblem] = useState("");
  const load = () => json(`${box(id)}/logs`).then((found) => { setText(plain(found.text)); setProblem(""); }, (error) => setProblem(error.message));
  useEffect(() => { load(); }, [id]);
  return html`<p class="buttons"><button onClick=${load}>Read again</button><span class="faint">What the sandbox's agent and runtime wrote last.</span></p>
    ${problem ? html`<p class="problem" role="alert">${problem}</p>` : null}
    ${text === null ? null : html`<pre class="log" tabindex="0">${text || "Nothing was written."}</pre>`}`;
}

function death(events) {
  return events.findLast((one) => ["lost", "failed", "stopping", "deleted"].includes(one.kind) && one.reason)
    ?? events.findLast((one) => ["lost", "failed", "stopping", "deleted"].includes(one.kind));
}

export function Sandbox({ id, tab, store, session }) {
  const [read, setRead] = useState(null);
  const [problem, setProblem] = useState("");
  useEffect(() => { document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }); }, [tab, !read]);
  const live = store.sandboxes.get(id);
  const newest = store.events.findLast((one) => one.sandbox === id)?.id;
  useEffect(() => {
    json(box(id)).then((found) => { setRead(found); setProblem(""); }, (error) => setProblem(error.message));
  }, [id, newest, live?.state]);
  if (!read) return problem ? html`<h1>${id}</h1><p class="problem" role="alert">${problem}</p><p><a href="#/">All sandboxes</a></p>` : html`<p class="loading">Reading ${id}…</p>`;
  const one = live ?? read.sandbox, gone = !one || ENDED.has(one.state), paused = one?.state === "PAUSED";
  const end = gone ? death(read.events) : null;
  const usable = !gone && !paused && !session.read_only;
  const why = gone ? "The sandbox has ended." : paused ? "The sandbox is paused: resume it first." : "This session is read-only: it does not use sandboxes.";
  const shown = {
    timeline: () => html`<${History} id=${id} events=${read.events} usable=${usable && one.state === "READY"} />`,
    usage: () => html`<${Usage} id=${id} />`,
    terminal: () => html`<${Terminal} id=${id} />`,
    files: () => html`<${Files} id=${id} />`,
    python: () => html`<${Cells} id=${id} />`,
    network: () => html`<${Network} id=${id} events=${read.events} session=${session} />`,
    ports: () => html`<${Ports} id=${id} />`,
    forks: () => html`<h2>Forks</h2><${Forks} id=${id} one=${one} store=${store} /><h2>Snapshots of it</h2><${Snapshots} of=${id} takes=${usable} session=${session} />`,
    logs: () => html`<${Logs} id=${id} />`,
  }[tab] ?? (() => html`<p class="nothing">There is no such view.</p>`);
  const needs = USING.has(tab) || (tab === "network" && gone);
  return html`<p class="crumbs"><a href="#/">Sandboxes</a></p>
    <div class="bar"><h1 class="id">${id} <${State} value=${one ? one.state : "GONE"} /></h1>${usable ? html`<${Watch} id=${id} views=${read.sandbox?.views ?? []} />` : null}<${Actions} sandbox=${gone ? null : one} session=${session} /></div>
    ${gone ? html`<p class=${end && ["lost", "failed"].includes(end.kind) ? "problem" : "notice"}>It has ended${end ? html`: <strong>${end.kind}</strong> at ${clock(end.time)}${end.reason ? html`, ${end.reason}` : ""}, by ${end.actor || "the mesh"}` : ""}.</p>` : null}
    ${one ? html`<${Facts} one=${one} />` : null}
    <nav class="tabs" aria-label="Views of this sandbox">${TABS.map(([name, title]) => html`<a key=${name} href=${`#/sandbox/${encodeURIComponent(id)}/${name}`}
      aria-current=${tab === name ? "page" : null}>${title}</a>`)}</nav>
    <div class="view">${needs && (gone || !usable) ? html`<p class="nothing">${why}</p>` : shown()}</div>`;
}
