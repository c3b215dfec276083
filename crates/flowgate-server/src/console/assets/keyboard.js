// The keyboard: what is pressed goes to the page first, then to the console.

import { h } from "./dom.js";
import { dialog, undoLast } from "./dialogs.js";

const KEYS = [
  ["/", "search"],
  ["j k or ↑ ↓", "move in a list"],
  ["Enter", "open what is chosen"],
  ["p", "pause or resume the chosen key, queue or schedule"],
  ["u", "undo the last pause, resume or unpin"],
  ["w", "why does it wait?"],
  ["r", "retry the chosen dead letter"],
  ["c", "cancel the chosen message"],
  ["n and b", "next page, and back"],
  ["1 … 7", "go to a page"],
  ["t", "light or dark"],
  ["Esc", "close, clear, or go back"],
  ["?", "this help"],
];

export function help() {
  dialog("Keyboard", () => h("dl", { class: "keys" }, KEYS.map(([key, text]) => [h("dt", null, key.split(" ").map((part) => (["or", "and", "…"].includes(part) ? ` ${part} ` : h("kbd", null, part)))), h("dd", null, text)])));
}

export function listen({ page, go, theme }) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const isTyping = event.target.closest?.("input, textarea, select");
    if (isTyping) return;
    const on = page();
    if (on === null) return;
    if (event.key === "/") on.search?.focus();
    else if (event.key === "?") help();
    else if (event.key === "t") theme();
    else if (event.key === "u") undoLast();
    else if (event.key === "Escape") on.back?.();
    else if (/^[1-7]$/.test(event.key)) go(Number(event.key) - 1);
    else if (!on.press?.(event)) return;
    event.preventDefault();
  });
}
