// Files of a sandbox: its directories, contents as text or pictures, uploads and downloads.

import { html, useEffect, useRef, useState } from "./preact.js";
import { box, json, post, request } from "./api.js";
import { Confirm } from "./actions.js";
import { bytes, clock, shortened } from "./format.js";
import { Editor, editable } from "./editor.js";

const MOST_SHOWN = 1 << 20;
const PICTURES = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" };

const join = (folder, name) => (folder === "." ? name : `${folder}/${name}`);
const place = (path) => `path=${encodeURIComponent(path)}`;

function Content({ id, path, size, close }) {
  const [text, setText] = useState(null);
  const [picture, setPicture] = useState("");
  const [problem, setProblem] = useState("");
  const [editing, setEditing] = useState(null);
  const [note, setNote] = useState("");
  const [turn, setTurn] = useState(0);
  const file = `${box(id)}/file?${place(path)}`;
  const read = async () => (await request(file)).arrayBuffer();
  const edit = () => read().then((found) => {
    const whole = editable(found);
    if (whole === null) setNote("It is not UTF-8 text with one kind of line ends: edit it in the terminal.");
    else setEditing(whole);
  }).catch((error) => setNote(error.message));
  useEffect(() => {
    let url = "";
    const load = async () => {
      if (size > 16 * MOST_SHOWN) throw new Error(`it has ${bytes(size)}: download it`);
      const found = await read();
      const type = PICTURES[path.split(".").pop().toLowerCase()];
      if (type) setPicture(url = URL.createObjectURL(new Blob([found], { type })));
      else if (new Uint8Array(found.slice(0, 4096)).includes(0)) throw new Error("it is not text: download it");
      else setText(new TextDecoder().decode(found.slice(0, MOST_SHOWN)) + (found.byteLength > MOST_SHOWN ? "\n…the rest is left out: download it" : ""));
    };
    load().catch((error) => setProblem(error.message));
    return () => { if (url) URL.revokeObjectURL(url); };
  }, [id, path, turn]);
  return html`<section class="content" aria-label=${path}><p class="buttons"><strong>${path}</strong> <span class="faint">${bytes(size)}</span>
      <${Download} id=${id} path=${path} />${text === null || size > MOST_SHOWN || editing !== null ? null : html`<button onClick=${edit}>Edit</button>`}<button onClick=${close}>Close</button><span class="note" role="status">${note}</span></p>
    ${editing !== null ? html`<${Editor} text=${editing} read=${read} write=${(value) => request(file, { method: "PUT", body: value })} close=${() => { setEditing(null); setTurn(turn + 1); }} />`
      : problem ? html`<p class="nothing">${problem}</p>` : picture ? html`<img src=${picture} alt=${path} />`
      : text === null ? html`<p class="loading">Reading…</p>` : html`<pre tabindex="0">${text}</pre>`}</section>`;
}

function Download({ id, path }) {
  return html`<a class="button" href=${`api/${box(id)}/file?${place(path)}`} download=${path.split("/").pop()}>Download</a>`;
}

function upload(id, path, file, progressed) {
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest();
    sending.open("PUT", `api/${box(id)}/file?${place(path)}`);
    sending.upload.onprogress = (event) => progressed(event.loaded, event.total);
    sending.onload = () => {
      if (sending.status < 300) return resolve();
      let message = `status ${sending.status}`;
      try { message = JSON.parse(sending.responseText).detail; } catch { /* it has no more to say */ }
      reject(new Error(message));
    };
    sending.onerror = () => reject(new Error("the console does not answer"));
    sending.send(file);
  });
}

export function Files({ id }) {
  const [folder, setFolder] = useState(".");
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState("");
  const [note, setNote] = useState("");
  const [opened, setOpened] = useState(null);
  const [removing, setRemoving] = useState("");
  const chooser = useRef(null);
  const load = (path = folder) => json(`${box(id)}/files?${place(path)}`).then(
    (value) => { setFound(value); setProblem(""); }, (error) => { setFound(null); setProblem(error.message); });
  useEffect(() => { load(folder); }, [id, folder]);
  const send = async (files) => {
    for (const file of files) {
      try {
        await upload(id, join(folder, file.name), file, (sent, all) => setNote(`${file.name}: ${bytes(sent)} of ${bytes(all)}`));
        setNote(`${file.name} was uploaded.`);
      } catch (error) { setNote(`${file.name} was not uploaded: ${error.message}`); }
    }
    await load();
  };
  const parts = folder === "." ? [] : folder.split("/");
  const entries = found ? found.entries.slice().sort((a, b) => (a.type === "directory" ? 0 : 1) - (b.type === "directory" ? 0 : 1) || (a.name < b.name ? -1 : 1)) : [];
  const name = (one) => {
    const shown = shortened(one.name, 200);
    if (!one.text) return html`<span title="Its name is not text: use the command line">${shown}</span>`;
    if (one.type === "directory") return html`<button class="link" onClick=${() => { setOpened(null); setFolder(join(folder, one.name)); }}>${shown}/</button>`;
    if (one.type === "file") return html`<button class="link" onClick=${() => setOpened({ path: join(folder, one.name), size: one.size })}>${shown}</button>`;
    return html`<span>${shown}${one.target ? html` <span class="faint">→ ${shortened(one.target, 80)}</span>` : null}</span>`;
  };
  return html`<div class=${"files"} onDragOver=${(event) => event.preventDefault()} onDrop=${(event) => { event.preventDefault(); send([...event.dataTransfer.files]); }}>
    <p class="buttons"><span class="path"><button class="link" onClick=${() => setFolder(".")}>workspace</button>${parts.map((part, index) => html`<span key=${index}>
        / <button class="link" onClick=${() => setFolder(parts.slice(0, index + 1).join("/"))}>${part}</button></span>`)}</span>
      <input ref=${chooser} type="file" multiple class="hidden" tabindex="-1" aria-label="Files to upload" onChange=${(event) => { send([...event.target.files]); event.target.value = ""; }} />
      <button onClick=${() => chooser.current.click()}>Upload</button>
      <button onClick=${async () => { const chosen = prompt("Name of the directory"); if (chosen) { try { await post(`${box(id)}/directory?${place(join(folder, chosen))}`); load(); } catch (error) { setNote(error.message); } } }}>New directory</button>
      <button onClick=${() => load()}>Read again</button><span class="note" role="status">${note}</span></p>
    ${problem ? html`<p class="problem" role="alert">${problem}</p>` : null}
    ${opened ? html`<${Content} key=${opened.path} id=${id} ...${opened} close=${() => setOpened(null)} />` : null}
    ${found ? html`<div class="scroll"><table class="cards"><thead><tr><th>Name</th><th>Size</th><th>Changed</th><th><span class="hidden">Actions</span></th></tr></thead><tbody>
      ${entries.map((one) => html`<tr key=${one.name}><td data-name="Name">${name(one)}</td><td data-name="Size">${one.type === "file" ? bytes(one.size) : html`<span class="faint">${one.type}</span>`}</td>
        <td data-name="Changed">${clock(one.modified)}</td><td class="end"><span class="actions compact">${one.text && one.type === "file" ? html`<${Download} id=${id} path=${join(folder, one.name)} />` : null}
        ${one.text ? html`<button class="danger" aria-label=${`Delete ${one.name}`} onClick=${() => setRemoving(join(folder, one.name))}>Delete</button>` : null}</span></td></tr>`)}</tbody></table></div>
      ${entries.length ? null : html`<p class="nothing">This directory is empty. Drop files here to upload them.</p>`}
      ${found.left_out ? html`<p class="faint">${found.left_out} more entries are not shown.</p>` : null}` : null}
    ${removing ? html`<${Confirm} title="Delete it?" text=${`${removing} is deleted, with all that is in it.`} action="Delete" close=${() => setRemoving("")}
      done=${async () => { await request(`${box(id)}/file?${place(removing)}`, { method: "DELETE" }); load(); }} />` : null}</div>`;
}
