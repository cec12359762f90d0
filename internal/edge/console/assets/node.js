// node.js shows the node itself: its facts, its events, and what its own work waits for.
import { card, h } from "./dom.js";
import { age, amount, moment, signal } from "./format.js";

// part makes a view that is drawn again when the documents it needs have changed, and every five seconds for its times.
function part(title, keys, make) {
  let box = null, last = null;
  return {
    open(main) { box = h("div", {}); main.append(h("h1", { class: "hidden" }, title), box); last = null; },
    draw(app) {
      const now = app.now(), next = [...keys.map((k) => app.docs.get(k)), Math.floor(now / 5000)];
      if (last && next.every((v, i) => v === last[i])) return;
      last = next;
      box.replaceChildren(...make(app, now));
    },
  };
}

const table = (caption, head, rows) => h("table", {}, h("caption", { class: "hidden" }, caption), h("thead", {}, h("tr", {}, head.map((t) => h("th", { scope: "col" }, t)))), h("tbody", {}, rows));

export const facts = part("Node", ["node"], (app, now) => {
  const n = app.docs.get("node");
  const list = [["Name", n.name], ["Agent", n.version], ["Runtime", n.runtime], ["System", [n.os, n.kernel, n.arch].filter(Boolean).join(", ")], ["Addresses", (n.addresses || []).join(", ")],
    ["Lease", n.standalone ? "none: the node has no API server" : n.lease ? `renewed ${age(now - Date.parse(n.lease))} ago` : "not known: other code renews it, or it was not renewed yet"]];
  return [
    h("div", { class: "columns" },
      card("Node", null, null, h("table", {}, h("tbody", {}, list.map(([k, v]) => h("tr", {}, h("th", { scope: "row" }, k), h("td", {}, v || h("span", { class: "soft" }, "not known"))))))),
      card("Pressure", "what is left of each resource; below the mark the node evicts", null, n.pressure?.length ? table("Eviction thresholds", ["Signal", "Left", "Threshold", ""], n.pressure.map((t) => h("tr", {},
        h("th", { scope: "row" }, t.signal, t.soft ? " (soft)" : ""), h("td", {}, signal(t.signal, t.available), h("span", { class: "soft" }, ` of ${signal(t.signal, t.capacity)}`)), h("td", {}, signal(t.signal, t.limit)),
        h("td", {}, bar([[t.available / t.capacity, t.met ? "met" : "low"]], t.limit / t.capacity, t.met ? "below the threshold" : "above the threshold"))))) : h("p", { class: "empty" }, "No threshold is set, or nothing was measured."))),
    card("Conditions", null, null, table("Conditions of the node", ["Condition", "Status", "Reason", "Since"], (n.conditions || []).map((c) => h("tr", {}, h("th", { scope: "row" }, c.type),
      h("td", {}, h("span", { class: `state ${(c.type === "Ready") === (c.status === "True") ? "ready" : "failing"}` }, c.status)), h("td", {}, [c.reason, c.message].filter(Boolean).join(": ")), h("td", { class: "soft" }, c.since ? moment(Date.parse(c.since), now) : ""))))),
    card("Capacity and use", "solid: in use; hatched: requested by pods", null, table("Resources", ["Resource", "In use", "Requested", "Allocatable", "Capacity", ""], (n.resources || []).map((r) => h("tr", {}, h("th", { scope: "row" }, r.name),
      h("td", {}, r.used ? amount(r.name, r.used) : h("span", { class: "soft" }, "–")), h("td", {}, amount(r.name, r.requested)), h("td", {}, amount(r.name, r.allocatable)), h("td", {}, amount(r.name, r.capacity)),
      h("td", {}, bar([[r.requested / r.capacity, "asked"], [(r.used || 0) / r.capacity, ""]], r.allocatable / r.capacity, `${Math.round((100 * r.requested) / r.capacity)} % requested`)))))),
  ];
});

function bar(parts, limit, label) {
  const size = (f) => `${Math.max(0, Math.min(1, f || 0)) * 100}%`;
  return h("div", { class: "bar", role: "img", "aria-label": label }, parts.map(([f, kind]) => h("i", { class: kind, style: { width: size(f) } })), limit >= 0 && limit < 1 && h("i", { class: "limit", style: { left: size(limit) } }));
}

export const events = part("Events", ["events"], (app, now) => {
  const list = app.docs.get("events"), name = app.docs.get("node")?.name || "NODE";
  if (!list) return [card("Events", null, null, h("p", { class: "empty" }, "This node keeps no events: it sends them to its API server. Read them there: ", h("code", {}, `kubectl get events -A --field-selector source=kubelet --watch`), ` (reporting instance ${name}).`))];
  return [card("Events", "the newest first", null, list.length ? table("Events", ["When", "Type", "Reason", "Object", "Message"], list.map((e) => h("tr", { class: e.type === "Warning" ? "trouble" : "" },
    h("td", { class: "soft fixed" }, moment(Date.parse(e.at), now)), h("td", {}, h("span", { class: `state ${e.type === "Warning" ? "failing" : "waiting"}` }, e.type)), h("td", {}, e.reason, e.count > 1 ? h("span", { class: "soft" }, ` ×${e.count}`) : ""), h("td", {}, e.object), h("td", {}, e.message)))) : h("p", { class: "empty" }, "No events yet."))];
});

export const work = part("Work", ["work"], (app, now) => {
  const w = app.docs.get("work") || { held: [] };
  const tile = (name, value, more) => h("div", { class: "tile" }, h("div", { class: "name" }, name), h("div", { class: "value" }, value), h("div", { class: "more" }, more));
  return [
    h("div", { class: "tiles" }, tile("Pods that start", `${w.starting} of ${w.slots}`, "slots; the node measures how many help"), tile("Jobs of the node", `${w.busy} of ${w.limit}`, "commands of probes, starts, stops, removals"), tile("Waiting", `${w.held.length + (w.more || 0)}`, "pods and jobs that wait for their turn")),
    card("What waits", "the next one first", null, w.held.length ? table("Waiting work", ["Class", "Pod", "Waits"], w.held.map((x) => h("tr", {}, h("td", {}, x.class), h("td", {}, x.pod || ""), h("td", { class: "soft" }, x.since ? age(now - Date.parse(x.since)) : "")))) : h("p", { class: "empty" }, "Nothing waits: everything that the node wants to do is being done.")),
  ];
});
