// rules.js returns what is wrong with a page for people who use a keyboard or a screen reader, or see few colours: one line each.
(() => {
  const wrong = [], say = (rule, e) => wrong.push(`${rule}: ${e.outerHTML.slice(0, 160)}`);
  const shown = (e) => { const r = e.getBoundingClientRect(), s = getComputedStyle(e); return r.width > 0 && r.height > 0 && s.visibility !== "hidden"; };
  const name = (e) => (e.getAttribute("aria-label") || e.getAttribute("alt") || e.textContent || e.getAttribute("title") || "").trim();

  if (!document.documentElement.lang) wrong.push("the page has no language");
  if (!document.title) wrong.push("the page has no title");
  if (document.querySelectorAll("h1").length !== 1) wrong.push(`the page has ${document.querySelectorAll("h1").length} first headings`);
  if (document.querySelectorAll("main").length !== 1) wrong.push("the page has not one main part");
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of new Set(ids)) if (ids.filter((x) => x === id).length > 1) wrong.push(`two elements have the id ${id}`);
  for (const e of document.querySelectorAll("a, button")) if (shown(e) && !name(e)) say("it has no name", e);
  for (const e of document.querySelectorAll("a")) if (!e.hasAttribute("href")) say("it is a link that leads nowhere", e);
  for (const e of document.querySelectorAll("input, select, textarea")) if (!e.getAttribute("aria-label") && !e.labels?.length) say("it has no label", e);
  for (const e of document.querySelectorAll("img")) if (!e.hasAttribute("alt")) say("it has no alternative text", e);
  for (const e of document.querySelectorAll("[role=img], [role=group]")) if (!e.getAttribute("aria-label")) say("it has a role and no label", e);
  for (const e of document.querySelectorAll("th")) if (!e.getAttribute("scope")) say("it is a heading of a table without a scope", e);
  for (const e of document.querySelectorAll("[tabindex]")) if (+e.getAttribute("tabindex") > 0) say("it changes the order of the keyboard", e);
  for (const e of document.querySelectorAll("[onclick]")) say("it has an inline script", e);
  for (const list of document.querySelectorAll("ul, ol")) for (const e of list.children) if (e.tagName !== "LI") say("it is in a list and no item", e);

  // contrast: text against the colour behind it, 4.5 to 1, or 3 to 1 for large text
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  canvas.canvas.width = canvas.canvas.height = 1;
  const rgba = (c) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); const d = canvas.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; };
  const over = (top, under) => top.slice(0, 3).map((v, i) => v * top[3] + under[i] * (1 - top[3]));
  const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (e) => { const layers = []; for (let x = e; x; x = x.parentElement) { const c = rgba(getComputedStyle(x).backgroundColor); layers.push(c); if (c[3] === 1) break; } return layers.reverse().reduce((under, c) => over(c, under), [255, 255, 255]); };
  const seen = new Set();
  for (const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); walk.nextNode();) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || seen.has(e) || !shown(e) || e.closest(".hidden, .skip, noscript, script, :disabled, option")) continue;
    seen.add(e);
    const style = getComputedStyle(e), ground = behind(e), ink = over(rgba(style.color), ground), a = light(ink), b = light(ground);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.6 && +style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) say(`its contrast is ${ratio.toFixed(2)}`, e);
  }
  return wrong;
})()
