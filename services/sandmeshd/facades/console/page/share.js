// A link for another person, who then sees what this session shows and can change nothing.

import { html, useEffect, useRef, useState } from "./preact.js";
import { post } from "./api.js";

function Dialog({ close }) {
  const dialog = useRef(null);
  const [url, setUrl] = useState("");
  const [note, setNote] = useState("");
  useEffect(() => {
    dialog.current.showModal();
    post("link").then((made) => setUrl(made.url), (error) => setNote(error.message));
  }, []);
  const copy = async () => {
    try { await navigator.clipboard.writeText(url); setNote("Copied."); } catch { setNote("This browser does not allow it: select the text."); }
  };
  return html`<dialog ref=${dialog} onClose=${close} aria-labelledby="share-title"><h2 id="share-title">A read-only link</h2>
    <p>Who opens it sees what you see, and can use, change and end nothing. It opens once, within five minutes, and lasts as long as your console.</p>
    <pre tabindex="0" aria-label="The link">${url || "…"}</pre><p class="buttons"><span class="note" role="status">${note}</span><button disabled=${!url} onClick=${copy}>Copy</button>
    <button onClick=${() => dialog.current.close()}>Close</button></p></dialog>`;
}

export function Share() {
  const [open, setOpen] = useState(false);
  return html`<button class="quiet" onClick=${() => setOpen(true)}>Share</button>${open ? html`<${Dialog} close=${() => setOpen(false)} />` : null}`;
}
