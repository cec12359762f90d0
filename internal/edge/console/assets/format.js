// format.js writes times and amounts for people.

export function duration(ms) {
  if (!(ms >= 0)) return "";
  const s = ms / 1000;
  if (ms < 1 && ms > 0) return "< 1 ms";
  if (s < 1) return `${Math.round(ms)} ms`;
  if (s < 60) return `${s < 10 && s % 1 > 0.05 ? s.toFixed(1) : Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60) ? Math.floor(s % 60) + " s" : ""}`.trim();
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export const age = (ms) => duration(ms >= 1000 ? Math.floor(ms / 1000) * 1000 : Math.max(0, ms));

const time = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const dayTime = new Intl.DateTimeFormat([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false });
export const clock = (ms) => time.format(ms);
export const moment = (ms, now) => (Math.abs(now - ms) < 12 * 3600e3 ? time : dayTime).format(ms);
export const millis = (ms) => `${clock(ms)}.${String(Math.floor(ms) % 1000).padStart(3, "0")}`;

export function bytes(n) {
  if (n < 1024) return `${n} B`;
  let unit = -1;
  do { n /= 1024; unit++; } while (n >= 1024 && unit < 4);
  return `${n < 10 ? n.toFixed(1) : Math.round(n)} ${["KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

export const cores = (milli) => (milli >= 1000 ? `${+(milli / 1000).toFixed(1)}` : `${milli} m`);

// amount writes an amount of a resource of the node.
export function amount(name, n) {
  if (name === "cpu") return cores(n);
  if (name === "memory" || name === "ephemeral-storage" || name.startsWith("hugepages")) return bytes(n);
  return String(n);
}

// signal writes a reading of an eviction signal.
export const signal = (name, n) => (name.startsWith("pid") || name.endsWith("inodesFree") ? String(n) : bytes(n));
