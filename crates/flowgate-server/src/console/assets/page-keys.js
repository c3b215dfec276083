// Flow control: every key, what it does now, and the controls in place.

import { h, fill, say } from "./dom.js";
import { button, act, form } from "./dialogs.js";
import { actions, choice, list, pager, search } from "./list.js";
import { meter, sparkline, trend } from "./charts.js";
import { counted, number, period, rate, span } from "./format.js";
import { changeKey, data, keyPath, post, whyKey } from "./server.js";
import * as live from "./live.js";
import { why } from "./explain.js";
import { noteLine } from "./notes.js";

// How often the order of a list is looked up again, and how many times as long as that took it rests.
const RENEWED = 4000;
const RESTS = 9;

export function pauseOrResume(view, then) {
  const [what, said] = view.isPaused ? ["resume", "goes on"] : ["pause", "is paused"];
  const undo = () => pauseOrResume({ ...view, isPaused: !view.isPaused }, then);
  return act(() => changeKey(view.flowControlKey, what), `${view.flowControlKey} ${said}`, undo).then(then);
}

export function pin(view, then) {
  const { flowControlKey: key } = view;
  // Only what is pinned is filled in: what is left empty stays as it is, also what the messages say.
  const { isPinnedParallelism: isMax, isPinnedRate: isRate } = view;
  const seconds = view.ratePeriodMillis % 1000 === 0 ? view.ratePeriod : "";
  form(
    `Pin the limits of ${key}`,
    [
      { name: "parallelism", label: "Parallelism", kind: "number", min: 1, value: (isMax && view.parallelismMax) || "", placeholder: view.parallelismMax ?? "", hint: `In flight at once. Empty: ${isMax ? "stays pinned" : "as the messages say"}.` },
      { name: "rate", label: "Rate", kind: "number", min: 1, value: (isRate && view.rateMax) || "", placeholder: view.rateMax ?? "", hint: `Starts in a period${view.isSmooth ? ", spread over it as they are now" : ""}. Empty: ${isRate ? "stays pinned" : "as the messages say"}.` },
      { name: "period", label: "Period, in seconds", kind: "number", min: 1, value: isRate ? seconds : "", placeholder: seconds ?? "" },
    ],
    "Pin",
    async (values) => {
      // A rate that is pinned again begins a new window, so one that was not changed is left out.
      const isSame = isRate && values.rate === String(view.rateMax) && values.period === String(seconds);
      if (isSame) values.rate = "";
      if (values.rate === "") values.period = "";
      else {
        values.period ||= seconds ?? "";
        if (view.isSmooth) values.smooth = true;
      }
      await changeKey(key, "pin", values);
      then?.();
    },
    "Pinned limits override those of every message, at once, including those that wait.",
  );
}

export function unpin(view, then) {
  const { flowControlKey: key } = view;
  const pinned = { parallelism: view.isPinnedParallelism ? view.parallelismMax : "", ...(view.isPinnedRate ? { rate: view.rateMax, period: view.ratePeriod, smooth: view.isSmooth } : {}) };
  const again = view.isPinnedRate ? `${key} is pinned again: its rate begins a new window` : `${key} is pinned again`;
  const undo = () => act(() => changeKey(key, "pin", pinned), again).then(then);
  return act(() => changeKey(key, "unpin"), `${key}: the messages' own limits hold again`, view.canPinAgain ? undo : null).then(then);
}

export function sendMessage(key = "") {
  const url = `${location.origin}/health`;
  form(
    "Send a message",
    [
      { name: "url", label: "Destination", kind: "url", value: url },
      { name: "key", label: "Flow-control key", value: key, hint: "Letters, digits, - _ and dots." },
      { name: "parallelism", label: "Parallelism", kind: "number", min: 1, value: 2 },
      { name: "rate", label: "Rate", kind: "number", min: 1 },
      { name: "period", label: "Period", value: "1m" },
      { name: "count", label: "How many", kind: "number", min: 1, max: 100, value: 1 },
      { name: "body", label: "Body", kind: "area", value: '{"hello": "world"}' },
    ],
    "Send",
    async (values) => {
      if (values.url === "") throw new Error("The destination is empty: send a URL, or the name of a URL group");
      const headers = { "Content-Type": "application/json" };
      if (values.key) {
        const limits = [values.parallelism && `parallelism=${values.parallelism}`, values.rate && `rate=${values.rate}, period=${values.period}`].filter(Boolean);
        headers["Upstash-Flow-Control-Key"] = values.key;
        headers["Upstash-Flow-Control-Value"] = limits.join(", ");
      }
      const count = Math.min(100, Math.max(1, Number(values.count) || 1));
      for (let sent = 0; sent < count; sent += 1) await post(`publish/${values.url}`, null, { headers, body: values.body });
    },
    "It is delivered like any other: signed, retried, and under the limits of its key.",
  );
}

// Four figures with their last minute.
export function tiles() {
  const tile = (title, kind, values, shown, note) => {
    const figure = h("b", { class: "figure" }, "–");
    const small = h("span", { class: "faint" }, "\u00a0");
    const line = trend(kind, `${title} over the last minute`);
    const node = h("section", { class: `tile ${kind}`, "aria-label": title }, h("h2", null, title), h("div", null, figure, small), line.node);
    return { node, show(past) { const now = past.at(-1); if (!now) return; say(figure, shown(now)); say(small, note(now) || "\u00a0"); line.draw(past.map(values)); } };
  };
  const each = (of) => (now) => (now.spanMs > 0 ? (of(now) * 1000) / now.spanMs : 0);
  const all = [
    tile("In flight", "flight", (now) => now.inFlight, (now) => number(now.inFlight), (now) => (now.cap ? `of ${number(now.cap)} in the cluster` : "no cluster cap")),
    tile("Waiting", "wait", (now) => now.waiting, (now) => number(now.waiting), (now) => (now.delayed > 0 ? `${number(now.delayed)} delayed` : "none delayed")),
    tile("Delivered", "well", each((now) => now.delivered), (now) => rate(each((of) => of.delivered)(now)), () => "per second"),
    tile("Failed tries", "bad", each((now) => now.retried + now.failed), (now) => rate(each((of) => of.retried + of.failed)(now)), (now) => (now.dead > 0 ? `${counted(now.dead, now.isDeadMore)} dead` : "no dead letters")),
  ];
  return { node: h("div", { class: "tiles" }, all.map(({ node }) => node)), show: () => all.forEach((one) => one.show(live.past.totals)) };
}

function columns(refresh, go) {
  const parts = new Map();
  return {
    parts,
    all: [
      {
        title: "Key",
        kind: "name",
        make(cell) {
          const name = h("a", { class: "strong cut" });
          const badges = h("span", { class: "badges" });
          cell.append(name, badges);
          let known = "";
          return (view) => {
            if (name.textContent !== view.flowControlKey) {
              fill(name, view.flowControlKey);
              name.title = view.flowControlKey;
              name.href = `/console/${keyPath(view.flowControlKey)}`;
              name.onclick = (event) => { if (!event.metaKey && !event.ctrlKey) { event.preventDefault(); go(keyPath(view.flowControlKey)); } };
            }
            const next = `${view.isPaused}${view.isPinnedParallelism}${view.isPinnedRate}${view.unread}`;
            if (next === known) return;
            known = next;
            fill(badges, view.isPaused ? h("span", { class: "badge paused" }, "paused") : null, view.isPinnedParallelism || view.isPinnedRate ? h("span", { class: "badge pinned" }, "pinned") : null, view.unread ? h("span", { class: "badge bad", title: view.unread }, "limits unreadable") : null);
          };
        },
      },
      {
        title: "In flight",
        kind: "flight",
        hint: "Deliveries under way, and how many the key may have at once",
        make(cell) {
          const figure = h("span", { class: "of" });
          const bar = meter("in flight");
          cell.append(figure, bar.node);
          return (view) => {
            say(figure, `${number(view.parallelismCount)} / ${view.parallelismMax === undefined ? "∞" : number(view.parallelismMax)}`);
            bar.show(view.parallelismCount, view.parallelismMax);
          };
        },
      },
      {
        title: "Waiting",
        kind: "num wait",
        hint: "Messages that could be delivered now if the key let them; later: delayed ones",
        make(cell) {
          const figure = h("span");
          const later = h("small", { class: "faint" });
          const held = h("small", { class: "held" });
          cell.append(figure, later, held);
          return (view) => {
            say(figure, counted(view.waitListSize, view.isMore));
            figure.classList.toggle("some", view.waitListSize > 0);
            say(later, view.delayed > 0 ? ` +${number(view.delayed)} later` : "");
            say(held, heldBy(view));
          };
        },
      },
      {
        title: "Rate",
        kind: "rate",
        hint: "Deliveries that started in the current period, and how many may",
        make(cell) {
          const figure = h("span", { class: "of" });
          const bar = meter("starts in the period");
          cell.append(figure, bar.node);
          return (view) => {
            const has = view.rateMax !== undefined;
            say(figure, has ? `${view.isSmooth ? "" : `${number(view.rateCount)} / `}${perPeriod(view)}` : "–");
            bar.node.hidden = !has || view.isSmooth;
            cell.classList.toggle("blank", !has);
            if (has) bar.show(view.rateCount, view.rateMax);
          };
        },
      },
      {
        title: "Last minute",
        kind: "past",
        hint: "In flight as an area, waiting as a line, each on its own scale",
        make(cell) {
          const line = sparkline("in flight and waiting over the last minute");
          cell.append(line.node);
          return (view) => {
            parts.set(view.flowControlKey, line);
            line.draw(live.past.keys.get(view.flowControlKey) ?? [], view.parallelismMax);
          };
        },
      },
      {
        title: "",
        say: "Controls",
        kind: "do",
        make: actions(
          (view) => [view.isPaused, view.flowControlKey],
          (last, view) => [
            button(view.isPaused ? "play" : "pause", view.isPaused ? "Resume" : "Pause", () => pauseOrResume(last(), refresh), { isIcon: true, kind: "plain", testid: "pause", label: `${view.isPaused ? "Resume" : "Pause"} ${view.flowControlKey}` }),
            button("pin", "Pin", () => pin(last(), refresh), { isIcon: true, kind: "plain", testid: "pin", label: `Pin the limits of ${view.flowControlKey}` }),
            button("why", "Why", () => why(last().flowControlKey, ...whyKey(last().flowControlKey), go), { isIcon: true, kind: "plain", testid: "why", label: `Why does ${view.flowControlKey} wait?` }),
          ],
        ),
      },
    ],
  };
}

// How much may start: a smooth rate has no period in which starts are counted.
export const perPeriod = (view) => `${number(view.rateMax)} per ${period(view.ratePeriodMillis)}${view.isSmooth ? ", smooth" : ""}`;

// What holds back the first in line, as far as the counts of its key say it; what else may is told by asking why.
export function heldBy(view) {
  if (view.waitListSize === 0) return "";
  if (view.isPaused) return "paused";
  if (view.unread) return "limits unreadable";
  if (view.parallelismMax !== undefined && view.parallelismCount >= view.parallelismMax) return "slots full";
  if (view.rateMax === undefined || view.rateCount < (view.rateAtOnce ?? view.rateMax)) return "";
  const left = view.rateEndsAt - live.now();
  const held = view.isSmooth ? "smooth rate" : "rate spent";
  return left > 0 ? `${held}, ${span(left)}` : held;
}

export function keysPage({ go, link }) {
  let shown = [];
  // Rows that are kept under somebody's hand, though they are no more among those.
  let kept = [];
  let isLeft = false;
  const figures = tiles();
  const look = noteLine(link);
  const refresh = () => load(pages.from());
  // Asked by nobody: nothing moves under a hand.
  const renew = () => load(pages.from(), true);
  const { all } = columns(refresh, go);
  const open = (view) => go(keyPath(view.flowControlKey));
  const table = list({ label: "Keys", columns: all, id: (view) => view.flowControlKey, open, keys: { p: (view) => pauseOrResume(view, refresh), w: (view) => why(view.flowControlKey, ...whyKey(view.flowControlKey), go) } });
  const box = search("Search keys", "Search keys", () => { pages.reset(); refresh(); });
  const which = choice("Which keys", [["busiest", "Busiest first"], ["all", "By name"], ["busy", "Busy"], ["paused", "Paused"], ["pinned", "Pinned"]], () => { pages.reset(); refresh(); });
  const pages = pager(load);
  let turn = 0;

  // What somebody asked for is shown, also where the answer is that to a later question of nobody's.
  let isAsked = false;

  async function load(after, isOffer = false) {
    const own = (turn += 1);
    isAsked ||= !isOffer;
    const began = Date.now();
    try {
      const page = await data("keys", { search: box.value(), show: which.value(), after: after ?? "" });
      if (own !== turn || isLeft) return;
      took = Date.now() - began;
      shown = page.keys;
      empty();
      (isAsked ? table.show : table.offer)(shown);
      isAsked = false;
      const names = new Set(shown.map((view) => view.flowControlKey));
      kept = [...table.rows.values()].map(({ item }) => item).filter((view) => !names.has(view.flowControlKey));
      pages.show(page.next, words(page));
      live.watch([...shown, ...kept].map((view) => view.flowControlKey));
    } catch (trouble) {
      if (own !== turn || isLeft) return;
      table.fail("The keys", trouble, refresh);
    }
  }

  const words = (page) => {
    if (shown.length === 0) return page.next ? "none among those looked at: look further" : "";
    if (shown.length === 1) return shown[0].flowControlKey;
    return `${shown[0].flowControlKey} … ${shown.at(-1).flowControlKey}`;
  };

  function empty() {
    if (box.value() !== "") table.empty(h("h2", null, `No key with “${box.value()}” in its name`), h("p", null, "A key is listed while one of its messages waits or runs and for five minutes after, while it is paused or pinned, and while its rate remembers a start."));
    else if (!["all", "busiest"].includes(which.value())) table.empty(h("h2", null, `No key is ${which.value()}`));
    else {
      table.empty(
        h("h2", null, "No keys yet"),
        h("p", null, "The first message that names a key creates it; some minutes after its last one it is gone. Send a message, and watch it here."),
        button("send", "Send a message", () => sendMessage("my-first-key"), { kind: "main", testid: "first" }),
      );
    }
  }

  // A key that came or went shows at once where there is room for it. Which are the busiest, or busy at all, is looked up every few
  // seconds, and less often where that takes long.
  let known = -1;
  let renewed = Date.now();
  let took = 0;
  const unhear = live.hear((told) => {
    figures.show();
    look.show();
    const draw = () => { for (const view of [...shown, ...kept]) table.update(view.flowControlKey, view); };
    if (told.isHistory) return draw();
    which.count("all", told.totals.keys > 0 ? counted(told.totals.keys) : "");
    which.count("paused", told.totals.pausedKeys > 0 ? number(told.totals.pausedKeys) : "");
    which.count("pinned", told.totals.pinnedKeys > 0 ? number(told.totals.pinnedKeys) : "");
    // A key of which there is nothing any more is idle; one that this look was not about is as it was.
    const idle = (view) => ({ ...view, parallelismCount: 0, waitListSize: 0, delayed: 0, isMore: false, ...(view.rateMax === undefined ? {} : { rateCount: 0 }) });
    const newest = (view) => told.keys[view.flowControlKey] ?? (told.isTold(view.flowControlKey) ? idle(view) : view);
    [shown, kept] = [shown.map(newest), kept.map(newest)];
    draw();
    const has = `${told.totals.keys} ${told.totals.pausedKeys} ${told.totals.pinnedKeys}`;
    const isChanged = known !== has || (shown.length === 0 && told.totals.inFlight + told.totals.waiting > 0);
    known = has;
    const isDue = which.value() !== "all" && Date.now() - renewed > Math.max(RENEWED, RESTS * took);
    if (!pages.isFirst() || !(isDue || (isChanged && shown.length < 50))) return;
    renewed = Date.now();
    renew();
  });

  refresh();
  figures.show();
  look.show();
  return {
    node: h(
      "div",
      { class: "page" },
      h("header", { class: "page-head" }, h("div", null, h("h1", null, "Flow control"), h("p", { class: "faint" }, "How much each key has in flight, and how often it starts.")), button("send", "Send a message", () => sendMessage(), { testid: "send" })),
      look.node,
      figures.node,
      h("div", { class: "card flush" }, h("div", { class: "bar" }, box.node, which.node), table.node, pages.node),
    ),
    search: box.input,
    refresh,
    press: (event) => pages.press(event) || table.press(event),
    watched: () => shown.map((view) => view.flowControlKey),
    leave() { isLeft = true; unhear(); box.leave(); },
  };
}
