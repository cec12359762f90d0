// pods.js shows the pods as rows, with what each did over time.
import { h, keyed } from "./dom.js";
import { axis, draw as bands, words } from "./bands.js";
import { age, bytes, cores, moment } from "./format.js";

const rank = { trouble: 0, progress: 1, well: 2 };
const windows = [[0, "automatic"], [60, "1 minute"], [120, "2 minutes"], [300, "5 minutes"], [900, "15 minutes"], [1800, "30 minutes"], [3600, "1 hour"], [21600, "6 hours"]];
let parts = null, text = "", only = "", span = 0;

export function open(main, app) {
  const tiles = h("div", { class: "tiles" });
  const chips = h("div", { class: "tools", role: "group", "aria-label": "Show only pods in one band" });
  const search = h("input", { type: "search", placeholder: "Find a pod", "aria-label": "Find a pod", value: text, oninput: (e) => { text = e.target.value.toLowerCase(); draw(app); } });
  const time = h("select", { "aria-label": "Time shown", onchange: (e) => { span = +e.target.value; draw(app); } },
    windows.map(([s, name]) => h("option", { value: s, selected: s === span }, name)));
  const head = h("div", {}), body = h("tbody", {});
  const table = h("table", { class: "pods" }, h("caption", { class: "hidden" }, "Pods of the node, those in trouble first"), h("thead", {}, h("tr", {},
    h("th", { scope: "col", class: "c-name" }, "Pod"), h("th", { scope: "col" }, h("span", { class: "hidden" }, "What it did over time"), head),
    h("th", { scope: "col", class: "num c-num" }, "Ready"), h("th", { scope: "col", class: "num c-num" }, "Restarts"),
    h("th", { scope: "col", class: "num c-use" }, "CPU"), h("th", { scope: "col", class: "num c-use" }, "Memory"), h("th", { scope: "col", class: "num c-num" }, "Age"))), body);
  const none = h("p", { class: "empty" });
  main.append(h("h1", { class: "hidden" }, "Pods"), tiles, h("section", { class: "card", "aria-label": "Pods" },
    h("header", {}, h("h2", {}, "Pods"), chips, h("div", { class: "right tools" }, search, time)), table, none));
  parts = { tiles, chips, head, body, none, table };
}

export function draw(app) {
  const now = app.now(), rows = [...app.rows.values()];
  tiles(app, rows);
  const count = {};
  for (const r of rows) count[r.band] = (count[r.band] || 0) + 1;
  if (only && !count[only]) only = "";
  keyed(parts.chips, Object.keys(words).filter((b) => count[b]).map((b) => [b, b, `${count[b]} ${only === b}`]), (b) =>
    h("button", { type: "button", class: "chip", "data-focus": b, "aria-pressed": String(only === b), onclick: () => { only = only === b ? "" : b; draw(app); } },
      h("span", { class: `swatch ${b}`, "aria-hidden": "true" }), `${words[b]} ${count[b]}`));
  const shown = rows.filter((r) => (!only || r.band === only) && (!text || `${r.namespace}/${r.name} ${r.cause}`.toLowerCase().includes(text)));
  shown.sort((a, b) => rank[a.level] - rank[b.level] || (a.namespace + a.name).localeCompare(b.namespace + b.name));
  parts.table.hidden = !shown.length;
  parts.none.textContent = shown.length ? "" : rows.length ? "No pod matches." : "This node has no pods.";
  parts.none.hidden = shown.length > 0;
  const shownFor = span || fitting(shown, now), from = now - shownFor * 1000;
  parts.head.replaceChildren(axis(from, now));
  const width = parts.head.clientWidth || 500;
  const step = Math.max(1000, (shownFor * 1000) / Math.max(300, width)) | 0; // draw again when the picture moves by a pixel
  keyed(parts.body, shown.map((r) => [r.uid, r, `${shownFor} ${Math.floor(now / step)} ${width} ${r.nextAt ? Math.ceil((Date.parse(r.nextAt) - now) / 1000) : ""}`]),
    (r) => row(app, r, from, now, width));
}

// fitting returns the shortest time that shows the whole life of all pods, and at most an hour.
function fitting(rows, now) {
  const first = Math.min(now - 1000, ...rows.map((r) => r.spans[0]?.fromMs || now));
  return windows.map(([s]) => s).find((s) => s && (s * 1000 >= now - first || s === 3600));
}

// next says what the node does next, and when.
export function next(r, now) {
  if (!r.next) return "";
  const left = r.nextAt ? Date.parse(r.nextAt) - now : 0;
  return r.nextAt ? `${left > 0 ? `in ${age(left + 999)}` : "now"}: ${r.next}` : r.next;
}

function row(app, r, from, now, width) {
  const then = next(r, now), use = used(app, r.uid);
  return h("tr", { class: r.level },
    h("td", {}, h("div", {}, h("a", { class: "name", "data-focus": "name", href: `#/pod/${encodeURIComponent(r.namespace)}/${encodeURIComponent(r.name)}` }, h("span", { class: "ns" }, r.namespace, "/"), r.name)),
      h("div", { class: "line" }, r.level === "well" && r.band === "ready" ? "" : [h("b", {}, r.cause), ": ", r.line]), then && r.level !== "well" && h("div", { class: "next" }, then),
      (r.failing || []).map((f) => h("div", { class: "next" }, `${f.kind} probe of ${f.container}: failed ${f.times} times, ${f.threshold} are enough`))),
    h("td", {}, bands(r.spans, from, now, { cause: r.level === "well" ? "" : r.cause, width })),
    h("td", { class: "num" }, `${r.ready}/${r.containers}`), h("td", { class: "num" }, r.restarts || h("span", { class: "soft" }, "0")),
    h("td", { class: "num c-use" }, use ? cores(use.cpu) : ""), h("td", { class: "num c-use" }, use ? bytes(use.memory) : ""),
    h("td", { class: "num" }, r.createdMs ? short(now - r.createdMs) : ""));
}

const short = (ms) => age(ms).replace(/ (\d+ s|\d+ min|\d+ h)$/, (part, _, at) => (at > 2 ? "" : part)).replace(/^(\S+ \S+).*/, "$1");

function used(app, uid) {
  const units = app.docs.get("use")?.pods?.[uid];
  return units && units.reduce((sum, u) => ({ cpu: sum.cpu + u.cpu, memory: sum.memory + u.memory }), { cpu: 0, memory: 0 });
}

function tiles(app, rows) {
  const n = app.docs.get("node"), work = app.docs.get("work");
  const ready = n.conditions?.find((c) => c.type === "Ready");
  const bad = (n.conditions || []).filter((c) => c.type !== "Ready" && c.status === "True");
  const trouble = rows.filter((r) => r.level === "trouble").length, progress = rows.filter((r) => r.level === "progress").length;
  const list = [
    ["Node", ready?.status === "True" ? "Ready" : "Not ready", bad.length ? bad.map((c) => c.type).join(", ") : ready?.status === "True" ? n.runtime : ready?.message || "", ready?.status !== "True" || bad.length],
    ["Pods", `${rows.length}`, trouble + progress ? `${trouble} in trouble, ${progress} on the way` : "all are well", trouble > 0],
  ];
  for (const name of ["cpu", "memory"]) {
    const r = n.resources?.find((x) => x.name === name);
    if (r) list.push([name === "cpu" ? "CPU" : "Memory", name === "cpu" ? [cores(r.used || 0), ` of ${cores(r.capacity)} cores`] : [bytes(r.used || 0), ` of ${bytes(r.capacity)}`],
      `pods request ${name === "cpu" ? cores(r.requested) : bytes(r.requested)}`, false]);
  }
  const met = (n.pressure || []).filter((t) => t.met);
  list.push(["Pressure", met.length ? met.map((t) => t.signal).join(", ") : n.pressure ? "none" : "not measured", n.pressure ? `${n.pressure.length} thresholds` : "", met.length > 0]);
  if (work) list.push(["Waiting work", `${work.held.length + (work.more || 0)}`, `${work.starting} of ${work.slots} start slots in use`, false]);
  keyed(parts.tiles, list.map((t) => [t[0], t, t.join("|")]), ([name, value, more, isBad]) =>
    h("div", { class: isBad ? "tile bad" : "tile" }, h("div", { class: "name" }, name), h("div", { class: "value" }, Array.isArray(value) ? [value[0], h("small", {}, value[1])] : value), h("div", { class: "more" }, more || " ")));
}
export { moment };
