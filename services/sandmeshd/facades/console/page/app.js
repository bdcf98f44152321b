// The frame of the console: who is here, which view is shown, and what is said when something fails.

import { h, html, render, useEffect, useState } from "./preact.js";
import { Failure, HAS_SOCKETS, json, post, request, whenEnded } from "./api.js";
import { Store } from "./store.js";
import { List } from "./list.js";
import { Sandbox } from "./sandbox.js";
import { Events } from "./timeline.js";
import { Mesh } from "./mesh.js";
import { Snapshots } from "./snapshots.js";
import { Access } from "./access.js";
import { Share } from "./share.js";

const VIEWS = [["", "Sandboxes"], ["events", "Events"], ["snapshots", "Snapshots"], ["mesh", "Mesh"], ["access", "Access"]];
const ALL = new Set(["admin", "project-admin", "read-only"]);
const more = (scope) => scope !== "sandbox";
const OFFERED = { access: (scope) => ALL.has(scope), snapshots: more, mesh: more };
const store = new Store();

function Ended({ message }) {
  if (!HAS_SOCKETS) return html`<main class="ended"><h1>This browser cannot show the console</h1><p role="alert">${message}</p></main>`;
  return html`<main class="ended"><h1>The console is closed</h1><p role="alert">${message}</p>
    <p>Get a new link where the mesh is, and open it here:</p><pre>sandmesh console</pre></main>`;
}

function Header({ session, view, problem, leave }) {
  const who = session.user || (session.project ? `project ${session.project}` : session.scope);
  return html`<header><a class="brand" href="#/"><img src="icon.svg" alt="" width="24" height="24" />sandmesh</a>
    <nav aria-label="Views">${VIEWS.filter(([path]) => OFFERED[path]?.(session.scope) ?? true).map(([path, name]) => html`<a key=${path} href=${`#/${path}`}
      aria-current=${view === path ? "page" : null}>${name}</a>`)}</nav>
    <span class="who" title=${`Your token's scope is ${session.scope}; the mesh is ${session.address}`}>${who}
      ${session.read_only ? html`<span class="badge">read-only</span>` : null}</span>
    ${session.shares ? html`<${Share} />` : null}<button class="quiet" onClick=${leave}>Sign out</button></header>
    ${problem ? html`<p class="problem" role="status">${problem}</p>` : null}`;
}

function useHash() {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    addEventListener("hashchange", changed);
    changed();  // It may have changed since it was drawn.
    return () => removeEventListener("hashchange", changed);
  }, []);
  return hash.replace(/^#\/?/, "").split("/").map((part) => { try { return decodeURIComponent(part); } catch { return ""; } });
}

function useStore() {
  const [, count] = useState(0);
  useEffect(() => store.subscribe(() => count((n) => n + 1)), []);
}

// Where what had the focus is gone, as a row of a sandbox that was killed, the keyboard goes on at the content.
function useKeptFocus() {
  useEffect(() => {
    let last = null;
    const note = (event) => { last = event.target; };
    const look = new MutationObserver(() => {
      if (!last || last.isConnected || document.activeElement !== document.body) return;
      last = null;
      document.getElementById("main")?.focus({ preventScroll: true });
    });
    addEventListener("focusin", note);
    look.observe(root, { childList: true, subtree: true });
    return () => { removeEventListener("focusin", note); look.disconnect(); };
  }, []);
}

function Console({ session, leave }) {
  const [view, name, tab] = useHash();
  useStore();
  useKeptFocus();
  useEffect(() => { document.title = name ? `${name} · sandmesh` : "sandmesh"; }, [name]);
  const shared = { store, session };
  let shown = html`<${List} ...${shared} />`;
  if (view === "sandbox" && name) shown = html`<${Sandbox} key=${name} id=${name} tab=${tab || "timeline"} ...${shared} />`;
  else if (view === "events") shown = html`<${Events} ...${shared} />`;
  else if (view === "mesh") shown = html`<${Mesh} ...${shared} />`;
  else if (view === "snapshots") shown = html`<${Snapshots} ...${shared} />`;
  else if (view === "access") shown = html`<${Access} ...${shared} />`;
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to content</a>
    <${Header} session=${session} view=${view} problem=${store.problem} leave=${leave} />
    <main id="main" tabindex="-1">${shown}</main>`;
}

function App() {
  const [session, setSession] = useState(null);
  const [message, setMessage] = useState("");
  const close = (why) => { store.close(); setMessage(why); };
  useEffect(() => {
    whenEnded(close);
    if (!HAS_SOCKETS) return setMessage("This browser has no WebSockets, by which the console gets what changes. Use a current browser, or `sandmesh top` and `sandmesh ls` in a terminal.");
    begin().then((found) => { setSession(found); store.open(); }, (error) => close(error.message));
  }, []);
  const leave = async () => {
    await request("session", { method: "DELETE" }).catch(() => {});
    close("You signed out.");
  };
  if (message) return html`<${Ended} message=${message} />`;
  if (!session) return html`<p class="loading">Opening the console…</p>`;
  return html`<${Console} session=${session} leave=${leave} />`;
}

// A link's code is used once; it does not stay in the address or in the history, and is read before the address can change.
const code = /^#code=([\w-]+)$/.exec(location.hash)?.[1];
if (code) history.replaceState(null, "", location.pathname);

async function begin() {
  if (!code) return json("session");
  try {
    return await post("session", { code });
  } catch (error) {
    // Who opens a used link again, with a session that lasts, goes on.
    if (error instanceof Failure && error.status === 401) {
      const response = await fetch("api/session");
      if (response.ok) return response.json();
    }
    throw error;
  }
}

const root = document.getElementById("root");
root.textContent = "";
render(h(App), root);
