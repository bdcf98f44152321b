// Who has the mouse and the keyboard: this person, another one, or the agent.
const find = (id) => document.getElementById(id);
const [status, acting, take, handBack] = ["status", "acting", "take", "hand-back"].map(find);
const pollMilliseconds = 1000;
const retryMilliseconds = 2000;

export const viewer = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

export function address() {
  const url = new URL(`websocket?viewer=${viewer}`, location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url.href;
}

// Say that the connection ended, and call `connect` again unless the link has ended too.
export async function reconnect(connect) {
  const answer = await fetch(location.href).catch(() => null);
  status.textContent = answer && answer.status === 404 ? "This link has ended." : "Not connected; trying again";
  if (!answer || answer.status !== 404) setTimeout(connect, retryMilliseconds);
}

// Ask who has `what` from now on, while `connected()`, and call `changed(mine, action)` with each answer.
export function control(what, connected, changed) {
  async function show(action = "show") {
    const answer = await fetch(`control?viewer=${viewer}`, { method: "POST", body: action }).catch(() => null);
    if (!connected() || !answer || !answer.ok) return;
    const state = await answer.json();
    const mine = state.holder === "you";
    status.textContent = {
      you: `You have the ${what}; the agent waits`,
      agent: `The agent has the ${what}`,
    }[state.holder] ?? `Another person has the ${what}`;
    acting.hidden = !state.acting;
    take.hidden = state.readonly || mine;
    handBack.hidden = !mine;
    document.body.dataset.holder = state.holder;
    changed(mine, action);
  }
  take.addEventListener("click", () => show("take"));
  handBack.addEventListener("click", () => show("hand_back"));
  setInterval(show, pollMilliseconds, "show");
  return show;
}
