// The list of sandboxes: filter, sort, pages, and what to do where there is none.

import { html, useEffect, useMemo, useRef, useState } from "./preact.js";
import { Actions } from "./actions.js";
import { post } from "./api.js";
import { Welcome } from "./welcome.js";
import { age, bytes, middle, tone } from "./format.js";

const PAGE = 100;
const USE_SECONDS = 10;
const COLUMNS = [
  ["id", "Sandbox", (one) => one.id],
  ["state", "State", (one) => one.state],
  ["template", "Template", (one) => one.image || one.template],
  ["user", "Owner", (one) => one.user],
  ["created", "Age", (one) => -one.created],
  ["expires", "Ends in", (one) => one.expires ?? Infinity],
  ["node", "Node", (one) => one.node],
];

export function State({ value }) {
  return html`<span class=${`state ${tone(value)}`}>${value.toLowerCase()}</span>`;
}

function matches(one, words) {
  const text = [one.id, one.state, one.template, one.image, one.user, one.session, one.node, one.driver,
    ...Object.entries(one.labels).map(([name, value]) => `${name}=${value}`)].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

// What the sandboxes of a page use; to ask counts as a use of each, so that a person has to want it.
function useUse(ids, wanted) {
  const [use, setUse] = useState({});
  const asked = useRef(ids);
  asked.current = ids;
  useEffect(() => {
    if (!wanted) return undefined;
    let asking = false;
    const load = () => {
      if (asking || document.hidden || !asked.current.length) return;
      asking = true;
      post("use", { ids: asked.current }).then((found) => setUse(found.use), () => {}).finally(() => { asking = false; });
    };
    load();
    const timer = setInterval(load, USE_SECONDS * 1000);
    return () => clearInterval(timer);
  }, [wanted]);
  return wanted ? use : null;
}

const USES = [["CPU", (one) => one.cpu.toFixed(2)], ["Memory", (one) => bytes(one.memory)], ["Network", (one) => one.sent === null ? "–" : bytes(one.sent + one.received)]];

function Row({ one, session, now, use }) {
  const labels = Object.entries(one.labels).slice(0, 3);
  return html`<tr>
    <td data-name="Sandbox"><a href=${`#/sandbox/${encodeURIComponent(one.id)}`}>${one.id}</a>
      ${labels.map(([name, value]) => html`<span class="label" key=${name}>${name}=${value}</span>`)}</td>
    <td data-name="State"><${State} value=${one.state} /></td>
    <td data-name="Template">${one.image || one.template}</td>
    <td data-name="Owner" title=${one.user}>${middle(one.user, 18) || html`<span class="faint">${one.in_use ? "administrator" : "pool"}</span>`}</td>
    <td data-name="Age">${age(now - one.created)}</td>
    <td data-name="Ends in">${one.expires ? age(one.expires - now) : html`<span class="faint">–</span>`}</td>
    <td data-name="Node" >${one.node || html`<span class="faint">–</span>`} <span class="faint">${one.driver}</span></td>
    ${use ? USES.map(([name, value]) => html`<td class="use" key=${name} data-name=${name}>${use[one.id] ? value(use[one.id]) : html`<span class="faint">–</span>`}</td>`) : null}
    <td class="end"><${Actions} sandbox=${one} session=${session} compact /></td></tr>`;
}

function useClock() {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

// How many are in pools, and which are shown in their order.
function selected(all, words, pools, [column, direction]) {
  const isPooled = (one) => !one.in_use && one.state === "READY";
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const order = COLUMNS.find(([name]) => name === column)[2];
  const found = all.filter((one) => (pools || !isPooled(one)) && matches(one, wanted)).map((one) => [order(one), one])
    .sort(([a, one], [b, other]) => (a < b ? -1 : a > b ? 1 : one.id < other.id ? -1 : 1) * direction);
  return [all.filter(isPooled).length, found.map(([, one]) => one)];
}

export function List({ store, session }) {
  const [words, setWords] = useState("");
  const [pools, setPools] = useState(false);
  const [sort, setSort] = useState(["created", 1]);
  const [page, setPage] = useState(0);
  const [uses, setUses] = useState(false);
  const now = useClock();
  const field = useRef(null);
  useEffect(() => {
    const press = (event) => {
      const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName);
      if (event.key === "/" && !typing) { event.preventDefault(); field.current?.focus(); }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  // The clock draws ages each second; thousands are filtered and sorted only where something has changed.
  const [pooled, found] = useMemo(() => selected([...store.sandboxes.values()], words, pools, sort), [store, store.version, words, pools, sort]);
  const pages = Math.max(1, Math.ceil(found.length / PAGE)), at = Math.min(page, pages - 1);
  const shown = found.slice(at * PAGE, (at + 1) * PAGE);
  const use = useUse(shown.filter((one) => one.in_use && one.state === "READY").map((one) => one.id), uses && !session.read_only);
  if (!store.loaded) return html`<p class="loading">Reading the list of sandboxes…</p>`;
  const used = store.sandboxes.size - pooled;
  if (!used && !pools) return html`<${Welcome} session=${session} pooled=${pooled} show=${() => setPools(true)} />`;
  const heading = ([name, title]) => html`<th key=${name} aria-sort=${sort[0] === name ? (sort[1] > 0 ? "ascending" : "descending") : "none"}>
    <button onClick=${() => setSort([name, sort[0] === name ? -sort[1] : 1])}>${title}</button></th>`;
  return html`<div class="bar"><h1>Sandboxes <span class="count">${used}</span></h1>
      <input ref=${field} type="search" placeholder="Filter by anything  /" aria-label="Filter" value=${words}
        onInput=${(event) => { setWords(event.target.value); setPage(0); }} />
      <label class="check"><input type="checkbox" checked=${pools} onChange=${(event) => setPools(event.target.checked)} />
        Pools (${pooled})</label>
      ${session.read_only ? null : html`<label class="check" title="Asked every ${USE_SECONDS} seconds, which counts as a use of each sandbox shown"><input type="checkbox" checked=${uses} onChange=${(event) => setUses(event.target.checked)} />
        Use</label>`}</div>
    <div class="scroll"><table class="cards"><thead><tr>${COLUMNS.map(heading)}${use ? USES.map(([name]) => html`<th key=${name}>${name}</th>`) : null}<th><span class="hidden">Actions</span></th></tr></thead>
      <tbody>${shown.map((one) => html`<${Row} key=${one.id} one=${one} session=${session} now=${now} use=${use} />`)}</tbody></table></div>
    ${found.length ? null : html`<p class="nothing">No sandbox matches “${words}”.</p>`}
    ${pages > 1 ? html`<p class="pages"><button disabled=${!at} onClick=${() => setPage(at - 1)}>Previous</button>
      <span>Page ${at + 1} of ${pages}, ${found.length} sandboxes</span>
      <button disabled=${at === pages - 1} onClick=${() => setPage(at + 1)}>Next</button></p>` : null}`;
}
