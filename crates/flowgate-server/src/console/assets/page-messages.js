// Messages: what happened to them, the newest first; and one of them from its first moment to its last.

import { h, fill } from "./dom.js";
import { button, act, confirm } from "./dialogs.js";
import { choice, list, pager, search, text, time, unread } from "./list.js";
import { away, day, decode, full, host, moment, number, pretty, short } from "./format.js";
import { get, keyPath, part, post, remove } from "./server.js";
import * as live from "./live.js";
import { why } from "./explain.js";
import { heading } from "./page-key.js";

const KINDS = { CREATED: "plain", ACTIVE: "flight", DELIVERED: "well", RETRY: "wait", ERROR: "wait", FAILED: "bad", CANCELED: "plain", CANCEL_REQUESTED: "plain" };
const WORDS = { CREATED: "created", ACTIVE: "started", DELIVERED: "delivered", RETRY: "retry", ERROR: "error", FAILED: "failed", CANCELED: "cancelled", CANCEL_REQUESTED: "cancel asked" };

export const stateBadge = (state) => h("span", { class: `badge ${KINDS[state] ?? ""}` }, WORDS[state] ?? state);

const badge = (cell) => {
  let known = "";
  return ({ state }) => {
    if (state === known) return;
    known = state;
    fill(cell, stateBadge(state));
  };
};

// What is typed becomes a question to the log.
export function asked(typed) {
  const params = {};
  const words = [];
  for (const word of typed.split(/\s+/).filter(Boolean)) {
    const [, name, value] = /^(key|label|queue|host|schedule|group):(.+)$/.exec(word) ?? [];
    const names = { key: "flowControlKey", label: "label", queue: "queueName", host: "host", schedule: "scheduleId", group: "topicName" };
    if (name) params[names[name]] = value;
    else if (word.startsWith("msg_")) params.messageIds = word;
    else words.push(word);
  }
  if (words.length > 0) params.search = words.join(" ");
  return params;
}

export function messagesPage({ go, link }) {
  let isLeft = false;
  let turn = 0;
  const open = (event) => go(`messages/${event.messageId}`);
  const cancel = (event) => cancelMessage(event.messageId).then(refresh);
  const table = list({
    label: "Log of messages",
    id: (event) => `${event.messageId}/${event.time}/${event.state}`,
    open,
    keys: { w: (event) => why(short(event.messageId), `messages/${part(event.messageId)}/explain`, null, go), c: cancel },
    columns: [
      { title: "When", kind: "when", make: time((event) => event.time) },
      { title: "What", kind: "what", make: badge },
      { title: "Message", kind: "id", make(cell) { const box = h("span"); cell.append(box); let known = ""; return (event) => { if (known === event.messageId) return; known = event.messageId; fill(box, link(`messages/${event.messageId}`, { class: "mono link", title: event.messageId }, short(event.messageId))); }; } },
      { title: "Where", kind: "wide", make: text((event) => host(event.url), "cut") },
      { title: "Key or queue", kind: "side", make: text((event) => event.flowControlKey ?? event.queueName ?? "", "cut") },
      { title: "Answer", kind: "num", hint: "The status of a failed answer; “none” if nobody answered", make: text((event) => (event.responseStatus ? event.responseStatus : event.error ? "none" : "")) },
    ],
  });
  const box = search("Search messages", "Search: a word, msg_…, key:…, label:…", () => { pages.reset(); refresh(); });
  const which = choice("Which events", [["", "All"], ["IN_PROGRESS", "In progress"], ["DELIVERED", "Delivered"], ["FAILED", "Failed"], ["CANCELED", "Cancelled"]], () => { pages.reset(); refresh(); });
  const pages = pager(load);
  const refresh = () => load(pages.from());

  // What somebody asked for is shown, also where the answer is that to a later question of nobody's.
  let isAsked = false;

  async function load(cursor, isOffer = false) {
    const own = (turn += 1);
    isAsked ||= !isOffer;
    let told;
    try {
      told = await get("events", { ...asked(box.value()), state: which.value(), cursor: cursor ?? "", count: 50 });
    } catch (trouble) {
      if (own === turn && !isLeft) table.fail("The log", trouble, refresh);
      return;
    }
    if (own !== turn || isLeft) return;
    if (box.value() || which.value()) table.empty(h("h2", null, "Nothing in the log matches"), told.cursor ? h("p", null, "Older entries may be: look further.") : null);
    else table.empty(h("h2", null, "No messages yet"), h("p", null, "Everything that happens to a message is listed here for three days."));
    (isAsked ? table.show : table.offer)(told.events);
    isAsked = false;
    const last = told.events.at(-1);
    pages.show(told.cursor, last ? `back to ${moment(last.time)}` : "");
  }

  // What this server did is counted by it; what others of a fleet did is looked for now and then.
  let soon = 0;
  let heard = 0;
  const unhear = live.hear(({ totals }) => {
    heard += 1;
    const isNew = totals && (heard % 4 === 0 || totals.created + totals.delivered + totals.retried + totals.failed > 0);
    if (isNew && pages.isFirst() && !soon) soon = setTimeout(() => { soon = 0; load(pages.from(), true); }, 900);
  });
  refresh();
  return {
    node: h("div", { class: "page" }, h("header", { class: "page-head" }, h("div", null, h("h1", null, "Messages"), h("p", { class: "faint" }, "What happened, newest first."))), h("div", { class: "card flush" }, h("div", { class: "bar" }, box.node, which.node), table.node, pages.node)),
    search: box.input,
    refresh,
    press: (event) => pages.press(event) || table.press(event),
    leave() { isLeft = true; unhear(); clearTimeout(soon); box.leave(); },
  };
}

async function cancelMessage(id) {
  const isSure = await confirm("Cancel this message?", "If it waits, it will not start. If it is under way, the attempt is cut off.", "Cancel the message");
  if (isSure) await act(() => remove(`messages/${part(id)}`), "The message is cancelled");
}

// The way to the key of something: as wide as there is room for, for a key can be long.
export const keyLink = (link, key) => link(keyPath(key), { class: "button", title: key }, h("span", { class: "cut" }, `Key ${key}`));

export function code(title, content, note) {
  if (content === null || content === undefined || content === "") return null;
  return h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", null, title), note ? h("span", { class: "faint" }, note) : null), h("pre", { tabindex: 0 }, content));
}

export const headers = (map) => Object.entries(map ?? {}).map(([name, values]) => `${name}: ${[values].flat().join(", ")}`).join("\n");

function entry(event) {
  const answer = event.responseBody ?? null;
  const said = [event.error ?? (event.responseStatus ? `answered ${event.responseStatus}` : null), event.nextDeliveryTime > Date.now() ? `next try ${away(event.nextDeliveryTime)}` : null].filter(Boolean).join(" · ");
  return h(
    "li",
    { class: `entry ${KINDS[event.state] ?? ""}`, "data-at": `${event.time}/${event.state}` },
    h("div", { class: "entry-head" }, stateBadge(event.state), h("time", { datetime: new Date(event.time).toISOString(), title: full(event.time) }, day(event.time))),
    said ? h("p", null, said) : null,
    answer ? h("details", null, h("summary", null, "what it answered"), h("pre", { tabindex: 0 }, pretty(answer))) : null,
  );
}

export function messagePage({ name: id, go, link, back }) {
  let isLeft = false;
  let timer = 0;
  let isOver = false;
  let drawn = "";
  const tools = h("div", { class: "tools" });
  const log = h("ol", { class: "entries" });
  const facts = h("dl", { class: "facts" });
  const rest = h("div", { class: "stack" });
  const state = h("span", { class: "badges" });
  const columns = h("div", { class: "columns" }, h("section", { class: "card" }, h("h2", null, "What happened"), log), h("section", { class: "card" }, h("h2", null, "The message"), facts));

  async function again(letter) {
    const params = { dlqIds: letter.dlqId };
    if (letter.workflowRunId) {
      const next = (await act(() => post("workflows/dlq/resume", params), "The run goes on"))?.workflowRuns?.[0]?.workflowRunId;
      return next ? go(`runs/${part(next)}`) : load();
    }
    const next = (await act(() => post("dlq/retry", params), "Sent again"))?.responses?.[0]?.messageId;
    return next ? go(`messages/${next}`) : load();
  }

  let turn = 0;

  async function load() {
    const own = (turn += 1);
    const isOld = () => own !== turn || isLeft;
    let all, first, message;
    try {
      all = (await get("events", { messageIds: id, count: 200 })).events;
      first = all.find((event) => event.state === "CREATED");
      // The log begins with all of it. By itself it is asked for only where the beginning is not there any more.
      message = first ? null : await get(`messages/${part(id)}`).catch((trouble) => { if (trouble.status === 404) return null; throw trouble; });
    } catch (trouble) {
      // What is there already stays.
      if (!isOld() && log.children.length === 0) fill(rest, unread("The message", trouble, load));
      return;
    }
    const newest = all[0];
    // One that failed may be sent again, while it is a dead letter.
    const letter = newest?.state === "FAILED" ? await get("dlq", { messageId: id, count: 1 }).then(({ messages }) => messages[0] ?? null, () => null) : null;
    if (isOld()) return;
    const about = first ?? message ?? newest;
    columns.hidden = !about;
    if (!about) {
      fill(rest, h("div", { class: "card empty" }, h("h2", null, "There is no such message"), h("p", null, "It never existed, or its log is older than three days.")));
      return;
    }
    isOver = ["DELIVERED", "FAILED", "CANCELED"].includes(newest?.state);
    fill(state, newest ? stateBadge(newest.state) : null);
    const controls = JSON.stringify([isOver, letter?.dlqId, about.flowControlKey]);
    if (controls !== tools.dataset.drawn) fill(
      tools,
      button("why", isOver ? "What became of it?" : "Why does it wait?", () => why(short(id), `messages/${part(id)}/explain`, null, go), { testid: "why" }),
      letter ? button("retry", letter.workflowRunId ? "Resume" : "Retry", () => again(letter), { kind: "main", testid: "retry" }) : null,
      isOver ? null : button("close", "Cancel", () => cancelMessage(id).then(load), { kind: "danger", testid: "cancel" }),
      about.flowControlKey ? keyLink(link, about.flowControlKey) : null,
    );
    tools.dataset.drawn = controls;
    // What was opened stays open while more comes above it.
    const opened = new Set([...log.querySelectorAll("li:has(details[open])")].map((item) => item.dataset.at));
    const held = log.contains(document.activeElement) ? document.activeElement.closest("li").dataset.at : null;
    fill(log, all.map(entry));
    for (const item of log.children) {
      const details = item.querySelector("details");
      if (details) details.open = opened.has(item.dataset.at);
      if (item.dataset.at === held) item.querySelector("summary")?.focus({ preventScroll: true });
    }
    const limits = [about.parallelism && `parallelism ${number(about.parallelism)}`, about.rate && `rate ${number(about.rate)} per ${about.period} s`].filter(Boolean).join(", ");
    const rows = [
      ["Destination", `${about.method ?? "POST"} ${about.url}`],
      ["Created", full(about.createdAt)],
      about.notBefore > about.createdAt ? ["Not before", full(about.notBefore)] : null,
      about.flowControlKey ? ["Key", `${about.flowControlKey}${limits ? ` (${limits})` : ""}`] : null,
      about.queueName ? ["FIFO queue", about.queueName] : null,
      about.scheduleId ? ["Schedule", about.scheduleId] : null,
      about.topicName ? ["URL group", about.topicName] : null,
      about.labels ? ["Labels", about.labels.join(", ")] : null,
      ["Retries", number(about.maxRetries)],
      about.callback ? ["Callback", about.callback] : null,
      about.failureCallback ? ["Failure callback", about.failureCallback] : null,
      about.callerIP ? ["Sent from", about.callerIP] : null,
    ];
    fill(facts, rows.filter(Boolean).map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
    const body = first?.body ? decode(first.body) : message?.body ?? null;
    const content = JSON.stringify([body, about.header]);
    if (content === drawn) return;
    drawn = content;
    fill(rest, code("Body", body === null ? null : pretty(body)), code("Headers", headers(about.header)));
  }

  const unhear = live.hear((told) => { if (!told.isHistory && !isOver && !timer) timer = setTimeout(() => { timer = 0; load(); }, 1500); });
  load();
  return {
    node: h("div", { class: "page" }, heading(link, [back, "Messages"], id, state), tools, columns, rest),
    press(event) {
      if (event.key === "w") tools.querySelector("[data-do=why]")?.click();
      else return false;
      return true;
    },
    back: () => go(back),
    refresh: load,
    leave() { isLeft = true; unhear(); clearTimeout(timer); },
  };
}
