// The page of a browser: images of its current tab, and what a person in control does to it.
import { address, control, reconnect } from "./control.js";

const find = (id) => document.getElementById(id);
const [tabs, dialog, message, answer, keys] = ["tabs", "dialog", "message", "answer", "keys"].map(find);
const canvas = document.querySelector("#screen canvas");
const picture = canvas.getContext("2d");
const chunk = 8192;
const letters = { image: 102, state: 115 };
let socket = null;
let mine = false;
let received = new Uint8Array(0);
let handled = Promise.resolve();

function connect() {
  socket = new WebSocket(address(), ["binary"]);
  socket.binaryType = "arraybuffer";
  received = new Uint8Array(0);
  socket.addEventListener("open", () => show());
  socket.addEventListener("message", (event) => take(new Uint8Array(event.data)));
  socket.addEventListener("close", () => {
    socket = null;
    reconnect(connect);
  });
}

// A message is its length in four bytes, a letter and a body; they come cut as the network likes.
function take(data) {
  const all = new Uint8Array(received.length + data.length);
  all.set(received);
  all.set(data, received.length);
  let start = 0;
  while (all.length - start >= 4) {
    const end = start + 4 + new DataView(all.buffer, start).getUint32(0);
    if (end > all.length) break;
    const [letter, body] = [all[start + 4], all.slice(start + 5, end)];
    handled = handled.then(() => handle(letter, body)).catch(console.error);
    start = end;
  }
  received = all.slice(start);
}

async function handle(letter, body) {
  if (letter === letters.state) return describe(JSON.parse(new TextDecoder().decode(body)));
  if (letter !== letters.image) return;
  const image = new Image();
  image.src = `data:image/jpeg;base64,${base64(body)}`;
  const [width, height] = await new Promise((done) => {
    image.onload = () => done([image.naturalWidth, image.naturalHeight]);
    image.onerror = () => done([0, 0]);
  });
  if (width) {
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    picture.drawImage(image, 0, 0);
  }
  send("a", "");
}

function base64(bytes) {
  let text = "";
  for (let start = 0; start < bytes.length; start += chunk) {
    text += String.fromCharCode(...bytes.subarray(start, start + chunk));
  }
  return btoa(text);
}

function describe(state) {
  tabs.replaceChildren(...state.tabs.map((url, number) => new Option(url, number, false, number === state.tab)));
  document.title = state.url || "Browser";
  dialog.hidden = !state.dialog;
  if (!state.dialog) return;
  message.textContent = state.dialog.message;
  answer.hidden = state.dialog.type !== "prompt";
}

function send(letter, text) {
  if (!socket || socket.readyState !== WebSocket.OPEN) return;
  const body = new TextEncoder().encode(letter + text);
  const data = new Uint8Array(4 + body.length);
  new DataView(data.buffer).setUint32(0, body.length);
  data.set(body, 4);
  socket.send(data);
}

function act(input) {
  if (mine) send("i", JSON.stringify(input));
}

const modifiers = (event) => (event.altKey ? 1 : 0) | (event.ctrlKey ? 2 : 0) | (event.metaKey ? 4 : 0) | (event.shiftKey ? 8 : 0);

function mouse(kind, event, more = {}) {
  const frame = canvas.getBoundingClientRect();
  const [x, y] = [(event.clientX - frame.left) / frame.width, (event.clientY - frame.top) / frame.height];
  act({ t: "mouse", k: kind, x, y, m: modifiers(event), held: event.buttons, ...more });
}

function key(kind, event) {
  // What an input method or a phone's keyboard composes arrives as text.
  if (!mine || event.isComposing || ["Process", "Unidentified", "Dead"].includes(event.key)) return;
  // The paste event has the text of this person's clipboard.
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "v") return;
  event.preventDefault();
  act({ t: "key", k: kind, key: event.key, code: event.code, vk: event.keyCode, m: modifiers(event) });
}

function text(value) {
  keys.value = "";
  if (value) act({ t: "text", text: value });
}

canvas.addEventListener("mousedown", (event) => {
  event.preventDefault();
  keys.focus();
  mouse("down", event, { b: event.button, n: event.detail });
});
canvas.addEventListener("mouseup", (event) => mouse("up", event, { b: event.button, n: event.detail }));
canvas.addEventListener("mousemove", (event) => mouse("move", event));
canvas.addEventListener("contextmenu", (event) => event.preventDefault());
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  mouse("wheel", event, { dx: event.deltaX, dy: event.deltaY });
}, { passive: false });
keys.addEventListener("keydown", (event) => key("down", event));
keys.addEventListener("keyup", (event) => key("up", event));
keys.addEventListener("paste", (event) => {
  event.preventDefault();
  text(event.clipboardData.getData("text"));
});
keys.addEventListener("input", (event) => { if (!event.isComposing) text(keys.value); });
keys.addEventListener("compositionend", () => text(keys.value));
tabs.addEventListener("change", () => act({ t: "tab", n: Number(tabs.value) }));
dialog.addEventListener("submit", (event) => {
  event.preventDefault();
  act({ t: "dialog", accept: true, text: answer.value });
});
find("dismiss").addEventListener("click", () => act({ t: "dialog", accept: false }));
const buttons = [...document.querySelectorAll("button[data-to]")];
buttons.forEach((button) => button.addEventListener("click", () => act({ t: "go", to: button.dataset.to })));

const show = control("browser", () => socket !== null && socket.readyState === WebSocket.OPEN, (has, action) => {
  mine = has;
  [...buttons, tabs, find("accept"), find("dismiss")].forEach((each) => { each.disabled = !has; });
  if (action === "take" && mine) keys.focus();
});
connect();
