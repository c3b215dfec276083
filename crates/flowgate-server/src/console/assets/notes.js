// What needs a look, in words: each of them leads to where something can be done about it.

import { h } from "./dom.js";
import { counted, number } from "./format.js";
import * as live from "./live.js";

// So many of the tries of the last minute, and so large a share of them, are worth a word.
const MOST_FAILED = 5;
const SHARE = 0.1;
const MINUTE = 60000;

const many = (count, one, more) => (count === 1 ? `1 ${one}` : `${number(count)} ${more}`);

// Kind, where it leads to, and what it says; the worst first.
export function notes(past) {
  const now = past.at(-1);
  if (!now) return [];
  const minute = past.filter((look) => now.at - look.at < MINUTE);
  const sum = (of) => minute.reduce((all, look) => all + (look[of] ?? 0), 0);
  const failed = sum("retried") + sum("failed");
  const tries = failed + sum("delivered");
  const isWhole = minute.length > 1 && now.at - minute[0].at > 0.75 * MINUTE;
  const all = [];
  if (now.workers === 0 && now.waiting > 0) all.push(["bad", "queues", `No worker is alive, ${number(now.waiting)} wait`]);
  if (failed >= MOST_FAILED && failed >= SHARE * tries) all.push(["bad", sum("failed") > 0 ? "messages?show=FAILED" : "messages?show=IN_PROGRESS", `${number(failed)} of ${number(tries)} tries failed in the last minute`]);
  if (now.dead > 0) all.push(["bad", "letters", now.dead === 1 && !now.isDeadMore ? "1 dead letter" : `${counted(now.dead, now.isDeadMore)} dead letters`]);
  if (now.pausedQueues > 0) all.push(["wait", "queues", `${many(now.pausedQueues, "queue is", "queues are")} paused`]);
  if (now.pausedKeys > 0) all.push(["wait", "keys?show=paused", `${many(now.pausedKeys, "key is", "keys are")} paused`]);
  if (now.cap && now.inFlight >= now.cap && now.waiting > 0) all.push(["wait", "queues", `The cluster is full: ${number(now.inFlight)} of ${number(now.cap)}`]);
  if (isWhole && now.waiting > 0 && tries === 0) all.push(["wait", "keys?show=busy", `${number(now.waiting)} wait, and this server ended none in the last minute`]);
  return all;
}

// One line of them, always there, so that nothing below it moves.
export function noteLine(link) {
  const list = h("ul");
  const node = h("section", { class: "notes", "aria-label": "What needs a look" }, list);
  let known = null;
  return {
    node,
    show() {
      if (live.past.totals.length === 0) return;
      const all = notes(live.past.totals);
      const next = JSON.stringify(all);
      if (next === known) return;
      known = next;
      // A link that only counts on stays the one that has the focus.
      const held = list.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      const items = all.map(([kind, to, text]) => h("li", null, link(to, { class: `note ${kind}` }, text)));
      list.replaceChildren(...(items.length > 0 ? items : [h("li", null, h("span", { class: "note well" }, "Nothing is paused, nothing failed in the last minute, and there are no dead letters."))]));
      if (held) [...list.querySelectorAll("a")].find((item) => item.getAttribute("href") === held)?.focus();
    },
  };
}
