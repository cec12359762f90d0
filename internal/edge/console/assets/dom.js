// dom.js makes elements. Every text becomes a text node: nothing that the node sends is ever read as HTML.

// h makes an element. Attributes that begin with "on" are listeners, "style" is an object, and false, null and undefined are left out.
export function h(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [k, v] of Object.entries(value)) e.style.setProperty(k, v);
    else e.setAttribute(name, value === true ? "" : String(value));
  }
  e.append(...children.flat(9).filter((c) => c !== null && c !== undefined && c !== false).map((c) => (c instanceof Node ? c : String(c))));
  return e;
}

// svg makes an element of a drawing.
export function svg(tag, attributes, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) e.setAttribute(name, String(value));
  e.append(...children);
  return e;
}

// keyed makes the children of a list those that make returns for the keys, in this order. It makes an element again only if its
// value has changed, so that focus and selection stay.
export function keyed(list, entries, make) {
  list.cells ||= new Map();
  const seen = new Set();
  let at = list.firstElementChild;
  for (const [key, value, stamp] of entries) {
    seen.add(key);
    let cell = list.cells.get(key);
    if (!cell || cell.value !== value || cell.stamp !== stamp) {
      const fresh = make(value);
      if (cell) {
        const inside = cell.element.contains(document.activeElement);
        const label = inside && document.activeElement.getAttribute("data-focus");
        if (at === cell.element) at = fresh;
        cell.element.replaceWith(fresh);
        if (inside && label) fresh.querySelector(`[data-focus="${label}"]`)?.focus();
      }
      cell = { element: fresh, value, stamp };
      list.cells.set(key, cell);
    }
    if (at === cell.element) at = at.nextElementSibling;
    else list.insertBefore(cell.element, at);
  }
  for (const [key, cell] of list.cells) if (!seen.has(key)) { cell.element.remove(); list.cells.delete(key); }
}

export const card = (title, note, tools, ...body) =>
  h("section", { class: "card", "aria-label": title },
    h("header", {}, h("h2", {}, title), note && h("span", { class: "note" }, note), tools && h("div", { class: "right tools" }, tools)), ...body);
