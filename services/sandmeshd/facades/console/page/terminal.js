// A terminal: xterm.js over the console's WebSocket. Its shell ends with the page.

import { html, useEffect, useRef, useState } from "./preact.js";
import { box, socket } from "./api.js";
import { terminals } from "./vendor.js";

function colours() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  return dark ? { background: "#16140f", foreground: "#ece7dc", cursor: "#e08a5f", selectionBackground: "#4b4335" }
    : { background: "#fffdf8", foreground: "#2a2620", cursor: "#b4552d", selectionBackground: "#e7dcc6",
      yellow: "#8a6100", green: "#2f6b2f", cyan: "#0b6a78", brightYellow: "#8a6100", blue: "#1d56a8", brightBlue: "#1d56a8", brightCyan: "#0b6a78", magenta: "#8a2f86", brightMagenta: "#8a2f86", red: "#a3231f", brightRed: "#a3231f", brightGreen: "#2f6b2f", white: "#5d574c", brightWhite: "#2a2620" };
}

export function Terminal({ id }) {
  const place = useRef(null);
  const [ended, setEnded] = useState("");
  const [run, setRun] = useState(0);
  const [loaded, setLoaded] = useState(null);
  useEffect(() => { terminals().then((found) => setLoaded(found), (error) => setEnded(error.message)); }, []);
  useEffect(() => {
    if (!loaded) return undefined;
    const terminal = new loaded.Terminal({ cursorBlink: true, fontSize: 14, scrollback: 5000, theme: colours(),
      fontFamily: "ui-monospace, SFMono-Regular, Menlo, 'DejaVu Sans Mono', monospace", screenReaderMode: false });
    const fit = new loaded.FitAddon();
    terminal.loadAddon(fit);
    terminal.open(place.current);
    fit.fit();
    const connection = socket(`${box(id)}/terminal?rows=${terminal.rows}&columns=${terminal.cols}`);
    connection.binaryType = "arraybuffer";
    const encoder = new TextEncoder();
    const send = (data) => { if (connection.readyState === WebSocket.OPEN) connection.send(data); };
    connection.onopen = () => terminal.focus();
    connection.onmessage = ({ data }) => {
      if (typeof data === "string") setEnded(JSON.parse(data).ended);
      else terminal.write(new Uint8Array(data));
    };
    connection.onclose = () => setEnded((before) => before || "the connection has ended");
    // Tab is the shell's: another key leaves it.
    terminal.attachCustomKeyEventHandler((event) => {
      if (event.key !== "F6" || !event.shiftKey) return true;
      event.preventDefault();
      if (event.type === "keydown") document.querySelector(".tabs [aria-current]")?.focus();
      return false;
    });
    terminal.onData((text) => send(encoder.encode(text)));
    terminal.onBinary((text) => send(Uint8Array.from(text, (character) => character.charCodeAt(0))));
    terminal.onResize(({ rows, cols }) => send(JSON.stringify({ rows, columns: cols })));
    const observer = new ResizeObserver(() => fit.fit());
    observer.observe(place.current);
    return () => {
      observer.disconnect();
      connection.onclose = null;
      connection.close();
      terminal.dispose();
    };
  }, [id, run, loaded]);
  return html`<div class="shell" ref=${place}></div><p class="faint">Shift+F6 leaves the terminal by keyboard.</p>
    ${ended ? html`<p class="buttons" role="status">Closed: ${ended}. <button onClick=${() => { setEnded(""); setRun(run + 1); }}>Open another</button></p>` : null}`;
}
