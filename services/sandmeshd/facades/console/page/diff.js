// What changed between two texts, line by line.

import { html } from "./preact.js";

const AROUND = 3;
const MOST_WORK = 4_000_000;

function middle(old, now) {
  if (old.length * now.length > MOST_WORK) return [...old.map((line) => ["-", line]), ...now.map((line) => ["+", line])];
  const width = now.length + 1;
  const common = new Uint32Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) {
      common[i * width + j] = old[i] === now[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  const found = [];
  let i = 0, j = 0;
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) { found.push([" ", old[i]]); i += 1; j += 1; }
    else if (j === now.length || (i < old.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) found.push(["-", old[i++]]);
    else found.push(["+", now[j++]]);
  }
  return found;
}

// Rows of a mark (" ", "-", "+", or "…" for lines that are left out) and a line.
export function compare(before, after) {
  const [old, now] = [before.split("\n"), after.split("\n")];
  let start = 0, end = 0;
  while (start < Math.min(old.length, now.length) && old[start] === now[start]) start += 1;
  while (end < Math.min(old.length, now.length) - start && old[old.length - 1 - end] === now[now.length - 1 - end]) end += 1;
  const rows = [...old.slice(0, start).map((line) => [" ", line]), ...middle(old.slice(start, old.length - end), now.slice(start, now.length - end)),
    ...old.slice(old.length - end).map((line) => [" ", line])];
  const near = new Uint8Array(rows.length);
  rows.forEach(([mark], at) => { if (mark !== " ") near.fill(1, Math.max(0, at - AROUND), at + AROUND + 1); });
  return rows.flatMap((row, at) => (near[at] ? [row] : near[at - 1] ? [["…", ""]] : []));
}

const NAMES = { "+": "added", "-": "removed" };

export function Diff({ before, after }) {
  // A last line that ends has no other after it.
  const rows = before === after ? [] : compare(before, after).filter((row, at, all) => at < all.length - 1 || row.join("").trim());
  if (!rows.length) return html`<p class="faint">Nothing is changed.</p>`;
  return html`<pre class="diff" tabindex="0" aria-label="What is changed">${rows.map(([mark, line], at) =>
    html`<span key=${at} class=${NAMES[mark] || ""}>${mark} ${line}${"\n"}</span>`)}</pre>`;
}
