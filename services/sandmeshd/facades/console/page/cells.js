// Cells of Python: what they write, and what they show. HTML of a sandbox is shown in a frame without scripts.

import { html, useRef, useState } from "./preact.js";
import { box, request } from "./api.js";
import { plain } from "./format.js";

const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const STYLE = `<meta charset="utf-8"><meta name="color-scheme" content="light dark"><style>
body { font: 14px system-ui, sans-serif; margin: 4px } table { border-collapse: collapse } th, td { border: 1px solid #8886; padding: 3px 8px; text-align: right }</style>`;

// A frame without scripts does not say how high it is: by its rows, about.
function height(text) { return Math.min(420, 60 + 27 * (text.match(/<(tr|p|div|li|br|h\d)\b/gi)?.length ?? 2)); }

function Item({ item }) {
  if (item.type === "image" && IMAGES.has(item.mime)) return html`<img src=${`data:${item.mime};base64,${item.data}`} alt="What the cell shows" />`;
  if (item.type === "rich" && item.forms["text/html"]) return html`<iframe class="rich" sandbox="" title="What the cell shows" style=${`height: ${height(item.forms["text/html"])}px`} srcdoc=${STYLE + item.forms["text/html"]}></iframe>`;
  if (item.type === "rich" && item.forms["image/svg+xml"]) return html`<img src=${`data:image/svg+xml;charset=utf-8,${encodeURIComponent(item.forms["image/svg+xml"])}`} alt="What the cell shows" />`;
  if (item.type === "note") return html`<p class="faint">${item.text}</p>`;
  return html`<pre class=${item.stream === "stderr" ? "error" : ""}>${plain(item.text ?? "")}</pre>`;
}

// Texts of one stream become one text; a display that is replaced changes where it is.
function added(items, row) {
  if (row.type === "cleared") return [];
  const last = items[items.length - 1];
  if (row.type === "text" && last?.type === "text" && last.stream === row.stream) return [...items.slice(0, -1), { ...last, text: last.text + row.text }];
  if (row.replaces && row.display) {
    const at = items.findLastIndex((one) => one.display === row.display);
    if (at >= 0) return items.map((one, index) => (index === at ? row : one));
  }
  return [...items, row];
}

async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}

export function Cells({ id }) {
  const [code, setCode] = useState("");
  const [cells, setCells] = useState([]);
  const [running, setRunning] = useState(null);
  const number = useRef(0);
  const change = (key, changed) => setCells((all) => all.map((one) => (one.key === key ? changed(one) : one)));
  const run = async () => {
    if (running || !code.trim()) return;
    const key = ++number.current, controller = new AbortController();
    setRunning(controller);
    setCells((all) => [...all, { key, code, items: [], state: "running" }]);
    setCode("");
    let end = { failed: true, message: "it was cut off" };
    try {
      const response = await request(`${box(id)}/cell`, { method: "POST", body: JSON.stringify({ code }), signal: controller.signal,
        headers: { "Content-Type": "application/json" } });
      for await (const row of lines(response)) {
        if (row.type === "end") end = row;
        else change(key, (one) => ({ ...one, items: added(one.items, row) }));
      }
    } catch (error) { end = { failed: true, message: controller.signal.aborted ? "stopped" : error.message }; }
    change(key, (one) => ({ ...one, state: end.failed ? `failed: ${end.message}` : "done" }));
    setRunning(null);
  };
  const press = (event) => {
    if (event.key === "Enter" && (event.shiftKey || event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); }
  };
  return html`<div class="cells">${cells.map((one) => html`<section class="cell" key=${one.key} aria-label=${`Cell ${one.key}`}><pre class="code">${one.code}</pre>
      <div class="output" aria-live="polite">${one.items.map((item, index) => html`<${Item} key=${index} item=${item} />`)}</div>
      ${one.state === "done" ? null : html`<p class=${one.state === "running" ? "faint" : "problem"}>${one.state}</p>`}</section>`)}
    <label class="hidden" for="code">Python</label>
    <textarea id="code" rows="4" spellcheck="false" autocapitalize="off" autocomplete="off" placeholder="Python, in the kernel that the agent uses too. Shift+Enter runs it."
      value=${code} onInput=${(event) => setCode(event.target.value)} onKeyDown=${press}></textarea>
    <p class="buttons"><button class="primary" disabled=${!!running} onClick=${run}>Run</button>
      ${running ? html`<button onClick=${() => running.abort()}>Stop</button>` : null}</p></div>`;
}
