// Who may do what, and who did: tokens, quotas, usage by project, the audit.

import { html, useEffect, useState } from "./preact.js";
import { json, post, request } from "./api.js";
import { Confirm } from "./actions.js";
import { age, bytes, clock } from "./format.js";
import { Missing } from "./mesh.js";

const SHOWN = 50;
const DAY = 24 * 3600;
const SCOPES = [["user", "user: their own sandboxes"], ["read-only", "read-only: only shows"], ["project-admin", "project-admin: a project's"], ["admin", "admin: everything"]];
const LIMITS = ["sandboxes", "memory", "cpus", "creates_per_minute", "snapshot_bytes", "exposed_ports", "calls_in_flight"];
const SIZES = new Set(["memory", "snapshot_bytes"]);

const amount = (name, value) => (SIZES.has(name) ? bytes(value) : `${Math.round(value * 100) / 100}`);
const put = (path, body) => json(path, { method: "PUT", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });

function NewToken({ done }) {
  const [secret, setSecret] = useState("");
  const [problem, setProblem] = useState("");
  const create = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target), days = Number(form.get("days"));
    try {
      const made = await post("tokens", { name: form.get("name"), scope: form.get("scope"), of: form.get("of"), seconds: days ? days * DAY : null });
      setSecret(made.secret); setProblem(""); event.target.reset(); done();
    } catch (error) { setProblem(error.message); }
  };
  return html`<details><summary>New token</summary><form class="fields" onSubmit=${create}>
      <label>Name <input name="name" required maxlength="63" autocomplete="off" /></label>
      <label>Scope <select name="scope">${SCOPES.map(([scope, title]) => html`<option key=${scope} value=${scope}>${title}</option>`)}</select></label>
      <label>User or project <input name="of" maxlength="63" autocomplete="off" placeholder="a user: as its name" /></label>
      <label>Days <input name="days" type="number" min="0" max="3650" value="30" title="0: it does not expire" /></label><button class="primary">Create</button></form>
    ${problem ? html`<p class="problem" role="alert">${problem}</p>` : null}</details>
    ${secret ? html`<p class="notice" role="status">Its secret, which is shown this once: <code>${secret}</code></p>` : null}`;
}

function Tokens({ rows, session, reload }) {
  const [revoking, setRevoking] = useState(null);
  const time = (value, none) => (value === null ? none : clock(value));
  return html`<h2>Tokens <span class="count">${rows.length}</span></h2>${session.read_only ? null : html`<${NewToken} done=${reload} />`}
    ${rows.length ? html`<div class="scroll"><table class="cards"><thead><tr><th>Name</th><th>Scope</th><th>Of</th><th>Last used</th><th>Ends in</th><th><span class="hidden">Actions</span></th></tr></thead><tbody>
    ${rows.map((one) => html`<tr key=${one.id}><td data-name="Name">${one.name}</td><td data-name="Scope">${one.scope}</td><td data-name="Of">${one.of || html`<span class="faint">everything</span>`}</td>
      <td data-name="Last used">${time(one.used, "never")}</td><td data-name="Ends in">${one.expires === null ? "never" : age(one.expires - Date.now())}</td>
      <td class="end">${session.read_only ? null : html`<span class="actions compact"><button class="danger" aria-label=${`Revoke ${one.name}`} onClick=${() => setRevoking(one)}>Revoke</button></span>`}</td></tr>`)}</tbody></table></div>`
    : html`<p class="nothing">There are no tokens.</p>`}
    ${revoking ? html`<${Confirm} title="Revoke this token?" action="Revoke it" close=${() => setRevoking(null)} text=${`What uses ${revoking.name} is refused from now on.`}
      done=${async () => { await request(`tokens/${encodeURIComponent(revoking.id)}`, { method: "DELETE" }); reload(); }} />` : null}`;
}

function NewLimit({ done }) {
  const [note, setNote] = useState("");
  const set = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target), value = form.get("value").trim(), whose = form.get("whose");
    try { await put("quota", { [whose]: form.get("name"), limit: form.get("limit"), value: value || null }); setNote("Set."); done(); } catch (error) { setNote(error.message); }
  };
  return html`<details><summary>Set a limit</summary><form class="fields" onSubmit=${set}>
    <label>Of <select name="whose"><option value="project">a project</option><option value="user">a user</option></select></label><label>Name <input name="name" required maxlength="63" autocomplete="off" /></label>
    <label>Limit <select name="limit">${LIMITS.map((one) => html`<option key=${one} value=${one}>${one.replaceAll("_", " ")}</option>`)}</select></label>
    <label>Value <input name="value" autocomplete="off" placeholder="none" title="A number, or a size such as 4GiB; empty: no limit" /></label><button class="primary">Set</button><span class="note" role="status">${note}</span></form></details>`;
}

function Quotas({ rows, session, reload }) {
  const used = (one) => LIMITS.filter((name) => one.limits[name] !== undefined || one.use[name]);
  return html`<h2>Quotas</h2>${session.read_only ? null : html`<${NewLimit} done=${reload} />`}
    ${rows.length ? html`<div class="scroll"><table class="cards"><thead><tr><th>Of</th><th>In use, and the limit</th></tr></thead><tbody>${rows.map((one) => html`<tr key=${`${one.project}/${one.user}`}>
      <td data-name="Of">${one.project ? `project ${one.project}` : `user ${one.user}`}${one.users ? html` <span class="faint">${one.users} ${one.users === 1 ? "user" : "users"}</span>` : null}</td>
      <td data-name="In use, and the limit">${used(one).map((name) => html`<span class="quota" key=${name}>${name.replaceAll("_", " ")} <strong>${amount(name, one.use[name] ?? 0)}</strong>${one.limits[name] === undefined ? "" : ` of ${amount(name, one.limits[name])}`}</span> `)}</td></tr>`)}</tbody></table></div>`
    : html`<p class="nothing">No limit is set, and nothing is in use.</p>`}`;
}

function Usage({ rows }) {
  const hours = (value) => (value < 10 ? value.toFixed(2) : Math.round(value).toLocaleString());
  return html`<h2>Usage by project</h2>${rows.length ? html`<div class="scroll"><table class="cards"><thead><tr><th>Project</th><th>Sandbox hours</th><th>CPU hours</th><th>GiB hours</th><th>Traffic</th><th>Cost</th></tr></thead><tbody>
    ${rows.map((one) => html`<tr key=${one.project}><td data-name="Project">${one.project}</td><td data-name="Sandbox hours">${hours(one.hours)}</td><td data-name="CPU hours">${hours(one.cpu_hours)}</td>
      <td data-name="GiB hours">${hours(one.memory_gib_hours)}</td><td data-name="Traffic">${bytes(one.egress_bytes)}</td><td data-name="Cost">${one.cost ? one.cost.toFixed(2) : "–"}</td></tr>`)}</tbody></table></div>`
    : html`<p class="nothing">Nothing was used.</p>`}`;
}

function Audit({ rows }) {
  const [words, setWords] = useState("");
  const [all, setAll] = useState(false);
  const text = (one) => [one.who, one.method, one.outcome, ...one.sandboxes, ...Object.entries(one.details).map(([name, value]) => `${name}=${value}`)].join(" ");
  const found = rows.filter((one) => text(one).toLowerCase().includes(words.toLowerCase()));
  return html`<div class="bar"><h2>Audit</h2><input type="search" placeholder="Filter" aria-label="Filter the audit" value=${words} onInput=${(event) => setWords(event.target.value)} /></div>
    ${found.length ? html`<div class="scroll"><table class="cards"><thead><tr><th>Time</th><th>Who</th><th>Method</th><th>Outcome</th><th>What</th></tr></thead><tbody>
    ${found.slice(0, all ? found.length : SHOWN).map((one) => html`<tr key=${one.id}><td data-name="Time">${clock(one.time)}</td><td data-name="Who" title=${one.peer}>${one.who || html`<span class="faint">nobody</span>`}</td><td data-name="Method">${one.method}</td>
      <td data-name="Outcome"><span class=${`state ${one.outcome === "OK" ? "good" : "bad"}`}>${one.outcome}</span></td>
      <td data-name="What">${one.sandboxes.map((id) => html`<a class="mono" key=${id} href=${`#/sandbox/${encodeURIComponent(id)}`}>${id}</a> `)}<span class="faint">${Object.entries(one.details).map(([name, value]) => `${name}=${value}`).join(", ")}</span></td></tr>`)}</tbody></table></div>
    ${all || found.length <= SHOWN ? null : html`<p class="buttons"><button onClick=${() => setAll(true)}>Show all ${found.length}</button></p>`}`
    : html`<p class="nothing">No entry${words ? ` matches “${words}”` : ""}.</p>`}`;
}

export function Access({ session }) {
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState("");
  const load = () => json("access").then((value) => { setFound(value); setProblem(""); }, (error) => setProblem(error.message));
  useEffect(() => { load(); }, []);
  if (!found) return html`<h1>Access</h1>${problem ? html`<p class="problem" role="alert">${problem}</p>` : html`<p class="loading">Asking the mesh…</p>`}`;
  const parts = [["tokens", Tokens], ["quotas", Quotas], ["usage", Usage], ["audit", Audit]].filter(([name]) => found[name] !== null);
  return html`<div class="bar"><h1>Access</h1><button onClick=${load}>Read again</button></div>${problem ? html`<p class="problem" role="alert">${problem}</p>` : null}
    <${Missing} names=${found.missing} />
    ${parts.length ? parts.map(([name, View]) => html`<${View} key=${name} rows=${found[name]} session=${session} reload=${load} />`)
      : found.missing.length ? null : html`<p class="nothing">Tokens, quotas, usage and the audit are shown to administrators, of the mesh or of a project.</p>`}`;
}
