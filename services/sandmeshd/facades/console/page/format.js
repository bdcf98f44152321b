// How values are written.

export function age(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d`;
}

export function bytes(count) {
  if (count < 1024) return `${count} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = count, unit = -1;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function clock(milliseconds) {
  const when = new Date(milliseconds);
  const time = when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return when.toDateString() === new Date().toDateString() ? time : `${when.toLocaleDateString()} ${time}`;
}

export function milliseconds(value) {
  if (value < 10) return `${value.toFixed(1)} ms`;
  return value < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`;
}

// Ids are known by their ends; names are short.
export function middle(text, most = 24) { return text.length > most ? `${text.slice(0, most - 7)}…${text.slice(-6)}` : text; }

export function shortened(text, most) { return text.length > most ? `${text.slice(0, most)}…` : text; }

// Bytes that programs wrote, as text without what a terminal would make of them.
export function plain(text) {
  return text.replace(/\x1b\[[0-9;?]*[ -/]*[@-~]/g, "").replace(/\x1b\][^\x07\x1b]*(\x07|\x1b\\)/g, "");
}

const STATES = {
  READY: "good", LEASED: "good", PAUSED: "calm", STARTING: "wait", PENDING: "wait", STOPPING: "wait",
  FAILED: "bad", LOST: "bad", GONE: "calm",
};
export function tone(state) { return STATES[state] || "calm"; }
