// A table that is walked with the keyboard, changes in place, and asks the server for its pages.

import { h, fill } from "./dom.js";
import { isComingBack, keep, told } from "./address.js";
import { button } from "./dialogs.js";
import { full, moment } from "./format.js";

const left = new Map();

// Columns: { title, kind, hint, make(cell) -> show(item) }; a hint says what the figures below it are. Rows are told apart by `id(item)`.
export function list({ label, columns, id, open, keys = {} }) {
  const body = h("tbody");
  const head = h("tr", null, columns.map(({ title, kind = "", say, hint }) => h("th", { scope: "col", class: hint ? `${kind} hint` : kind, title: hint }, say ? h("span", { class: "hidden" }, say) : title)));
  const table = h("table", { class: "list", "aria-label": label }, h("thead", null, head), body);
  const none = h("div", { class: "empty" }, h("p", { class: "soon", role: "status" }, "Reading …"));
  const fresh = h("button", { type: "button", class: "fresh", hidden: true, "data-do": "fresh", onclick: bring });
  const node = h("div", { class: "list-box" }, table, none, fresh);
  const rows = new Map();
  let chosen = 0;
  // What came while somebody was about to act on a row: it is shown when they have left the list.
  let waiting = null;
  let nothing = [];
  let isBack = isComingBack();
  let isUnder = false;
  table.hidden = true;
  // A finger that was lifted is nowhere any more; a mouse is.
  body.addEventListener("pointermove", (event) => { isUnder = event.pointerType === "mouse"; });
  body.addEventListener("pointerleave", () => { isUnder = false; release(); });
  node.addEventListener("focusout", () => setTimeout(release));

  function row(item) {
    const shows = [];
    const tr = h("tr", { tabindex: -1, "data-id": id(item) });
    // On a phone there is no head: each figure has its title beside it.
    for (const { title, kind = "", make } of columns) {
      const cell = h("td", { class: kind, "data-title": title });
      shows.push(make(cell));
      tr.append(cell);
    }
    if (open) {
      tr.classList.add("opens");
      tr.addEventListener("click", (event) => {
        if (event.target.closest("button, a, input")) return;
        enter(entry.item);
      });
    }
    tr.addEventListener("click", (event) => { if (event.target.closest("a")) left.set(label, id(entry.item)); }, true);
    tr.addEventListener("focus", () => choose([...body.children].indexOf(tr), false));
    const entry = { tr, item, show(next) { entry.item = next; for (const show of shows) show(next); } };
    return entry;
  }

  // Whoever comes back is where they left.
  function enter(item) {
    left.set(label, id(item));
    open(item);
  }

  function choose(index, isFocused = true) {
    const all = [...body.children];
    if (all.length === 0) return;
    chosen = Math.max(0, Math.min(index, all.length - 1));
    all.forEach((tr, at) => { tr.tabIndex = at === chosen ? 0 : -1; });
    if (isFocused) {
      all[chosen].focus({ preventScroll: true });
      all[chosen].scrollIntoView({ block: "nearest" });
    }
  }

  // Who is about to press the button for what is new finds it as well.
  const isHeld = () => isUnder || body.contains(document.activeElement) || document.activeElement === fresh;

  function release() {
    if (waiting !== null && !isHeld()) put(waiting);
  }

  // Asked for by the keyboard, whose place the button was: that is the first row then. A hand at the mouse holds no row by it.
  function bring(event) {
    put(waiting);
    if (event.detail === 0) choose(0);
  }

  // Shows exactly these, with the rows that are there already left where they are.
  function put(items) {
    waiting = null;
    fresh.hidden = true;
    const wanted = new Set(items.map(id));
    for (const [key, entry] of rows) {
      if (wanted.has(key)) continue;
      entry.tr.remove();
      rows.delete(key);
    }
    items.forEach((item, index) => {
      const key = id(item);
      let entry = rows.get(key);
      if (!entry) {
        entry = row(item);
        rows.set(key, entry);
      }
      entry.show(item);
      if (body.children[index] !== entry.tr) body.insertBefore(entry.tr, body.children[index] ?? null);
    });
    table.hidden = items.length === 0;
    none.hidden = items.length > 0;
    const from = isBack ? items.findIndex((item) => id(item) === left.get(label)) : -1;
    isBack = false;
    if (items.length > 0) choose(from < 0 ? chosen : from, from >= 0);
    else explain(h("div", null, nothing));
  }

  // Written anew only where it says something else: who is about to press its button does not lose it.
  function explain(next) {
    if (none.textContent !== next.textContent) none.replaceChildren(...next.childNodes);
  }

  return {
    node,
    rows,
    show: put,
    // Shows these as `show` does, but moves no row under somebody's hand: then it says that there is more, and waits.
    offer(items) {
      const isSame = items.length === rows.size && items.every((item, index) => body.children[index] === rows.get(id(item))?.tr);
      if (isSame || !isHeld()) return put(items);
      for (const item of items) rows.get(id(item))?.show(item);
      const count = items.filter((item) => !rows.has(id(item))).length;
      waiting = items;
      fresh.textContent = count > 0 ? `${count} new: show` : "Another order: show";
      fresh.hidden = false;
    },
    // What there is stays on the screen; where there is nothing yet, it says why not.
    fail(what, trouble, again) {
      if (rows.size > 0) return;
      explain(unread(what, trouble, again));
      table.hidden = true;
      none.hidden = false;
    },
    // What it says when it has nothing to show.
    empty(...children) {
      nothing = children;
    },
    update(key, item) {
      rows.get(key)?.show(item);
    },
    current: () => [...rows.values()].find((entry) => entry.tr === body.children[chosen])?.item,
    press(event) {
      const isInside = body.contains(document.activeElement);
      if (event.key === "j" || event.key === "ArrowDown") choose(isInside ? chosen + 1 : chosen);
      else if (event.key === "k" || event.key === "ArrowUp") choose(isInside ? chosen - 1 : chosen);
      else if (event.key === "Home" && isInside) choose(0);
      else if (event.key === "End" && isInside) choose(rows.size - 1);
      else if (event.key === "Enter" && isInside && document.activeElement.tagName === "TR") { if (open) enter(this.current()); }
      else if (keys[event.key] && isInside) keys[event.key](this.current());
      else return false;
      return true;
    },
  };
}

// A list with its name above it.
export const titled = (title, note, { node }) => h("section", { class: "card flush", "aria-label": title }, h("div", { class: "card-head pad" }, h("h2", null, title), h("span", { class: "faint small" }, note)), node);

// Where something should stand that the server did not give, and another try.
export const unread = (what, trouble, again) => h("div", { class: "card empty" }, h("h2", null, `${what} cannot be read`), h("p", null, trouble.message), button("retry", "Try again", again, { testid: "again" }));

// Text in a cell.
export const text = (of, kind, title = kind?.includes("cut") ? of : null) => (cell) => {
  const span = h("span", { class: kind });
  cell.append(span);
  return (item) => {
    const next = String(of(item) ?? "");
    if (span.textContent !== next) span.textContent = next;
    const more = title === null ? "" : String(title(item) ?? "");
    if (span.title !== more) span.title = more;
  };
};

// A moment in a cell: the time of day, and all of it, with its zone, for who asks.
export const time = (of, words = moment) => text((item) => (of(item) ? words(of(item)) : ""), "num-left", (item) => (of(item) ? full(of(item)) : ""));

// Buttons in a cell, made anew only when what they depend on has changed.
export const actions = (of, make) => (cell) => {
  const box = h("div", { class: "row-actions" });
  cell.append(box);
  let known = null;
  let last = null;
  return (item) => {
    last = item;
    const next = JSON.stringify(of(item));
    if (next === known) return;
    const hadFocus = box.contains(document.activeElement) ? [...box.children].indexOf(document.activeElement) : -1;
    known = next;
    fill(box, make(() => last, item));
    if (hadFocus >= 0) box.children[hadFocus]?.focus();
  };
};

// Back and forth between pages that the server gives one by one.
export function pager(load) {
  // A link leads to its page; what was before it is not known, but for the first.
  let trail = told("from") === "" ? [null] : [null, told("from")];
  let next = null;
  const back = button("left", "Before", () => { trail.pop(); turn(); }, { kind: "plain", testid: "before" });
  const on = button("right", "More", () => { trail.push(next); turn(); }, { kind: "plain", testid: "more" });
  const said = h("span", { class: "faint" });
  const node = h("nav", { class: "pager single", "aria-label": "Pages of this list" }, back, said, on);
  const turn = () => { keep({ from: trail.at(-1) }); load(trail.at(-1)); };
  return {
    node,
    from: () => trail.at(-1),
    isFirst: () => trail.length === 1,
    reset() { trail = [null]; keep({ from: null }); },
    press(event) {
      if (event.key === "n") on.click();
      else if (event.key === "b") back.click();
      else return false;
      return true;
    },
    show(following, words) {
      next = following ?? null;
      back.disabled = trail.length === 1;
      on.disabled = next === null;
      said.textContent = words;
      node.classList.toggle("single", trail.length === 1 && next === null);
      node.hidden = node.classList.contains("single") && words === "";
    },
  };
}

// What is typed, from the address on: `change` is told of what is new.
export function search(label, hint, changed) {
  const input = h("input", { type: "search", class: "search", value: told("q"), placeholder: hint, "aria-label": label, spellcheck: "false", autocomplete: "off", enterkeyhint: "search" });
  let soon = 0;
  let value = input.value.trim();
  const change = () => {
    value = input.value.trim();
    keep({ q: value });
    changed();
  };
  input.addEventListener("input", () => {
    clearTimeout(soon);
    soon = setTimeout(change, 180);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      input.value = "";
      input.blur();
      clearTimeout(soon);
      change();
      event.stopPropagation();
    } else if (event.key === "Enter") {
      clearTimeout(soon);
      change();
    }
  });
  return { input, value: () => value, leave: () => clearTimeout(soon), node: h("div", { class: "search-box" }, input, h("kbd", { "aria-hidden": "true" }, "/")) };
}

export function choice(label, options, change) {
  const first = options[0][0];
  let chosen = options.find(([value]) => value === told("show"))?.[0] ?? first;
  const buttons = options.map(([value, words]) => {
    const node = h("button", { type: "button", class: "segment", "aria-pressed": String(value === chosen), "data-value": value }, h("span", null, words), h("b"));
    node.addEventListener("click", () => {
      chosen = value;
      keep({ show: value === first ? null : value });
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === node));
      change(value);
    });
    return node;
  });
  return {
    node: h("div", { class: "segments", role: "group", "aria-label": label }, buttons),
    value: () => chosen,
    count(value, count) {
      const node = buttons.find((other) => other.dataset.value === value)?.querySelector("b");
      if (node && node.textContent !== count) node.textContent = count;
    },
  };
}
