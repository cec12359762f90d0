// pod.js shows one pod: the answer first, then how it came to it.
import { card, h, keyed, svg } from "./dom.js";
import { axis, draw as bands, words } from "./bands.js";
import { age, bytes, cores, duration, millis, moment } from "./format.js";
import { next } from "./pods.js";

const maxLog = 200_000; // characters that are kept
let parts = null, at = -1, follow = true, log = null, name = "", chosen = "", before = false;

export function open(main, app) {
  name = app.detail;
  at = -1; follow = true; chosen = ""; before = false;
  parts = {
    main, head: h("div", {}), answer: h("section", { class: "card", "aria-label": "Answer" }), life: h("div", { class: "pad" }), chain: h("ol", { class: "chain" }),
    units: h("tbody", {}), record: h("tbody", {}), place: h("span", { class: "note", role: "status" }), volumes: h("div", {}), conditions: h("div", {}), logs: h("pre", { class: "logs", tabindex: 0, role: "log", "aria-label": "Output of the container" }),
  };
  const step = (by) => () => choose(app, by);
  parts.back = h("button", { type: "button", onclick: step(-1) }, "◀ back");
  parts.forward = h("button", { type: "button", onclick: step(+1) }, "forward ▶");
  parts.last = h("button", { type: "button", onclick: () => { follow = true; draw(app); } }, "newest");
  parts.pick = h("select", { "aria-label": "Container", onchange: (e) => { chosen = e.target.value; read(app); } });
  parts.before = h("button", { type: "button", "aria-pressed": "false", onclick: () => { before = !before; parts.before.setAttribute("aria-pressed", String(before)); read(app); } }, "attempt before");
  parts.box = h("div", { class: "record", tabindex: 0, "aria-label": "Record; the arrow keys step through it", onkeydown: (e) => {
    const by = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[e.key];
    if (by) { e.preventDefault(); choose(app, by); }
  } }, h("table", {}, h("caption", { class: "hidden" }, "What the node decided and did, oldest first"),
    h("thead", {}, h("tr", {}, ["Time", "Kind", "What", "Why", "Took"].map((t) => h("th", { scope: "col" }, t)))), parts.record));
  main.append(parts.head, parts.answer, card("Life", null, null, parts.life), card("How it got here", "the newest try of each step", null, parts.chain),
    card("Containers", "plots begin when this page was opened", null, h("table", {}, h("caption", { class: "hidden" }, "Containers"),
      h("thead", {}, h("tr", {}, ["Container", "State", "CPU", "Memory", "Probes"].map((t) => h("th", { scope: "col" }, t)))), parts.units)),
    card("Output", null, [parts.pick, parts.before], parts.logs),
    card("Record", parts.place, [parts.back, parts.forward, parts.last], parts.box),
    h("div", { class: "columns" }, card("Volumes", null, null, parts.volumes), card("Conditions", null, null, parts.conditions)));
  draw(app);
}

export function close() { log?.abort(); log = null; }

// choose steps through the record.
function choose(app, by) {
  const records = app.detailDoc()?.records || [];
  at = Math.max(0, Math.min(records.length - 1, at + by));
  follow = at === records.length - 1;
  draw(app);
  parts.record.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
}

export function draw(app) {
  if (!parts) return;
  const d = app.detailDoc(), now = app.now();
  parts.main.toggleAttribute("data-empty", !d);
  parts.main.querySelectorAll("section").forEach((s) => { s.hidden = !d; });
  if (!d) {
    missing(app);
    return;
  }
  const row = app.rows.get(d.uid) || d;
  if (parts.shown !== d) { parts.shown = d; still(app, d); }
  head(d, now);
  answer(d, now);
  const first = row.spans[0]?.fromMs || now;
  const from = Math.max(first - 1000, now - 3600e3), r = d.records[at];
  parts.life.replaceChildren(bands(row.spans, from, now, { cause: d.level === "well" ? "" : d.cause, width: parts.life.clientWidth, tall: true, mark: r && !follow ? Date.parse(r.at) : undefined }), axis(from, now));
  keyed(parts.units, d.units.map((u) => [u.name, u, (app.uses.get(`${d.uid}/${u.name}`) || []).length + ":" + Math.floor(now / 3000)]), (u) => unit(app, d, u, now));
  record(d, now);
}

function head(d, now) {
  const facts = [d.phase, d.static ? "static" : "", d.qos, d.ips?.length ? d.ips.join(", ") : "", d.created ? `created ${age(now - Date.parse(d.created))} ago` : "", `restartPolicy ${d.restartPolicy}`].filter(Boolean).join(" · ");
  if (parts.head.dataset.key === facts + d.band) return;
  parts.head.dataset.key = facts + d.band;
  parts.head.replaceChildren(h("p", {}, h("a", { href: "#/pods" }, "← All pods")), h("h1", {}, `${d.namespace}/${d.name} `, h("span", { class: `state ${d.band}` }, words[d.band] || d.band)), h("p", { class: "soft facts" }, facts));
}

// missing says that the node does not have the pod, and what may help to find it.
function missing(app) {
  const node = app.docs.get("node"), near = app.docs.get(`detail/${name}/missing`)?.near || [], [ns, pod] = name.split("/");
  const key = `missing ${!!node} ${near.join()}`;
  if (parts.head.dataset.key === key) return;
  parts.head.dataset.key = key;
  const valid = /^[a-z0-9.-]+$/; // a link to this page may contain anything, also what is dangerous in a command
  parts.head.replaceChildren(h("div", {}, h("p", {}, h("a", { href: "#/pods" }, "← All pods")), h("h1", {}, node ? `Pod ${name} is not on this node` : "Waiting for the node…"),
    near.length > 0 && h("p", { class: "empty" }, "Pods of this node with similar names: ", near.map((n, i) => [i ? ", " : "", h("a", { href: `#/pod/${n.split("/").map(encodeURIComponent).join("/")}` }, n)])),
    node && !node.standalone && valid.test(ns) && valid.test(pod) && h("p", { class: "empty" }, advice(`To look for it in the whole cluster: wherry why -n ${ns} ${pod}`))));
}

function answer(d, now) {
  const a = d.answer, then = next(a, now);
  const key = JSON.stringify([a, then, d.inspection, a.since ? age(now - Date.parse(a.since)) : ""]);
  if (parts.answer.dataset.key === key) return;
  parts.answer.dataset.key = key;
  parts.answer.replaceChildren(h("div", { class: `answer ${a.level}` },
    h("div", { class: "cause" }, { well: "✓ well", progress: "… on the way", trouble: "! in trouble" }[a.level] || a.level, " · ", a.cause, a.container ? ` · container ${a.container}` : ""),
    h("h2", {}, a.line),
    h("dl", {},
      a.since && [h("dt", {}, "since"), h("dd", {}, `${moment(Date.parse(a.since), now)}, ${age(now - Date.parse(a.since))} ago`)],
      then && [h("dt", {}, "next"), h("dd", {}, then)],
      (a.facts || []).map((f) => { // "what: text"
        const i = f.indexOf(": ");
        return [h("dt", {}, i < 0 ? "fact" : f.slice(0, i)), h("dd", {}, i < 0 ? f : f.slice(i + 2))];
      }),
      d.inspection && [h("dt", {}, "inspection"), h("dd", {}, d.inspection)],
      (a.do || []).map((t) => [h("dt", {}, "what you can do"), h("dd", {}, advice(t))]))));
}

// advice shows the command of an advice so that it can be copied.
function advice(text) {
  const i = text.search(/\b(wherry|kubectl|crictl|journalctl|findmnt) \S/);
  if (i < 0) return text;
  const end = text.slice(i).search(/[;,]| and /);
  const command = end < 0 ? text.slice(i) : text.slice(i, i + end);
  const copy = h("button", { type: "button", "data-focus": command, onclick: async () => {
    try { await navigator.clipboard.writeText(command); copy.textContent = "copied"; } catch { copy.textContent = "select it to copy"; }
  } }, "copy");
  return [text.slice(0, i), h("span", { class: "command" }, h("code", {}, command), copy), end < 0 ? "" : text.slice(i + end)];
}

// still draws the parts that change only with the document.
function still(app, d) {
  parts.chain.replaceChildren(...(d.chain || []).map((l) => h("li", {}, h("div", { class: `step ${l.state}`, title: l.text || null },
    h("b", {}, `${{ done: "✓", failed: "✗", runs: "…" }[l.state] || ""} ${l.verb.replaceAll("-", " ")}${l.container ? " " + l.container : ""}`),
    h("span", {}, [l.state === "runs" ? `since ${moment(Date.parse(l.at), app.now())}` : l.took ? duration(l.took / 1e6) : "", l.tries > 1 ? `${l.tries} times` : "", l.state === "failed" ? l.text : ""].filter(Boolean).join(" · ") || "done")))));
  if (!d.chain?.length) parts.chain.replaceChildren(h("li", { class: "soft" }, "Nothing has been done for the pod yet."));
  parts.volumes.replaceChildren(d.volumes?.length ? h("table", {}, h("tbody", {}, d.volumes.map((v) => h("tr", {}, h("th", { scope: "row" }, v.name), h("td", {}, v.kind, v.source ? ` ${v.source}` : ""), h("td", { class: "soft" }, (v.mounts || []).join(", ")))))) : h("p", { class: "empty" }, "The pod has no volumes."));
  parts.conditions.replaceChildren(h("table", {}, h("tbody", {}, (d.conditions || []).map((c) => h("tr", {}, h("th", { scope: "row" }, c.type), h("td", { class: "fixed" }, c.status), h("td", { class: "soft" }, [c.reason, c.message].filter(Boolean).join(": "), c.since ? ` since ${moment(Date.parse(c.since), app.now())}` : ""))))));
  const names = d.units.map((u) => u.name);
  if (parts.pick.dataset.names !== names.join()) {
    parts.pick.dataset.names = names.join();
    parts.pick.replaceChildren(...names.map((n) => h("option", { value: n }, n)));
    chosen = d.answer.container && names.includes(d.answer.container) ? d.answer.container : names[names.length - 1] || "";
    parts.pick.value = chosen;
  }
  const u = d.units.find((x) => x.name === chosen), instance = `${chosen} ${u?.state === "running" ? u.since : u?.state} ${u?.restarts}`;
  if (parts.instance !== instance) { parts.instance = instance; read(app); }
}

function unit(app, d, u, now) {
  const uses = app.uses.get(`${d.uid}/${u.name}`) || [], last = uses.at(-1);
  const state = { running: u.ready ? "ready" : "running", ended: u.exitCode ? "failed" : "ended", waiting: d.level === "trouble" ? "failing" : "waiting" }[u.state];
  const limit = (n, asked, show) => (n ? `limit ${show(n)}` : asked ? `request ${show(asked)}, no limit` : "no limit");
  return h("tr", {},
    h("td", {}, h("b", {}, u.name), u.kind === "main" ? "" : h("span", { class: "soft" }, ` ${u.kind}`), h("div", { class: "soft mono" }, u.image)),
    h("td", {}, h("span", { class: `state ${state}` }, u.state === "running" ? (u.ready ? "ready" : "running") : u.state), " ", u.since ? `for ${age(now - Date.parse(u.since))}` : "",
      h("div", { class: "soft" }, [u.reason, u.state === "ended" ? `exit code ${u.exitCode}` : "", u.message].filter(Boolean).join(": ")),
      u.restarts > 0 && h("div", { class: "soft" }, `restarted ${u.restarts} times`, u.last ? `; before: ${u.last}` : "")),
    h("td", {}, plot(uses, "cpu", u.cpuLimit, "CPU"), h("div", { class: "soft" }, last ? `${cores(last.cpu)}, ` : "", limit(u.cpuLimit, u.cpuRequest, cores))),
    h("td", {}, plot(uses, "memory", u.memLimit, "memory"), h("div", { class: "soft" }, last ? `${bytes(last.memory)}, ` : "", limit(u.memLimit, u.memRequest, bytes))),
    h("td", {}, (u.probes || []).map((p) => {
      const bad = (d.failing || []).find((f) => f.container === u.name && f.kind.toLowerCase() === p);
      return h("div", { class: bad ? "err" : "" }, bad ? `✗ ${p}: failed ${bad.times} times, ${bad.threshold} are enough` : u.state === "running" ? `✓ ${p}` : p, bad?.output && h("div", { class: "soft" }, bad.output));
    }), !u.probes && h("span", { class: "soft" }, "none")));
}

// plot draws what a container used lately, with its limit.
function plot(uses, key, limit, what) {
  const w = 150, top = 34, most = Math.max(...uses.map((u) => u[key]), limit || 0, 1) * 1.08;
  const box = svg("svg", { class: "plot", viewBox: `0 0 ${w} ${top}`, role: "img", "aria-label": uses.length ? `${what}: ${uses.length} readings, the newest is ${Math.round((100 * uses.at(-1)[key]) / (limit || most))} % of ${limit ? "the limit" : "the highest"}` : `${what}: no readings yet` });
  if (limit) box.append(svg("line", { class: "limit", x1: 0, x2: w, y1: top - (limit / most) * top, y2: top - (limit / most) * top }));
  if (uses.length > 1) {
    const first = uses[0].at, all = uses.at(-1).at - first || 1;
    const points = uses.map((u) => `${(((u.at - first) / all) * w).toFixed(1)},${(top - (u[key] / most) * (top - 2) - 1).toFixed(1)}`).join(" ");
    box.append(svg("polygon", { class: "area", points: `0,${top} ${points} ${w},${top}` }), svg("polyline", { class: "path", points }));
  }
  return box;
}

function record(d, now) {
  const n = d.records.length;
  if (follow || at >= n) at = n - 1;
  parts.back.disabled = at <= 0;
  parts.forward.disabled = at >= n - 1;
  parts.last.disabled = follow;
  const text = `${at + 1} of ${n}${d.lost ? `; ${d.lost} older ones were dropped, so the record is complete since ${moment(Date.parse(d.records[0].at), now)}` : ""}`;
  if (parts.place.textContent !== text) parts.place.textContent = text;
  const grown = follow && parts.newest !== d;
  parts.newest = d;
  keyed(parts.record, d.records.map((r, i) => [`${r.at}${r.kind}${r.what}${i + (d.lost || 0)}`, r, String(i === at)]), (r) =>
    h("tr", { "aria-current": d.records.indexOf(r) === at ? "step" : null, onclick: () => { at = d.records.indexOf(r); follow = at === n - 1; record(d, now); } },
      h("td", { class: "mono fixed" }, millis(Date.parse(r.at))),
      h("td", { class: "fixed" }, r.band ? h("span", { class: `state ${r.band}` }, words[r.band] || r.band) : r.kind === "ended" ? (r.error ? "✗ ended" : "✓ ended") : r.kind),
      h("td", {}, r.kind === "decision" ? (r.cause ? `because of: ${r.cause}` : "") : r.what), h("td", {}, r.error ? h("span", { class: "err" }, r.error) : r.why || ""), h("td", { class: "num" }, r.took ? duration(r.took / 1e6) : "")));
  if (grown) parts.box.scrollTop = parts.box.scrollHeight;
}

// read follows the output of the chosen container.
async function read(app) {
  log?.abort();
  const mine = (log = new AbortController());
  parts.logs.textContent = "";
  if (!chosen) return;
  const [ns, pod] = name.split("/");
  const url = `logs/${[ns, pod, chosen].map(encodeURIComponent).join("/")}?tailLines=200${before ? "&previous=true" : "&follow=true"}`;
  try {
    const answer = await fetch(url, { signal: mine.signal });
    if (!answer.ok) { parts.logs.textContent = `(${(await answer.text()).trim().slice(0, 500)})`; return; }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done || mine.signal.aborted) break;
      text = (text + value).slice(-maxLog);
      const low = parts.logs.scrollHeight - parts.logs.scrollTop - parts.logs.clientHeight < 30;
      parts.logs.textContent = text.replace(/\u001b\[[0-9;]*[A-Za-z]/g, "");
      if (low) parts.logs.scrollTop = parts.logs.scrollHeight;
    }
    if (!text && !mine.signal.aborted) parts.logs.textContent = "(the container has written nothing)";
  } catch (e) { if (!mine.signal.aborted) parts.logs.textContent = `(the output cannot be read: ${e.message})`; }
}
