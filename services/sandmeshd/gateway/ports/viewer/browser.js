// The page of a browser: images of its current tab, and what a person in control does to it.
import { control } from "./control.js";
import { pictures } from "./picture.js";

const find = (id) => document.getElementById(id);
const [tabs, dialog, message, answer, keys] = ["tabs", "dialog", "message", "answer", "keys"].map(find);
const canvas = document.querySelector("#screen canvas");
let mine = false;

function describe(state) {
  tabs.replaceChildren(...state.tabs.map((url, number) => new Option(url, number, false, number === state.tab)));
  document.title = state.url || "Browser";
  dialog.hidden = !state.dialog;
  if (!state.dialog) return;
  message.textContent = state.dialog.message;
  answer.hidden = state.dialog.type !== "prompt";
}

function act(input) {
  if (mine) view.act(input);
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

const view = pictures(canvas, () => show(), describe);
const show = control("browser", view.isOpen, (has, action) => {
  mine = has;
  [...buttons, tabs, find("accept"), find("dismiss")].forEach((each) => { each.disabled = !has; });
  if (action === "take" && mine) keys.focus();
});
view.connect();
