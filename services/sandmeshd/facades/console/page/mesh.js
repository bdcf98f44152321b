// What the mesh has: capacity, nodes, templates, and what is wrong with it.

import { html, useEffect, useState } from "./preact.js";
import { json } from "./api.js";

// What an older mesh does not have.
export function Missing({ names }) {
  return names.length ? html`<p class="notice" role="status">This mesh, or a part of it, is older than the console and does not show: ${names.join(", ")}. Update the mesh to see them.</p>` : null;
}

export function Mesh() {
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const load = () => json("mesh").then((value) => { setFound(value); setProblem(""); }, (error) => setProblem(error.message));
    load();
    const timer = setInterval(load, 5000);
    return () => clearInterval(timer);
  }, []);
  if (problem) return html`<h1>Mesh</h1><p class="problem" role="alert">${problem}</p>`;
  if (!found) return html`<p class="loading">Asking the mesh…</p>`;
  const troubles = found.health?.troubles ?? [], nodes = found.health?.nodes ?? [], preparations = found.health?.preparations ?? [];
  const capacity = found.capacity, shares = capacity ?? { nodes: {}, pools: {}, by_template: {} };
  const ofNode = (node) => troubles.filter((one) => one.node_id && one.node_id === node.node_id);
  return html`<h1>Mesh</h1><${Missing} names=${found.missing} />
    ${capacity ? html`<p class="figure"><strong>${capacity.used}</strong> of ${capacity.limit} sandboxes
      <meter min="0" max=${capacity.limit || 1} value=${capacity.used} high=${(capacity.limit || 1) * 0.9} aria-label="Capacity in use"></meter>
      ${capacity.queued ? html`<span class="state wait">${capacity.queued} in the queue</span>` : html`<span class="faint">No create waits.</span>`}</p>` : null}
    ${troubles.map((one, index) => html`<p class="problem" key=${index}><strong>${one.part}${one.node_id ? ` ${one.node_id}` : ""}:</strong> ${one.detail} <em>${one.fix}</em></p>`)}
    <h2>Nodes</h2>${found.missing.includes("nodes and health") ? null : found.health === null ? html`<p class="nothing">Nodes and health are shown to administrators.</p>` : html`<div class="scroll"><table class="cards">
      <thead><tr><th>Node</th><th>Driver</th><th>In rotation</th><th>Sandboxes</th><th>Found wrong</th></tr></thead><tbody>
      ${nodes.map((one) => html`<tr key=${one.name}><td data-name="Node">${one.name || one.node_id}</td><td data-name="Driver">${one.driver}</td>
        <td data-name="In rotation">${one.in_rotation ? "yes" : html`<span class="state bad">no</span>`}</td><td data-name="Sandboxes">${shares.nodes[one.node_id] ?? 0}</td>
        <td data-name="Found wrong">${ofNode(one).length ? ofNode(one).map((trouble, index) => html`<span key=${index}>${trouble.detail} <em>${trouble.fix}</em></span>`) : html`<span class="faint">nothing</span>`}</td></tr>`)}</tbody></table></div>
      ${preparations.length ? html`<h2>Being built</h2><ul>${preparations.map((one, index) => html`<li key=${index}><strong>${one.template}</strong> on ${one.node_id}: ${one.step}</li>`)}</ul>` : null}`}
    <h2>Templates</h2><div class="scroll"><table><thead><tr><th>Template</th><th>In use</th><th>In its pool</th><th>Prepared</th></tr></thead><tbody>
      ${found.templates.map((one) => html`<tr key=${one.name}><td><strong>${one.name}</strong><br /><span class="faint">${one.description || one.image}</span></td>
        <td>${shares.by_template[one.name] ?? 0}</td><td>${shares.pools[one.name] ?? 0}</td>
        <td>${one.nodes.filter((node) => node.prepared).length} of ${one.nodes.length} ${one.nodes.length === 1 ? "node" : "nodes"}</td></tr>`)}</tbody></table></div>`;
}
