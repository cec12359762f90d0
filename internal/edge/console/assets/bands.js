// bands.js draws what a pod did over time: one stripe per band, with colour, pattern and word.
import { h } from "./dom.js";
import { age, clock, duration, moment } from "./format.js";

export const words = {
  waiting: "waiting", pulling: "pulling", starting: "starting", running: "running, not ready", ready: "ready",
  failing: "failing", ending: "terminating", ended: "ended", failed: "failed",
};
const short = { ...words, running: "running" };

// draw returns the stripes between the times from and to. cause is a word for the last stripe.
export function draw(spans, from, to, { cause, width = 600, tall = false, mark } = {}) {
  const place = (t) => Math.max(0, Math.min(100, ((t - from) / (to - from)) * 100));
  const box = h("div", { class: tall ? "bands tall" : "bands", role: "img", "aria-label": describe(spans, to, cause) });
  if (spans.length && spans[0].fromMs > from) box.append(h("div", { class: "unknown", style: { width: `${place(spans[0].fromMs)}%` } }));
  spans.forEach((s, i) => {
    const end = s.toMs || to;
    if (end <= from) return;
    const left = place(s.fromMs), size = place(end) - left;
    const last = i === spans.length - 1;
    const word = last && cause && s.band === "failing" ? cause : short[s.band] || s.band;
    const fits = (size / 100) * width > word.length * 6.4 + 14;
    const tip = `${words[s.band] || s.band}, ${age(end - s.fromMs)}${s.toMs ? "" : " so far"}, since ${clock(s.fromMs)}${s.why ? ": " + s.why : ""}`;
    box.append(h("div", { class: `band ${s.band}`, title: tip, style: { left: `${left}%`, width: `${size}%` } }, fits && h("span", {}, word)));
  });
  if (mark >= from && mark <= to) box.append(h("div", { class: "mark", style: { left: `calc(${place(mark)}% - 1px)` } }));
  return box;
}

function describe(spans, now, cause) {
  const said = spans.slice(-5).map((s) => `${words[s.band] || s.band} ${age((s.toMs || now) - s.fromMs)}`).join(", then ");
  return (spans.length > 5 ? "earlier bands left out; " : "") + (said || "nothing recorded") + (cause ? `; cause: ${cause}` : "");
}

// axis returns the scale of the stripes.
export function axis(from, to) {
  const n = 5;
  return h("div", { class: "axis", "aria-hidden": "true" }, Array.from({ length: n }, (_, i) => {
    const t = from + ((to - from) * i) / (n - 1);
    return h("span", { style: { left: `${(100 * i) / (n - 1)}%` } }, i === n - 1 ? "now" : `−${duration(Math.round((to - t) / 1000) * 1000)}`);
  }));
}

// merge joins the spans that the page has kept with newer ones, which the node may know only in part.
export function merge(old, fresh) {
  if (!old || !old.length || !fresh.length) return fresh;
  const first = fresh[0].fromMs;
  const kept = old.filter((s) => s.fromMs < first).map((s) => ({ ...s }));
  const last = kept.at(-1);
  if (last && last.band === fresh[0].band) { kept.pop(); fresh = [{ ...fresh[0], from: last.from, fromMs: last.fromMs }, ...fresh.slice(1)]; }
  else if (last) last.toMs = first;
  return [...kept, ...fresh].slice(-200);
}
export { moment };
