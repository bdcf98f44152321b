// Opens a sandbox's desktop, browser or phone, where a person can take over from the agent.

import { html, useState } from "./preact.js";
import { box, json, post } from "./api.js";

const SECONDS = 3600;
const LEFT = 60_000;
const NAMES = { desktop: "desktop", browser: "browser", mobile: "phone" };

async function url(id, kind) {
  const { ports } = await json(`${box(id)}/ports`);
  const there = ports.find((one) => one.kind === kind && one.expires - Date.now() > LEFT);
  return (there ?? await post(`${box(id)}/ports`, { kind, seconds: SECONDS })).url;
}

export function Watch({ id, views }) {
  const [note, setNote] = useState("");
  const [opened, setOpened] = useState("");
  const open = async (kind) => {
    setNote("");
    try {
      const found = await url(id, kind);
      setOpened(found);
      window.open(found, "_blank", "noopener,noreferrer");
    } catch (error) { setNote(error.message); }
  };
  if (!views.length) return null;
  return html`<span class="actions">${views.map((kind) => html`<button key=${kind} class="primary" onClick=${() => open(kind)}>Open its ${NAMES[kind]}</button>`)}
    ${opened ? html`<a href=${opened} target="_blank" rel="noopener noreferrer">In a new tab</a>` : null}<span class="note" role="status">${note}</span></span>`;
}
