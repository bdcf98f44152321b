// The page of an Android device: images of its screen, and what a person in control does to it.
import { control } from "./control.js";
import { pictures } from "./picture.js";

const find = (id) => document.getElementById(id);
const [keys, problem] = ["keys", "problem"].map(find);
const canvas = document.querySelector("#screen canvas");
const named = {
  Enter: "ENTER", Backspace: "DEL", Delete: "FORWARD_DEL", Tab: "TAB", Escape: "BACK", Home: "MOVE_HOME", End: "MOVE_END",
  ArrowLeft: "DPAD_LEFT", ArrowRight: "DPAD_RIGHT", ArrowUp: "DPAD_UP", ArrowDown: "DPAD_DOWN",
};
const tapMilliseconds = 250;
const tapDistance = 0.015;
// A device takes a moment for each text, so that letters that are typed quickly go together.
const gatherMilliseconds = 150;
let mine = false;
let pressed = null;
let typed = "";
let gathering = null;

function act(input) {
  if (mine) view.act(input);
}

function flush() {
  clearTimeout(gathering);
  if (typed) act({ t: "text", text: typed });
  typed = "";
}

function type(text) {
  keys.value = "";
  typed += text;
  clearTimeout(gathering);
  gathering = setTimeout(flush, gatherMilliseconds);
}

function place(event) {
  const frame = canvas.getBoundingClientRect();
  return [(event.clientX - frame.left) / frame.width, (event.clientY - frame.top) / frame.height];
}

canvas.addEventListener("pointerdown", (event) => {
  event.preventDefault();
  if (mine) keys.focus();
  canvas.setPointerCapture(event.pointerId);
  pressed = { at: place(event), since: event.timeStamp };
});
canvas.addEventListener("pointerup", (event) => {
  if (!pressed) return;
  const [from, to, ms] = [pressed.at, place(event), Math.round(event.timeStamp - pressed.since)];
  pressed = null;
  flush();
  const far = Math.hypot(to[0] - from[0], to[1] - from[1]) > tapDistance;
  // A swipe that stays where it is is a long press.
  act(far || ms > tapMilliseconds ? { t: "swipe", from, to, ms } : { t: "tap", at: from });
});
canvas.addEventListener("contextmenu", (event) => event.preventDefault());
keys.addEventListener("keydown", (event) => {
  if (!mine || event.isComposing || !named[event.key]) return;
  event.preventDefault();
  flush();
  act({ t: "key", key: named[event.key] });
});
find("keyboard").addEventListener("click", () => keys.focus());
keys.addEventListener("paste", (event) => {
  event.preventDefault();
  type(event.clipboardData.getData("text"));
});
keys.addEventListener("input", (event) => { if (!event.isComposing) type(keys.value); });
keys.addEventListener("compositionend", () => type(keys.value));
const buttons = [...document.querySelectorAll("button[data-key]")];
buttons.forEach((button) => button.addEventListener("click", () => {
  flush();
  act({ t: "key", key: button.dataset.key });
  // What is typed next is for the device, not for the button.
  keys.focus();
}));

const view = pictures(canvas, () => show(), (state) => { problem.textContent = state.problem; });
const show = control("phone", view.isOpen, (has, action) => {
  mine = has;
  buttons.forEach((each) => { each.disabled = !has; });
  if (action === "take" && mine) keys.focus();
});
view.connect();
