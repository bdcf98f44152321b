// What a sandbox uses, now and over the last hour. To ask is a use of it, so it is asked only while a person can see it.

import { html, useEffect, useRef, useState } from "./preact.js";
import { box, json } from "./api.js";
import { bytes } from "./format.js";
import { plots } from "./vendor.js";

const SECONDS = 5;
const HOUR = 3600;
const SHORTEST = 300;
const MOST_SAMPLES = 720;
const MOST_SANDBOXES = 50;

// Disk and network are known from when a page first asked: the agent's samples of an hour have the rest.
const seen = new Map();

function remembered(id, now) {
  const samples = seen.get(id) ?? [];
  seen.delete(id);
  seen.set(id, samples);
  if (seen.size > MOST_SANDBOXES) seen.delete(seen.keys().next().value);
  if (samples.at(-1)?.time !== now.time) samples.push(now);
  if (samples.length > MOST_SAMPLES) samples.shift();
  return samples;
}

function decimals(value) { return value < 10 ? value.toFixed(2) : value.toFixed(1); }
function count(value) { return String(Math.round(value)); }
function speed(value) { return `${bytes(value)}/s`; }
function hours(seconds) { return new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }); }
function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

function rates(samples, name) {
  return samples.map((one, at) => {
    const before = samples[at - 1];
    return before && one[name] >= before[name] ? (one[name] - before[name]) * 1000 / Math.max(1, one.time - before.time) : null;
  });
}

// Steps between lines: of bytes by halves and doubles, of a count whole.
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000];

function options(width, shown, format, pick) {
  const soft = colour("--soft"), line = colour("--line");
  const axis = { stroke: soft, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  const strokes = ["--accent", "--good"].map(colour);
  return {
    width, height: 150, legend: { show: false }, padding: [8, 8, 0, 0],
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: {
      x: { time: true, range: (plot) => { const times = plot.data[0], most = times.at(-1); return [Math.max(most - HOUR, Math.min(times[0], most - SHORTEST)), most]; } },
      y: { range: (_, least, most) => [0, Math.max((most ?? 0) * 1.15, format === decimals ? 0.1 : 4)] },
    },
    axes: [{ ...axis, size: 28, space: 64, values: (_, ticks) => ticks.map(hours) }, { ...axis, size: 68, space: 34, ...(format === count ? { incrs: WHOLE } : format === decimals ? {} : { incrs: POWERS }), values: (_, ticks) => ticks.map(format) }],
    series: [{}, ...shown.map((one, at) => ({ label: one, stroke: strokes[at], width: 2, fill: at || shown.length > 1 ? undefined : `${strokes[0]}22`, points: { show: (plot) => plot.data[0].length < 3, size: 5 }, spanGaps: true }))],
    hooks: { setCursor: [(plot) => pick(plot.cursor.idx ?? null)] },
  };
}

function Plot({ uPlot, title, note, times, lines, format }) {
  const place = useRef(null), plot = useRef(null);
  const [at, setAt] = useState(null);
  const names = Object.keys(lines), data = [times, ...Object.values(lines)];
  const latest = useRef(data);
  latest.current = data;
  useEffect(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(place.current.clientWidth, names, format, setAt), latest.current, place.current);
    };
    draw();
    const observer = new ResizeObserver(() => plot.current.setSize({ width: place.current.clientWidth, height: 150 }));
    observer.observe(place.current);
    dark.addEventListener("change", draw);
    return () => { dark.removeEventListener("change", draw); observer.disconnect(); plot.current.destroy(); };
  }, []);
  useEffect(() => plot.current?.setData(data), [times.at(-1), times.length]);
  const last = at !== null && at < times.length ? at : times.length - 1;
  const words = names.map((name, index) => {
    const value = data[index + 1][last];
    return `${names.length > 1 ? `${name} ` : ""}${value === null || value === undefined ? "–" : format(value)}`;
  });
  return html`<section class="plot"><h2>${title}${note ? html` <span class="faint">${note}</span>` : null}</h2>
    <p class="now">${words.map((one, index) => html`<span key=${index} class=${names.length > 1 ? `line-${index}` : ""}>${one}</span>`)} ${at === null ? null : html`<span class="faint">at ${hours(times[last])}</span>`}</p>
    <div ref=${place} role="img" aria-label=${`${title} over ${times.length} samples, last ${words.join(", ")}`}></div></section>`;
}

export function Usage({ id }) {
  const [found, setFound] = useState(null);
  const [uPlot, setPlots] = useState(null);
  const [problem, setProblem] = useState("");
  useEffect(() => { plots().then((made) => setPlots(() => made), (error) => setProblem(error.message)); }, []);
  useEffect(() => {
    let asking = false;
    const load = () => {
      if (asking || document.hidden) return;
      asking = true;
      json(`${box(id)}/stats`).then((value) => { setFound({ ...value, own: [...remembered(id, value)] }); setProblem(""); }, (error) => setProblem(error.message))
        .finally(() => { asking = false; });
    };
    load();
    const timer = setInterval(load, SECONDS * 1000);
    return () => clearInterval(timer);
  }, [id]);
  if (!found || !uPlot) return problem ? html`<p class="problem" role="alert">${problem}</p>` : html`<p class="loading">Asking the sandbox…</p>`;
  const oldest = found.history[0]?.time ?? found.time, own = found.own;
  const all = [...own.filter((one) => one.time < oldest), ...found.history, found];
  const times = all.map((one) => one.time / 1000), ours = own.map((one) => one.time / 1000);
  return html`${problem ? html`<p class="problem" role="alert">${problem}</p>` : null}
    <p class="faint">Its processes, without its agent. While this is shown the sandbox is asked every ${SECONDS} seconds, which counts as a use of it.</p>
    <div class="plots">
      <${Plot} uPlot=${uPlot} title="Processors" note=${`of ${found.cores}`} times=${times} lines=${{ cpu: all.map((one) => one.cpu) }} format=${decimals} />
      <${Plot} uPlot=${uPlot} title="Memory" note=${`of ${bytes(found.memory_total)}`} times=${times} lines=${{ memory: all.map((one) => one.memory) }} format=${bytes} />
      <${Plot} uPlot=${uPlot} title="Processes" times=${times} lines=${{ processes: all.map((one) => one.processes) }} format=${count} />
      <${Plot} uPlot=${uPlot} title="Disk" note=${`of ${bytes(found.disk_total)}`} times=${ours} lines=${{ disk: own.map((one) => one.disk) }} format=${bytes} />
      ${found.sent === null ? html`<p class="nothing">The driver of this sandbox does not count network traffic.</p>`
        : html`<${Plot} uPlot=${uPlot} title="Network" note=${`${bytes(found.sent)} sent, ${bytes(found.received)} received in all`} times=${ours} lines=${{ sent: rates(own, "sent"), received: rates(own, "received") }} format=${speed} />`}
    </div>`;
}
