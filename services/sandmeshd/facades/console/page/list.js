// The list of sandboxes: filter, sort, pages, and what to do where there is none.

import { html, useEffect, useMemo, useRef, useState } from "./preact.js";
import { Actions } from "./actions.js";
import { Welcome } from "./welcome.js";
import { age, middle, tone } from "./format.js";

const PAGE = 100;
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

function Row({ one, session, now }) {
  const labels = Object.entries(one.labels).slice(0, 3);
  return html`<tr>
    <td data-name="Sandbox"><a href=${`#/sandbox/${encodeURIComponent(one.id)}`}>${one.id}</a>
      ${labels.map(([name, value]) => html`<span class="label" key=${name}>${name}=${value}</span>`)}</td>
    <td data-name="State"><${State} value=${one.state} /></td>
    <td data-name="Template">${one.image || one.template}</td>
    <td data-name="Owner" title=${one.user}>${middle(one.user) || html`<span class="faint">${one.in_use ? "administrator" : "pool"}</span>`}</td>
    <td data-name="Age">${age(now - one.created)}</td>
    <td data-name="Ends in">${one.expires ? age(one.expires - now) : html`<span class="faint">–</span>`}</td>
    <td data-name="Node" title=${one.driver}>${one.node || html`<span class="faint">–</span>`}</td>
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

export function List({ store, session }) {
  const [words, setWords] = useState("");
  const [pools, setPools] = useState(false);
  const [sort, setSort] = useState(["created", 1]);
  const [page, setPage] = useState(0);
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
  const all = [...store.sandboxes.values()];
  const pooled = all.filter((one) => !one.in_use && one.state === "READY").length;
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const order = COLUMNS.find(([name]) => name === sort[0])[2];
  const found = all.filter((one) => (pools || one.in_use || one.state !== "READY") && matches(one, wanted))
    .sort((one, other) => {
      const [a, b] = [order(one), order(other)];
      return (a < b ? -1 : a > b ? 1 : one.id < other.id ? -1 : 1) * sort[1];
    });
  if (!store.loaded) return html`<p class="loading">Reading the list of sandboxes…</p>`;
  const used = all.length - pooled;
  if (!used && !pools) return html`<${Welcome} session=${session} pooled=${pooled} show=${() => setPools(true)} />`;
  const pages = Math.max(1, Math.ceil(found.length / PAGE)), at = Math.min(page, pages - 1);
  const heading = ([name, title]) => html`<th key=${name} aria-sort=${sort[0] === name ? (sort[1] > 0 ? "ascending" : "descending") : "none"}>
    <button onClick=${() => setSort([name, sort[0] === name ? -sort[1] : 1])}>${title}</button></th>`;
  return html`<div class="bar"><h1>Sandboxes <span class="count">${used}</span></h1>
      <input ref=${field} type="search" placeholder="Filter by anything  /" aria-label="Filter" value=${words}
        onInput=${(event) => { setWords(event.target.value); setPage(0); }} />
      <label class="check"><input type="checkbox" checked=${pools} onChange=${(event) => setPools(event.target.checked)} />
        Pools (${pooled})</label></div>
    <div class="scroll"><table class="cards"><thead><tr>${COLUMNS.map(heading)}<th><span class="hidden">Actions</span></th></tr></thead>
      <tbody>${found.slice(at * PAGE, (at + 1) * PAGE).map((one) => html`<${Row} key=${one.id} one=${one} session=${session} now=${now} />`)}</tbody></table></div>
    ${found.length ? null : html`<p class="nothing">No sandbox matches “${words}”.</p>`}
    ${pages > 1 ? html`<p class="pages"><button disabled=${!at} onClick=${() => setPage(at - 1)}>Previous</button>
      <span>Page ${at + 1} of ${pages}, ${found.length} sandboxes</span>
      <button disabled=${at === pages - 1} onClick=${() => setPage(at + 1)}>Next</button></p>` : null}`;
}
