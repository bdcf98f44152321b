// URLs that lead into a sandbox: its ports, and pages that show its desktop, browser or phone.

import { html, useEffect, useState } from "./preact.js";
import { box, json, post, request } from "./api.js";
import { age } from "./format.js";

const SECONDS = 3600;
const VIEWS = [["desktop", "Desktop"], ["browser", "Browser"], ["mobile", "Phone"]];

function named(one) { return one.kind === "port" ? `port ${one.port}` : one.kind.replace("-readonly", ", only to look"); }

export function Ports({ id }) {
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState("");
  const [port, setPort] = useState("8000");
  const failed = (error) => setProblem(error.message);
  const load = () => json(`${box(id)}/ports`).then((value) => setFound(value.ports), failed);
  useEffect(() => { load(); }, [id]);
  const open = (fields) => { setProblem(""); return post(`${box(id)}/ports`, { seconds: SECONDS, ...fields }).then(load, failed); };
  const revoke = (one) => request(`${box(id)}/ports/${encodeURIComponent(one.id)}`, { method: "DELETE" }).then(load, failed);
  return html`<form class="buttons" onSubmit=${(event) => { event.preventDefault(); open({ port: Number(port) }); }}>
      <label>Port <input type="number" min="1" max="65535" required value=${port} onInput=${(event) => setPort(event.target.value)} /></label><button class="primary">Expose</button>
      ${VIEWS.map(([kind, title]) => html`<button type="button" key=${kind} onClick=${() => open({ kind })}>${title}</button>`)}</form>
    <p class="faint">Anyone with a URL can use it, for one hour. The pages of a desktop, browser and phone let a person take over.</p>
    ${problem ? html`<p class="problem" role="alert">${problem}</p>` : null}
    ${found === null ? null : found.length ? html`<div class="scroll"><table class="cards"><thead><tr><th>What</th><th>URL</th><th>Ends in</th><th>Open connections</th><th><span class="hidden">Actions</span></th></tr></thead><tbody>
      ${found.map((one) => html`<tr key=${one.id}><td data-name="What">${named(one)}</td><td data-name="URL"><a href=${one.url} target="_blank" rel="noopener noreferrer">${one.url}</a></td>
        <td data-name="Ends in">${age(one.expires - Date.now())}</td><td data-name="Open connections">${one.connections}</td>
        <td class="end"><span class="actions compact"><button class="danger" aria-label=${`Revoke ${named(one)}`} onClick=${() => revoke(one)}>Revoke</button></span></td></tr>`)}</tbody></table></div>`
      : html`<p class="nothing">Nothing is exposed.</p>`}`;
}
