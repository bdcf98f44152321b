// Who has the mouse and the keyboard: this person, another one, or the agent.
const find = (id) => document.getElementById(id);
const [status, acting, take, handBack, shortcut, again] = ["status", "acting", "take", "hand-back", "shortcut", "again"].map(find);
const pollMilliseconds = 1000;
const retryMilliseconds = 2000;
const patienceMilliseconds = 30_000;
const [moreAttempts, attemptMilliseconds] = [5, 500];
let lostSince = 0;

export const viewer = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

export function address() {
  const url = new URL(`websocket?viewer=${viewer}`, location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url.href;
}

// Say that there is a connection.
export function connected() {
  lostSince = 0;
  again.hidden = true;
  delete document.body.dataset.state;
}

// Say that the connection ended, and call `connect` again unless the link or the sandbox has ended, or nothing answers for long.
export async function reconnect(connect) {
  lostSince ||= Date.now();
  [acting, take, handBack, shortcut].forEach((each) => { each.hidden = true; });
  const answer = await fetch(location.href).catch(() => null);
  if (answer && answer.status === 404) {
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const title = page.querySelector("h1")?.textContent;
    end(title === "The sandbox has ended" ? `${title}.` : "This link has ended.");
  } else if (Date.now() - lostSince < patienceMilliseconds) {
    status.textContent = "Not connected; trying again";
    setTimeout(connect, retryMilliseconds);
  } else {
    end("Nothing answers any more; what is shown is old.");
    again.hidden = false;
    again.onclick = () => {
      again.hidden = true;
      lostSince = 0;
      status.textContent = "Connecting";
      connect();
    };
  }
}

function end(text) {
  status.textContent = text;
  document.body.dataset.state = "ended";
  delete document.body.dataset.holder;
}

// What a person has pressed is asked again where it was lost: a browser gives requests up when its network changes.
async function ask(action) {
  for (let left = action === "show" ? 0 : moreAttempts; ; left -= 1) {
    const answer = await fetch(`control?viewer=${viewer}`, { method: "POST", body: action }).catch(() => null);
    if (answer || left <= 0) return answer;
    await new Promise((done) => { setTimeout(done, attemptMilliseconds); });
  }
}

// Ask who has `what` from now on, while `isOpen()`, and call `changed(mine, action, readonly)` with each answer.
export function control(what, isOpen, changed) {
  let [sent, newest] = [0, 0];
  async function show(action = "show") {
    if (!isOpen()) return;
    const number = ++sent;
    const answer = await ask(action);
    if (!isOpen() || !answer || !answer.ok) return;
    const state = await answer.json();
    // An answer to an earlier question that comes late is not how it is now.
    if (number < newest) return;
    newest = number;
    const mine = state.holder === "you";
    status.textContent = {
      you: `You have the ${what}; the agent waits`,
      agent: `The agent has the ${what}`,
    }[state.holder] ?? `Another person has the ${what}`;
    acting.hidden = !state.acting || state.holder !== "agent";
    const focused = document.activeElement;
    take.hidden = state.readonly || mine;
    handBack.hidden = shortcut.hidden = !mine;
    document.body.dataset.holder = state.holder;
    changed(mine, action, state.readonly);
    // Who hands back by the keyboard finds the way back where it was.
    if (focused === handBack && !mine && !take.hidden) take.focus();
  }
  take.addEventListener("click", () => show("take"));
  handBack.addEventListener("click", () => show("hand_back"));
  // Before the picture has the key: all others are for what is shown.
  window.addEventListener("keydown", (event) => {
    if (handBack.hidden || !(event.ctrlKey && event.altKey && event.key === "Enter")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    handBack.focus();
  }, { capture: true });
  setInterval(show, pollMilliseconds, "show");
  return show;
}
