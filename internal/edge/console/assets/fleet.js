// fleet.js shows all nodes of a fleet.
import { card, h, keyed } from "./dom.js";
import { age, moment } from "./format.js";

const names = { ready: "ready", joining: "joining", notReady: "not ready", crashed: "crashed", partitioned: "cut off", failed: "agent failed", leaving: "leaving" };
const marks = { joining: "…", notReady: "!", crashed: "✗", partitioned: "≠", failed: "✗", leaving: "–" };
let parts = null, only = "";

export function open(main) {
  parts = { tiles: h("div", { class: "tiles" }), chips: h("div", { class: "tools", role: "group", "aria-label": "Show only nodes in one state" }), heat: h("div", { class: "heat" }), pods: h("div", {}), states: h("div", {}), faults: h("div", {}), about: h("span", { class: "note", role: "status" }) };
  main.append(h("h1", { class: "hidden" }, "Fleet"), parts.tiles,
    h("section", { class: "card", "aria-label": "Nodes" }, h("header", {}, h("h2", {}, "Nodes"), parts.chips, h("div", { class: "right" }, parts.about)), parts.heat),
    card("Faults under way", null, null, parts.faults),
    h("div", { class: "columns" }, card("Pods on a node", "how many nodes have so many pods", null, parts.pods), card("Groups", null, null, parts.states)));
}

export function draw(app) {
  const f = app.docs.get("fleet"), now = app.now();
  const cells = [...app.docs].filter(([k]) => k.startsWith("cell/")).map(([, v]) => v);
  cells.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  const count = {};
  for (const c of cells) count[c.state] = (count[c.state] || 0) + 1;
  if (only && !count[only]) only = "";
  const bad = (count.crashed || 0) + (count.failed || 0) + (count.partitioned || 0) + (count.notReady || 0), p = f.pods;
  keyed(parts.tiles, [
    ["Nodes Ready in the API", `${f.ready} of ${f.want}`, bad ? `${bad} nodes are down or cut off` : "none is down or cut off", bad > 0],
    ["Pods", `${p.running} running`, `${p.ready} ready, ${p.pending} pending, ${p.failed} failed`, p.failed > 0],
    ["Starts", `${p.startsPerSecond.toFixed(1)} /s`, "pods first seen running, over ten seconds", false],
    ["Leases", f.overdue > 0 ? `${f.overdue.toFixed(1)} s late` : "in time", "the one that is due for longest", f.overdue > 10],
    ["Faults", `${f.faults.length}`, f.faults.length ? `on ${f.faults.reduce((n, x) => n + x.nodes, 0)} nodes` : "none under way", false],
    ["Running for", f.began ? age(now - Date.parse(f.began)).replace(/ \d+ s$/, "") : "", `since ${f.began ? moment(Date.parse(f.began), now) : ""}`, false],
  ].map((t) => [t[0], t, t.join("|")]), ([name, value, more, isBad]) => h("div", { class: isBad ? "tile bad" : "tile" }, h("div", { class: "name" }, name), h("div", { class: "value" }, value), h("div", { class: "more" }, more)));
  keyed(parts.chips, Object.keys(names).filter((s) => count[s]).map((s) => [s, s, `${count[s]} ${only === s}`]), (s) =>
    h("button", { type: "button", class: "chip", "data-focus": s, "aria-pressed": String(only === s), onclick: () => { only = only === s ? "" : s; draw(app); } }, h("span", { class: `swatch cell n-${s}`, style: { "--full": "1" }, "aria-hidden": "true" }), `${names[s]} ${count[s]}`));
  const most = Math.max(1, ...cells.map((c) => c.pods));
  keyed(parts.heat, cells.filter((c) => !only || c.state === only).map((c) => [c.name, c, String(most)]), (c) => {
    const text = `${c.name}: ${names[c.state] || c.state}, ${c.pods} pods, ${c.ready} ready${c.faults?.length ? `, faults: ${c.faults.join(", ")}` : ""}${c.reason ? `, ${c.reason}` : ""}`;
    return h("a", { class: `cell n-${c.state}${c.faults?.length ? " faulty" : ""}`, href: `nodes/${encodeURIComponent(c.name)}/`, title: text, "aria-label": text, style: { "--full": String(c.pods / most) } }, marks[c.state] || "");
  });
  parts.about.textContent = "a fuller green has more pods; a red edge marks a fault; each opens the console of its node";
  histogram(cells);
  groups(cells);
  faults(f, now);
}

function histogram(cells) {
  const most = Math.max(0, ...cells.map((c) => c.pods)), width = Math.max(1, Math.ceil((most + 1) / 12)), bars = [];
  for (let from = 0; from <= most; from += width) bars.push([from, Math.min(most, from + width - 1), 0]);
  for (const c of cells) bars[Math.floor(c.pods / width)][2]++;
  const high = Math.max(1, ...bars.map((b) => b[2])), key = JSON.stringify(bars);
  if (parts.pods.dataset.key === key) return;
  parts.pods.dataset.key = key;
  parts.pods.replaceChildren(h("div", { class: "histogram", role: "img", "aria-label": bars.map(([a, b, n]) => `${n} nodes have ${a === b ? a : `${a} to ${b}`} pods`).join(", ") },
    bars.map(([a, b, n]) => h("div", {}, h("span", {}, n || ""), h("i", { style: { height: `${(100 * n) / high}%` } }), h("span", {}, a === b ? a : `${a}–${b}`)))), h("p", { class: "pad soft" }, "pods on a node"));
}

function groups(cells) {
  const by = {};
  for (const c of cells) { const g = (by[c.group] ||= { nodes: 0, ready: 0, pods: 0 }); g.nodes++; g.pods += c.pods; if (c.state === "ready") g.ready++; }
  const key = JSON.stringify(by);
  if (parts.states.dataset.key === key) return;
  parts.states.dataset.key = key;
  parts.states.replaceChildren(h("table", {}, h("thead", {}, h("tr", {}, ["Group", "Nodes", "Ready", "Pods"].map((t) => h("th", { scope: "col" }, t)))), h("tbody", {}, Object.entries(by).map(([name, g]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, g.nodes), h("td", {}, g.ready), h("td", {}, g.pods))))));
}

function faults(f, now) {
  const key = JSON.stringify(f.faults) + Math.floor(now / 1000);
  if (parts.faults.dataset.key === key) return;
  parts.faults.dataset.key = key;
  parts.faults.replaceChildren(f.faults.length ? h("table", {}, h("thead", {}, h("tr", {}, ["Fault", "Nodes", "Since", "Ends"].map((t) => h("th", { scope: "col" }, t)))), h("tbody", {}, f.faults.map((x) => h("tr", {},
    h("th", { scope: "row" }, x.kind, x.text ? ` (${x.text})` : ""), h("td", {}, x.nodes), h("td", {}, `${age(now - Date.parse(x.since))} ago`), h("td", {}, x.until ? `in ${age(Date.parse(x.until) - now)}` : "when somebody heals it")))))
    : h("p", { class: "empty" }, "No fault is under way. Inject one: ", h("code", {}, "wherry fleet fault partition --percent 10 --for 1m")));
}
