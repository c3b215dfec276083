// One key: its slots, its window, its last minute and a half, who holds it and who waits.

import { h, fill, say } from "./dom.js";
import { button, act, confirm } from "./dialogs.js";
import { chart, meter, slots } from "./charts.js";
import { counted, host, number, period, short, span } from "./format.js";
import { changeKey, get, keyOf, readKey, whyKey } from "./server.js";
import { unread } from "./list.js";
import * as live from "./live.js";
import { explanation } from "./explain.js";
import { heldBy, pauseOrResume, perPeriod, pin, sendMessage, unpin } from "./page-keys.js";

// What a page that shows one thing has at its top.
export function heading(link, back, title, ...rest) {
  return h("header", { class: "page-head" }, h("div", null, link(back[0], { class: "back" }, `← ${back[1]}`), h("div", { class: "page-title" }, h("h1", { class: "cut", title }, title), ...rest)));
}

function tasks(title, link, empty, columns) {
  const body = h("tbody");
  const none = h("p", { class: "faint none" }, empty);
  const count = h("span", { class: "faint" });
  const table = h("table", { class: "plain-table" }, h("thead", null, h("tr", null, columns.map(([name, , kind]) => h("th", { scope: "col", class: kind ?? "" }, name)))), body);
  const name = (task) => (task.messageId ? link(`messages/${task.messageId}`, { class: "mono link" }, short(task.messageId)) : h("span", { class: "mono" }, `task ${task.task}`));
  return {
    node: h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", null, title), count), none, table),
    show(all, more) {
      none.hidden = all.length > 0;
      table.hidden = all.length === 0;
      say(count, more);
      // Who is about to open one of them, or marks its name, does not lose it.
      const marked = getSelection();
      if (!marked.isCollapsed && body.contains(marked.anchorNode)) return;
      const held = body.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      fill(body, all.map((task) => h("tr", null, columns.map(([, of, kind]) => h("td", { class: kind ?? "" }, of(task, name))))));
      if (held) [...body.querySelectorAll("a")].find((item) => item.getAttribute("href") === held)?.focus({ preventScroll: true });
    },
  };
}

const where = (task) => h("span", { class: "cut", title: task.url ?? task.kind }, task.url ? host(task.url) : task.kind ?? "");

export function keyPage({ link, go, name, back }) {
  const key = keyOf(name);
  let view = null;
  let isLeft = false;
  let asked = 0;
  const boxes = slots();
  const window_ = meter("starts in the period");
  const drawing = chart("in flight and waiting over the last minute and a half");
  const [inFlight, flightNote, waiting, waitNote, starts, startNote, legend] = Array.from({ length: 7 }, () => h("span"));
  const badges = h("span", { class: "badges" });
  const tools = h("div", { class: "tools" });
  const limits = h("dl", { class: "facts" });
  const reason = h("section", { class: "card why", hidden: true, "aria-label": "Why it waits" });
  const missing = h("div", { class: "card empty", hidden: true }, h("h2", null, "Nothing is known of this key"), h("p", null, "None of its messages waits or runs, it was not used lately, and it is neither paused nor pinned. Its next message brings it back."), button("send", "Send a message", () => sendMessage(key), { kind: "main" }));
  const trying = h("div", { class: "trying" }, h("p", { class: "soon", role: "status" }, "Reading …"));
  const held = tasks("Who holds the slots", link, "Nothing is in flight.", [
    ["Task", (task, name) => name(task)],
    ["Where", where, "wide"],
    ["Try", (task) => task.attempt, "num"],
    ["Since", (task) => span(task.heldForMs), "num"],
  ]);
  const line = tasks("Who waits", link, "Nothing waits.", [
    ["Task", (task, name) => name(task)],
    ["Where", where, "wide"],
    ["Tries", (task) => task.starts, "num"],
    ["Waits", (task) => (task.delayedUntil ? `until ${new Date(task.delayedUntil).toLocaleTimeString("en-GB")}` : task.createdAt ? span(Date.now() - task.createdAt) : ""), "num"],
  ]);

  async function load() {
    const own = (asked += 1);
    try {
      const told = await readKey(key);
      if (own !== asked || isLeft) return;
      missing.hidden = true;
      body.hidden = false;
      trying.replaceChildren();
      show(told.key);
      held.show(told.holders, told.holders.length === told.shown ? `the first ${told.shown}` : "");
      line.show(told.line, told.key.waitListSize + told.key.delayed > told.shown ? `the first ${told.shown} of ${number(told.key.waitListSize + told.key.delayed)}` : "");
    } catch (trouble) {
      if (own !== asked || isLeft) return;
      if (trouble.status !== 404) {
        // What is there already stays.
        if (view === null) fill(trying, unread("The key", trouble, load));
        return;
      }
      missing.hidden = false;
      body.hidden = true;
      trying.replaceChildren();
      tools.replaceChildren();
    }
  }

  function show(next) {
    const isNew = view === null || (view.rateMax === undefined) !== (next.rateMax === undefined) || view.isPaused !== next.isPaused || view.isPinnedParallelism !== next.isPinnedParallelism || view.isPinnedRate !== next.isPinnedRate || view.unread !== next.unread;
    view = next;
    if (isNew || tools.children.length === 0) controls();
    say(inFlight, number(view.parallelismCount));
    say(flightNote, view.parallelismMax === undefined ? "no limit" : `of ${number(view.parallelismMax)}`);
    boxes.show(view.parallelismCount, view.parallelismMax);
    say(waiting, counted(view.waitListSize, view.isMore));
    say(waitNote, [heldBy(view), view.delayed > 0 ? `${number(view.delayed)} delayed` : ""].filter(Boolean).join(", ") || "none delayed");
    const has = view.rateMax !== undefined;
    say(starts, has ? number(view.rateCount) : "–");
    window_.node.hidden = !has || view.isSmooth;
    if (has) window_.show(view.rateCount, view.rateMax);
    tick();
    const seen = drawing.draw(live.past.keys.get(key) ?? [], view.parallelismMax);
    say(legend, seen ? `at most ${number(seen.busy)} in flight and ${number(seen.longest)} waiting in this time` : "collecting …");
  }

  function tick() {
    if (view?.rateMax === undefined) return say(startNote, "no rate");
    const left = view.rateCount > 0 ? view.rateEndsAt - live.now() : 0;
    if (view.isSmooth) return say(startNote, `${perPeriod(view)}${left > 0 ? `, next in ${span(left)}` : ""}`);
    say(startNote, `of ${perPeriod(view)}${left > 0 ? `, ${span(left)} left` : ""}`);
  }

  function controls() {
    const isPinned = view.isPinnedParallelism || view.isPinnedRate;
    fill(badges, view.isPaused ? h("span", { class: "badge paused" }, "paused") : null, isPinned ? h("span", { class: "badge pinned" }, "pinned") : null, view.isLatest ? h("span", { class: "badge" }, "latest limits") : null, view.unread ? h("span", { class: "badge bad", title: view.unread }, "limits unreadable") : null);
    fill(
      tools,
      button(view.isPaused ? "play" : "pause", view.isPaused ? "Resume" : "Pause", () => pauseOrResume(view, load), { kind: view.isPaused ? "main" : "", testid: "pause" }),
      button("pin", "Pin", () => pin(view, load), { testid: "pin" }),
      isPinned || view.unread ? button("close", "Unpin", () => unpin(view, load), { testid: "unpin" }) : null,
      view.rateMax === undefined ? null : button("reset", "Reset rate", reset, { testid: "reset" }),
      button("why", "Why does it wait?", why, { testid: "why" }),
    );
    const rows = [
      ["Messages last said", [view.sentMax && `parallelism ${number(view.sentMax)}`, view.sentRate && `rate ${view.sentRate}`].filter(Boolean).join(", ") || "nothing"],
      ["Pinned", [view.pinnedMax && `parallelism ${number(view.pinnedMax)}`, view.pinnedRate && `rate ${view.pinnedRate}`].filter(Boolean).join(", ") || "nothing"],
      view.unread ? ["Cannot be read, and hold all back", view.unread] : null,
      ["Waiting messages are under", view.isLatest ? "the newest limits" : isPinned ? "what is pinned, else its own limits" : "its own limits"],
    ];
    fill(limits, rows.filter(Boolean).map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
  }

  async function reset() {
    const text = `Up to ${number(view.rateMax)} start at once, beside those that started in this period. Whoever set the rate may not expect that, and it cannot be undone.`;
    if (await confirm(`Reset the rate of ${key}?`, text, "Begin a new period")) await act(() => changeKey(key, "resetRate"), "A new period begins now").then(load);
  }

  async function why() {
    // A key that is idle is forgotten by the store: then there is nothing to explain.
    const asked = () => get(...whyKey(key)).catch((trouble) => { if (trouble.status === 404) return { isIdle: true }; throw trouble; });
    const told = await act(asked);
    if (!told || isLeft) return;
    reason.hidden = false;
    fill(reason, h("div", { class: "card-head" }, h("h2", null, "Why does it wait?"), button("close", "Close", () => { reason.hidden = true; }, { isIcon: true, kind: "plain" })), told.isIdle ? h("div", { class: "explained" }, h("p", { class: "verdict free" }, "Nothing of it waits or runs.")) : explanation(told, go));
    reason.scrollIntoView({ block: "nearest" });
  }

  const figure = (title, value, note, below, kind) => h("section", { class: `tile ${kind}`, "aria-label": title }, h("h2", null, title), h("div", null, h("b", { class: "figure" }, value), h("span", { class: "faint" }, note)), below);
  const body = h(
    "div",
    { class: "stack", hidden: true },
    h("div", { class: "tiles three" }, figure("In flight", inFlight, flightNote, boxes.node, "flight"), figure("Waiting", waiting, waitNote, null, "wait"), figure("Started in this period", starts, startNote, window_.node, "rate")),
    h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", null, "The last minute and a half"), h("span", { class: "legend" }, h("i", { class: "flight" }), "in flight", h("i", { class: "wait" }), "waiting, on its own scale", h("i", { class: "max" }), "limit")), drawing.node, h("p", { class: "faint small" }, legend)),
    reason,
    h("div", { class: "columns" }, held.node, line.node),
    h("section", { class: "card" }, h("h2", null, "Limits"), limits),
  );

  let waitingFor = 0;
  const unhear = live.hear((told) => {
    if (told.isHistory) { if (view) show(view); return; }
    const next = told.keys[key];
    if (next) show(next);
    // Who holds what is asked for again, not more often than every two seconds.
    if (!waitingFor) waitingFor = setTimeout(() => { waitingFor = 0; load(); }, 2000);
  });
  const ticking = setInterval(tick, 1000);
  load();
  return {
    node: h("div", { class: "page" }, heading(link, [back, "Flow control"], key, badges), tools, missing, trying, body),
    watched: () => [key],
    press(event) {
      if (event.key === "p" && view) pauseOrResume(view, load);
      else if (event.key === "w") why();
      else return false;
      return true;
    },
    back: () => go(back),
    refresh: load,
    leave() { isLeft = true; unhear(); clearInterval(ticking); clearTimeout(waitingFor); },
  };
}
