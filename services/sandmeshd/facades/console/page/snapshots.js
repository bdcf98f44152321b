// Snapshots, and sandboxes that began with them: forks as a tree.

import { html, useEffect, useState } from "./preact.js";
import { box, json, post, request } from "./api.js";
import { Confirm } from "./actions.js";
import { State } from "./list.js";
import { bytes, clock } from "./format.js";

const link = (id) => `#/sandbox/${encodeURIComponent(id)}`;

function Branch({ id, known, children, at }) {
  const one = known.get(id), below = children.get(id) ?? [];
  return html`<li>${id === at ? html`<strong class="mono" aria-current="true">${id}</strong>` : html`<a class="mono" href=${link(id)}>${id}</a>`} <${State} value=${one?.state ?? "GONE"} />
    ${one ? html` <span class="faint">${one.image || one.template}, ${clock(one.created)}</span>` : null}
    ${below.length ? html`<ul>${below.map((child) => html`<${Branch} key=${child} id=${child} known=${known} children=${children} at=${at} />`)}</ul>` : null}</li>`;
}

// The tree in which a sandbox is. What has ended is known by those that began with it.
export function Forks({ id, one, store }) {
  const known = new Map(store.sandboxes);
  if (one) known.set(id, one);
  const children = new Map();
  for (const each of known.values()) if (each.parent) children.set(each.parent, [...(children.get(each.parent) ?? []), each.id]);
  let root = id;
  for (const seen = new Set(); known.get(root)?.parent && !seen.has(root); root = known.get(root).parent) seen.add(root);
  if (root === id && !children.has(id)) return html`<p class="nothing">No sandbox began with a snapshot of this one. <code>box.fork()</code> makes some.</p>`;
  return html`<ul class="tree"><${Branch} id=${root} known=${known} children=${children} at=${id} /></ul>`;
}

function Table({ rows, of, session, reload }) {
  const [deleting, setDeleting] = useState(null);
  return html`<div class="scroll"><table class="cards"><thead><tr><th>Snapshot</th>${of ? null : html`<th>Sandbox</th>`}<th>Template</th><th>Size</th><th>Taken</th><th>Node</th><th><span class="hidden">Actions</span></th></tr></thead><tbody>
    ${rows.map((one) => html`<tr key=${one.id}><td data-name="Snapshot" class="mono">${one.id}</td>${of ? null : html`<td data-name="Sandbox"><a href=${link(one.sandbox)}>${one.sandbox}</a></td>`}
      <td data-name="Template">${one.template}</td><td data-name="Size">${bytes(one.bytes)}</td><td data-name="Taken">${clock(one.created)}</td><td data-name="Node">${one.node}</td>
      <td class="end">${session.read_only ? null : html`<span class="actions compact"><button class="danger" aria-label=${`Delete ${one.id}`} onClick=${() => setDeleting(one)}>Delete</button></span>`}</td></tr>`)}</tbody></table></div>
    ${deleting ? html`<${Confirm} title="Delete this snapshot?" action="Delete it" close=${() => setDeleting(null)}
      text=${`${deleting.id} is deleted; sandboxes that began with it stay.`}
      done=${async () => { await request(`snapshots/${encodeURIComponent(deleting.id)}`, { method: "DELETE" }); reload(); }} />` : null}`;
}

// All snapshots; `of` is the sandbox whose snapshots are shown, where it is one's.
export function Snapshots({ of, takes, session }) {
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState("");
  const [note, setNote] = useState("");
  const failed = (error) => setProblem(error.message);
  const load = () => json("snapshots").then((value) => { setFound(value); setProblem(""); }, failed);
  useEffect(() => { load(); }, [of]);
  const take = async () => {
    setNote("Taking a snapshot…");
    try { const taken = await post(`${box(of)}/snapshot`); setNote(`${taken.id} was taken.`); load(); } catch (error) { setNote(error.message); }
  };
  const rows = found?.snapshots.filter((one) => !of || one.sandbox === of) ?? [];
  return html`${of ? null : html`<h1>Snapshots</h1>`}
    ${takes ? html`<p class="buttons"><button onClick=${take}>Take a snapshot</button><span class="note" role="status">${note}</span></p>` : null}
    ${problem ? html`<p class="problem" role="alert">${problem}</p>` : null}
    ${found?.silent_nodes.length ? html`<p class="notice">These nodes did not answer, and their snapshots are missing: ${found.silent_nodes.join(", ")}.</p>` : null}
    ${found === null ? null : rows.length ? html`<${Table} rows=${rows} of=${of} session=${session} reload=${load} />` : html`<p class="nothing">There are no snapshots${of ? " of this sandbox" : ""}.</p>`}`;
}
