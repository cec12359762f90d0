// app.js keeps the documents that the node sends, and shows the view that the address names.
import { h } from "./dom.js";
import { merge } from "./bands.js";
import * as pods from "./pods.js";
import * as pod from "./pod.js";
import * as node from "./node.js";
import * as fleet from "./fleet.js";

// app is what all views share.
export const app = {
  docs: new Map(), // the documents of the node by key
  rows: new Map(), // the pods by UID, with the bands that the page has kept
  old: new Map(), // the rows of the stream before
  uses: new Map(), // by UID/CONTAINER: what it used lately, oldest first
  skew: 0, // the node's clock minus the browser's, in milliseconds
  now: () => Date.now() + app.skew,
  detail: "", // the pod that is looked at in detail, NAMESPACE/NAME
  detailDoc: () => app.docs.get(`detail/${app.detail}/pod`),
  go: (to) => { location.hash = to; },
};

const maxUses = 300;
const main = document.getElementById("main");
const views = { pods, pod, node: node.facts, events: node.events, work: node.work, fleet };
let view = null, source = null, opened = "", drawn = 0, waiting = false, tries = 0;

const isFleet = () => app.docs.has("fleet");

// route returns the name of the view and its argument.
function route() {
  const [, name = "", ...rest] = location.hash.split("/");
  if (isFleet()) return ["fleet", ""];
  if (name === "pod" && rest.length === 2) return ["pod", rest.map(decodeURIComponent).join("/")];
  return [views[name] && name !== "pod" && name !== "fleet" ? name : "pods", ""];
}

// show makes the view that the address names the present one.
function show() {
  const [name, arg] = route();
  if (app.detail !== arg) { app.detail = arg; connect(); }
  if (!view || view.name !== name || view.arg !== arg) {
    view?.part.close?.();
    view = { name, arg, part: views[name] };
    main.replaceChildren();
    view.part.open(main, app);
    scrollTo(0, 0);
  }
  tabs(name);
  draw();
}

function tabs(name) {
  const list = isFleet() ? [] : [["pods", "Pods"], ["node", "Node"], ["events", "Events"], ["work", "Work"]];
  const current = name === "pod" ? "pods" : name;
  const nav = document.getElementById("tabs");
  const key = list.length + current;
  if (nav.dataset.key === key) return;
  nav.dataset.key = key;
  nav.replaceChildren(...list.map(([to, text]) => h("a", { href: `#/${to}`, "aria-current": to === current ? "page" : null }, text)));
}

// draw lets the view draw itself, at most five times a second.
export function draw() {
  if (waiting || document.hidden) return;
  waiting = true;
  setTimeout(() => requestAnimationFrame(() => {
    waiting = false;
    drawn = Date.now();
    title();
    if (view && (app.docs.has("node") || isFleet())) view.part.draw(app);
  }), Math.max(0, 200 - (Date.now() - drawn)));
}

function title() {
  const name = app.docs.get("node")?.name || app.docs.get("fleet")?.name || "Wherry";
  const where = document.getElementById("where");
  if (where.dataset.name === name) return;
  where.dataset.name = name;
  document.title = `${name} - Wherry console`;
  const up = /\/nodes\/[^/]+\/$/.test(location.pathname);
  where.replaceChildren(...(up ? [h("a", { href: "../../" }, "fleet"), " / "] : []), isFleet() ? `fleet ${name}` : name);
}

// take keeps the documents of a message.
function take(message) {
  app.skew = message.now - Date.now();
  for (const [key, value] of Object.entries(message.set || {})) {
    app.docs.set(key, value);
    if (key.startsWith("row/")) keepRow(value);
    if (key.startsWith("detail/") && value.spans) stamp(value.spans);
    if (key === "use") keepUse(value);
  }
  for (const key of message.gone || []) {
    app.docs.delete(key);
    if (key.startsWith("row/")) app.rows.delete(key.slice(4));
  }
  if (!message.more) show();
}

function stamp(spans) {
  for (const s of spans) { s.fromMs = Date.parse(s.from); s.toMs = s.to ? Date.parse(s.to) : 0; }
}

function keepRow(row) {
  stamp(row.spans ||= []);
  row.spans = merge((app.rows.get(row.uid) || app.old.get(row.uid))?.spans, row.spans);
  row.createdMs = row.created ? Date.parse(row.created) : 0;
  app.rows.set(row.uid, row);
}

function keepUse(use) {
  const at = Date.parse(use.at), seen = new Set();
  for (const [uid, units] of Object.entries(use.pods || {})) {
    for (const u of units) {
      const key = `${uid}/${u.name}`;
      seen.add(key);
      const list = app.uses.get(key) || [];
      list.push({ at, cpu: u.cpu, memory: u.memory });
      if (list.length > maxUses) list.shift();
      app.uses.set(key, list);
    }
  }
  for (const key of app.uses.keys()) if (!seen.has(key)) app.uses.delete(key);
}

const live = document.getElementById("live");
function say(state, text) {
  live.className = `live ${state}`;
  if (live.textContent !== text) live.textContent = text;
}

// connect opens the stream, with the pod that is looked at in detail.
function connect(again) {
  const url = app.detail ? `stream?detail=${encodeURIComponent(app.detail)}` : "stream";
  if (source && opened === url && !again) return;
  source?.close();
  opened = url;
  const mine = (source = new EventSource(url));
  let first = true;
  mine.onmessage = (e) => {
    if (mine !== source) return;
    if (first) { // a new stream begins with all documents
      first = false;
      tries = 0;
      app.docs.clear();
      app.old = app.rows;
      app.rows = new Map();
    }
    say("on", "live");
    take(JSON.parse(e.data));
  };
  mine.onerror = () => {
    if (mine !== source) return;
    say("off", "not connected");
    if (mine.readyState === EventSource.CLOSED) { // the node refused: say why, and try again
      explain();
      setTimeout(() => mine === source && connect(true), Math.min(30000, 2000 * 2 ** tries++));
    } else first = true;
  };
}

// explain shows why the node does not answer.
async function explain() {
  if (app.docs.size) return;
  try {
    const answer = await fetch("stream", { headers: { Accept: "text/plain" } });
    if (answer.ok) { answer.body.cancel(); return; }
    const text = (await answer.text()).slice(0, 2000);
    main.replaceChildren(h("section", { class: "card pad", role: "alert" }, h("h1", {}, "The node does not show its console"), h("p", { class: "soft" }, `It answers ${answer.status}:`), h("pre", {}, text),
      answer.status === 404 && h("p", {}, "The console may be off on this node: set console.enabled: true in the file of --wherry-config.")));
    view = null;
  } catch { /* the node is away, which the mark at the top says */ }
}

function theme(next) {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  if (next) { root.dataset.theme = dark ? "light" : "dark"; localStorage.setItem("theme", root.dataset.theme); }
}

const saved = localStorage.getItem("theme");
if (saved === "dark" || saved === "light") document.documentElement.dataset.theme = saved;
document.getElementById("theme").addEventListener("click", () => theme(true));
addEventListener("hashchange", () => { show(); main.focus({ preventScroll: true }); });
document.addEventListener("visibilitychange", () => {
  // A page that nobody sees gives up its stream, so that the node computes nothing for it.
  if (document.hidden) { source?.close(); source = null; opened = ""; say("", "paused"); } else { connect(); draw(); }
});
setInterval(draw, 1000); // times go on
say("", "connecting");
[, app.detail] = location.hash.startsWith("#/pod/") ? route() : ["", ""];
connect();
