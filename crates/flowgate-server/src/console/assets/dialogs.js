// What is said in passing, and what is asked before something is done.

import { h, fill } from "./dom.js";
import { icon } from "./icons.js";

const LONG = 9000;
const SHORT = 4000;
let last = null;

// What was done can be undone for as long as this says it, with its button or by the keyboard.
export function toast(text, kind = "well", undo = null) {
  const box = document.getElementById("toasts");
  const take = () => { node.remove(); undo(); };
  const node = h("div", { class: `toast ${kind}` }, h("span", null, text), undo ? h("button", { type: "button", onclick: take, title: "Undo (u)", "data-do": "undo" }, "Undo") : null);
  box.append(node);
  while (box.children.length > 4) box.firstChild.remove();
  if (undo) last = { node, take };
  setTimeout(() => node.remove(), kind === "bad" || undo ? LONG : SHORT);
}

export const undoLast = () => { if (last?.node.isConnected) last.take(); };

// Does it, says that it is done and how it is undone, or why not.
export async function act(work, said, undo) {
  try {
    const value = await work();
    if (said) toast(said, "well", undo);
    return value ?? true;
  } catch (trouble) {
    toast(trouble.message, "bad");
    return null;
  }
}

export function button(name, text, onclick, { kind = "", label, isIcon = false, disabled = false, testid } = {}) {
  const title = label ?? text;
  return h(
    "button",
    { class: `button ${kind}${isIcon ? " only-icon" : ""}`, type: "button", onclick, title: isIcon ? title : null, "aria-label": title, disabled, "data-do": testid },
    name ? icon(name) : null,
    isIcon ? null : h("span", null, text),
  );
}

export function dialog(title, build, { wide = false } = {}) {
  const body = h("div", { class: "dialog-body" });
  const node = h(
    "dialog",
    { class: wide ? "dialog wide" : "dialog", "aria-label": title },
    h("header", null, h("h2", null, title), button("close", "Close", () => node.close(), { isIcon: true, kind: "plain" })),
    body,
  );
  node.addEventListener("close", () => node.remove());
  node.addEventListener("click", (event) => { if (event.target === node) node.close(); });
  document.body.append(node);
  fill(body, build(() => node.close(), body));
  node.showModal();
  return node;
}

export function confirm(title, text, verb, kind = "danger") {
  return new Promise((resolve) => {
    const node = dialog(title, (close) => [
      h("p", null, text),
      h(
        "div",
        { class: "dialog-actions" },
        button(null, "Keep it as it is", close, { kind: "plain" }),
        button(null, verb, () => { resolve(true); close(); }, { kind, testid: "confirm" }),
      ),
    ]);
    node.addEventListener("close", () => resolve(false));
  });
}

// A form: fields of name, label, kind and value; `done` gets the values and says what is wrong by throwing.
export function form(title, fields, verb, done, note) {
  dialog(title, (close) => {
    const inputs = {};
    const wrong = h("p", { class: "wrong", role: "alert" });
    const rows = fields.map(({ name, label, hint, kind = "text", value = "", ...rest }, index) => {
      const input = kind === "area" ? h("textarea", { name, rows: 4, value, autofocus: index === 0, ...rest }) : h("input", { name, type: kind, value, autocomplete: "off", autofocus: index === 0, ...rest });
      inputs[name] = input;
      return h("label", { class: "field" }, h("span", null, label), input, hint ? h("small", null, hint) : null);
    });
    const submit = button(null, verb, null, { kind: "main", testid: "submit" });
    submit.type = "submit";
    const onsubmit = async (event) => {
      event.preventDefault();
      submit.disabled = true;
      try {
        await done(Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value.trim()])));
        close();
      } catch (trouble) {
        wrong.textContent = trouble.message;
        submit.disabled = false;
      }
    };
    return h("form", { onsubmit, novalidate: true }, note ? h("p", { class: "faint" }, note) : null, h("div", { class: "fields" }, rows), wrong, h("div", { class: "dialog-actions" }, button(null, "Cancel", close, { kind: "plain" }), submit));
  });
}
