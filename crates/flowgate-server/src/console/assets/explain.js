// Why something waits, in one form for everything.

import { h, fill } from "./dom.js";
import { dialog } from "./dialogs.js";
import { get } from "./server.js";
import { number, span, short } from "./format.js";

const NAMES = {
  delay: "Delayed",
  expired: "Expired",
  "queue-paused": "Queue paused",
  "key-paused": "Key paused",
  "key-unread": "Limits unreadable",
  "key-rests": "Key rests",
  "key-rate": "Rate spent",
  "key-max": "Key full",
  "key-head": "Behind a heavier one",
  "queue-max": "Queue full",
  "cluster-cap": "Cluster full",
  "no-worker": "No worker",
  "workers-busy": "Workers busy",
};

function limit(held) {
  const facts = [];
  if (held.key) facts.push(`key ${held.key}`);
  if (held.queue) facts.push(`queue ${held.queue}`);
  if (held.in_use !== undefined) facts.push(`${number(held.in_use)} of ${number(held.max ?? held.cap ?? held.slots)} in use`);
  if (held.rate) facts.push(held.rate);
  if (held.text) facts.push(held.text);
  if (held.for_ms !== undefined) facts.push(`for another ${span(held.for_ms)}`);
  return h("li", null, h("b", null, NAMES[held.limit] ?? held.limit), h("span", null, facts.join(" · ")));
}

function help(text) {
  const parts = text.split("`");
  return h("li", null, parts.map((part, index) => (index % 2 === 1 ? h("code", null, part) : part)));
}

function facts(told) {
  const all = told.facts.map(({ name, value }) => [name, value]);
  if (told.place) {
    const { ahead_in_key: inKey, ahead_in_queue: inQueue } = told.place;
    if (inKey !== null) all.push(["before it, of its key", number(inKey)]);
    all.push(["before it, of its queue", number(inQueue)]);
    const others = told.place.ahead_in_other_queues;
    if (others > 0) all.push(["before it, of queues served first", number(others)]);
  }
  if (told.estimate) {
    all.push(["should start", `in ${told.estimate.is_exact ? "" : "about "}${span(told.estimate.in_ms)}`]);
    all.push(["that is from", told.estimate.because]);
  }
  return h("dl", { class: "facts" }, all.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

function holders(told, go) {
  const holds = told.holders.length > 0 ? told.holders : told.first?.holders ?? [];
  if (holds.length === 0) return null;
  const rows = holds.map((holder) => {
    const open = () => { go?.(`messages/${holder.messageId}`); };
    const name = holder.messageId ? h("button", { class: "link mono", type: "button", onclick: open }, short(holder.messageId)) : h("span", { class: "mono" }, `task ${holder.task}`);
    return h("tr", null, h("td", null, name), h("td", null, holder.key ?? holder.queue), h("td", null, holder.worker), h("td", { class: "num" }, span(holder.for_ms)));
  });
  const head = ["Task", "Key or queue", "Worker", "Since"].map((title, index) => h("th", { scope: "col", class: index === 3 ? "num" : "" }, title));
  return [h("h3", null, "Who holds the slots"), h("table", { class: "plain-table" }, h("thead", null, h("tr", null, head)), h("tbody", null, rows))];
}

// A message is told by its name, and opens.
function first(told, go) {
  const id = told.messageId;
  if (!id || !go) return told.subject;
  return h("button", { class: "link mono", type: "button", onclick: (event) => { event.preventDefault(); go(`messages/${id}`); } }, short(id));
}

export function explanation(told, go) {
  const kind = told.held_by.length === 0 ? "free" : told.held_by[0].limit.includes("paused") ? "paused" : "held";
  return h(
    "div",
    { class: "explained" },
    h("p", { class: `verdict ${kind}` }, told.verdict.replaceAll("`", "")),
    told.held_by.length > 0 ? h("ul", { class: "limits" }, told.held_by.map(limit)) : null,
    told.help.length > 0 ? [h("h3", null, "What would free it"), h("ul", { class: "help" }, told.help.map(help))] : null,
    holders(told, go),
    facts(told),
    told.messageId && go ? h("p", null, h("button", { class: "link", type: "button", onclick: () => go(`messages/${told.messageId}`) }, `Message ${told.messageId}`)) : null,
    told.first ? h("details", null, h("summary", null, "The first in line: ", first(told.first, go)), facts(told.first)) : null,
  );
}

// Asks, and shows the answer in a dialog.
export function why(title, path, params, go) {
  const node = dialog(`Why does it wait? ${title}`, () => h("p", { class: "faint" }, "Asking …"), { wide: true });
  const body = node.querySelector(".dialog-body");
  const leave = (to) => { node.close(); go?.(to); };
  get(path, params).then(
    (told) => fill(body, explanation(told, leave)),
    (trouble) => fill(body, trouble.status === 404 ? h("div", { class: "explained" }, h("p", { class: "verdict free" }, "Nothing of it waits or runs.")) : h("p", { class: "wrong" }, trouble.message)),
  );
}
