// The page of a browser: images of its current tab, and what a person in control does to it.
import { control } from "./control.js";
import { pictures } from "./picture.js";

const find = (id) => document.getElementById(id);
const [tabs, dialog, message, answer, keys] = ["tabs", "dialog", "message", "answer", "keys"].map(find);
const canvas = document.querySelector("#screen canvas");
const [wheelStart, longPressMilliseconds, answerMilliseconds] = [8, 500, 2000];
const pressed = new Map();
let mine = false;
let open = null;
let asked = 0;
let answered = 0;
let touch = null;

function describe(state) {
  tabs.replaceChildren(...state.tabs.map((url, number) => new Option(url, number, false, number === state.tab)));
  document.title = state.url || "Browser";
  open = state.dialog;
  ask();
}

// Show the dialog that is open. What was written for another one is gone.
function ask() {
  dialog.hidden = !open || open.number === answered;
  if ((open?.number ?? 0) !== asked) answer.value = open?.default ?? "";
  asked = open?.number ?? 0;
  if (!open) return;
  message.textContent = open.message;
  answer.hidden = open.type !== "prompt";
}

// An answer is for the dialog that is shown; where it does not arrive, that is shown again.
function reply(input) {
  if (!mine || !open || open.number === answered) return;
  const { number } = open;
  act({ t: "dialog", number, ...input });
  answered = number;
  ask();
  setTimeout(() => {
    if (answered === number) answered = 0;
    ask();
  }, answerMilliseconds);
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
  if (kind === "down") pressed.set(event.code, event);
  else pressed.delete(event.code);
  act({ t: "key", k: kind, key: event.key, code: event.code, vk: event.keyCode, m: modifiers(event) });
}

// What is down when the picture loses the keyboard would stay down.
function release() {
  for (const { key, code, keyCode } of pressed.values()) act({ t: "key", k: "up", key, code, vk: keyCode, m: 0 });
  pressed.clear();
}

// A finger scrolls, taps, or by a long press asks for the menu.
function touchDown(event) {
  event.preventDefault();
  canvas.setPointerCapture(event.pointerId);
  touch = { id: event.pointerId, x: event.clientX, y: event.clientY, since: event.timeStamp, scrolls: false };
}

function touchMove(event) {
  if (!touch || touch.id !== event.pointerId) return;
  const [dx, dy] = [touch.x - event.clientX, touch.y - event.clientY];
  touch.scrolls ||= Math.hypot(dx, dy) > wheelStart;
  if (!touch.scrolls) return;
  const scale = canvas.width / canvas.getBoundingClientRect().width;
  mouse("wheel", event, { dx: dx * scale, dy: dy * scale });
  [touch.x, touch.y] = [event.clientX, event.clientY];
}

function touchUp(event) {
  if (!touch || touch.id !== event.pointerId) return;
  const { scrolls, since } = touch;
  touch = null;
  if (scrolls) return;
  const b = event.timeStamp - since > longPressMilliseconds ? 2 : 0;
  mouse("move", event);
  mouse("down", event, { b, n: 1, held: b === 2 ? 2 : 1 });
  mouse("up", event, { b, n: 1 });
}

function text(value) {
  keys.value = "";
  if (value) act({ t: "text", text: value });
}

for (const [kind, handle] of [["pointerdown", touchDown], ["pointermove", touchMove], ["pointerup", touchUp]]) {
  canvas.addEventListener(kind, (event) => { if (mine && event.pointerType === "touch") handle(event); });
}
canvas.addEventListener("pointercancel", () => { touch = null; });
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
keys.addEventListener("blur", release);
find("keyboard").addEventListener("click", () => keys.focus());
keys.addEventListener("paste", (event) => {
  event.preventDefault();
  text(event.clipboardData.getData("text"));
});
keys.addEventListener("input", (event) => { if (!event.isComposing) text(keys.value); });
keys.addEventListener("compositionend", () => text(keys.value));
tabs.addEventListener("change", () => act({ t: "tab", n: Number(tabs.value) }));
dialog.addEventListener("submit", (event) => {
  event.preventDefault();
  reply({ accept: true, text: answer.value });
});
find("dismiss").addEventListener("click", () => reply({ accept: false }));
const buttons = [...document.querySelectorAll("button[data-to]")];
buttons.forEach((button) => button.addEventListener("click", () => act({ t: "go", to: button.dataset.to })));

const view = pictures(canvas, () => show(), describe);
const show = control("browser", view.isOpen, (has, action) => {
  mine = has;
  [...buttons, tabs, answer, find("accept"), find("dismiss")].forEach((each) => { each.disabled = !has; });
  if (action === "take" && mine) keys.focus();
});
view.connect();
