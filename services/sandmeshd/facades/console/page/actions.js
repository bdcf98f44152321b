// What can be done with a sandbox, and the dialog that asks before one is ended.

import { html, useEffect, useRef, useState } from "./preact.js";
import { box, post } from "./api.js";

const HOUR = 3600;

export function Confirm({ title, text, action, close, done }) {
  const dialog = useRef(null);
  const [problem, setProblem] = useState("");
  useEffect(() => dialog.current.showModal(), []);
  const confirm = async (event) => {
    event.preventDefault();
    try { await done(); dialog.current.close(); } catch (error) { setProblem(error.message); }
  };
  return html`<dialog ref=${dialog} onClose=${close} aria-labelledby="confirm-title"><form onSubmit=${confirm}>
    <h2 id="confirm-title">${title}</h2><p>${text}</p>${problem ? html`<p class="problem" role="alert">${problem}</p>` : null}
    <p class="buttons"><button type="button" onClick=${() => dialog.current.close()}>Cancel</button>
    <button class="danger">${action}</button></p></form></dialog>`;
}

export function Actions({ sandbox, session, compact }) {
  const [asking, setAsking] = useState(false);
  const [note, setNote] = useState("");
  const [busy, setBusy] = useState(false);
  if (session.read_only || !sandbox || !["READY", "PAUSED", "LOST", "STARTING", "PENDING"].includes(sandbox.state)) return null;
  const act = (name, body, said) => async () => {
    setBusy(true);
    setNote("");
    try { await post(`${box(sandbox.id)}/${name}`, body); setNote(said); }
    catch (error) { setNote(error.message); }
    finally { setBusy(false); }
  };
  const pausing = sandbox.state === "PAUSED"
    ? html`<button disabled=${busy} onClick=${act("resume", {}, "Resumed.")}>Resume</button>`
    : html`<button disabled=${busy} onClick=${act("pause", {}, "Paused.")}>Pause</button>`;
  const usable = sandbox.in_use && ["READY", "PAUSED"].includes(sandbox.state);
  return html`<span class=${compact ? "actions compact" : "actions"}>
    ${usable ? html`<button disabled=${busy} title="Its lease then ends in one hour" onClick=${act("renew", { seconds: HOUR }, "Renewed for one hour.")}>Renew</button>${pausing}` : null}
    <button class="danger" disabled=${busy} onClick=${() => setAsking(true)} aria-label=${`Kill ${sandbox.id}`}>Kill</button>
    <span class="note" role="status">${note}</span>
    ${asking ? html`<${Confirm} title="Kill this sandbox?" action="Kill it" close=${() => setAsking(false)}
      text=${`${sandbox.id} and everything in it is deleted${sandbox.user ? `; ${sandbox.user} is told` : ""}.`}
      done=${() => post(`${box(sandbox.id)}/kill`)} />` : null}</span>`;
}
