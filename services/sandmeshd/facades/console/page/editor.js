// A text file of a sandbox, edited; what is saved is compared with what is there first.

import { html, useState } from "./preact.js";
import { Diff } from "./diff.js";

// Texts of browsers have no carriage returns: a file's are put back, where all of its lines have them.
export function editable(bytes) {
  let text;
  try { text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes); } catch { return null; }
  const lines = text.split("\n").length - 1, returns = text.split("\r").length - 1, both = text.split("\r\n").length - 1;
  return returns && (returns !== both || both !== lines) ? null : text;
}

export function Editor({ text, read, write, close }) {
  const ends = text.includes("\r\n");
  const shown = (value) => (ends ? value.replaceAll("\r\n", "\n") : value);
  const [base, setBase] = useState(shown(text));
  const [now, setNow] = useState(base);
  const [theirs, setTheirs] = useState(null);
  const [note, setNote] = useState("");
  const save = async (over) => {
    try {
      const found = editable(await read());
      const current = found === null ? null : shown(found);
      if (!over && current !== base) { setTheirs(current ?? ""); setNote("The file changed meanwhile; it was not saved."); return; }
      await write(ends ? now.replaceAll("\n", "\r\n") : now);
      setBase(now);
      setTheirs(null);
      setNote("Saved.");
    } catch (error) { setNote(`Not saved: ${error.message}`); }
  };
  const press = (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "s") { event.preventDefault(); if (now !== base) save(false); }
  };
  return html`<div class="editor"><textarea aria-label="Content" rows="14" spellcheck="false" autocapitalize="off" autocomplete="off" value=${now}
      onInput=${(event) => setNow(event.target.value)} onKeyDown=${press}></textarea>
    <p class="buttons"><button class="primary" disabled=${now === base} onClick=${() => save(false)}>Save</button>
      <button onClick=${close}>${now === base ? "Stop editing" : "Discard"}</button><span class="note" role="status">${note}</span></p>
    ${theirs === null ? null : html`<h2>What changed in the sandbox</h2><${Diff} before=${base} after=${theirs} />
      <p class="buttons"><button onClick=${() => { setBase(theirs); setNow(theirs); setTheirs(null); setNote(""); }}>Take theirs</button>
      <button class="danger" onClick=${() => save(true)}>Save mine over it</button></p>`}
    <h2>Your changes</h2><${Diff} before=${base} after=${now} /></div>`;
}
