// Dead letters: messages that no attempt is left for, to be sent again or to be deleted.

import { h } from "./dom.js";
import { button, act, confirm, dialog, toast } from "./dialogs.js";
import { actions, list, pager, search, text, time } from "./list.js";
import { host, number, short } from "./format.js";
import { get, part, post, remove } from "./server.js";
import * as live from "./live.js";
import { asked } from "./page-messages.js";

// So many are sent again, or deleted, by one request.
const AT_ONCE = 100;
const MOST_OF_AN_ANSWER = 200;

// Why it failed, and what the endpoint said about it.
function reason({ reason: why, responseBody: said }) {
  const short = why.replace(/^the endpoint (did not answer: )?/, "");
  return said ? `${short}: ${said.slice(0, MOST_OF_AN_ANSWER)}` : short;
}

// What is typed, as the dead letters are asked; nothing means all of them.
function meant(typed) {
  const { messageIds: messageId, ...rest } = asked(typed);
  return messageId ? { ...rest, messageId } : rest;
}

// Those of this page or all of them: resolves to the one that was chosen, or to nothing.
function which(title, text, verb, kind, here, all) {
  return new Promise((resolve) => {
    const choose = (what, close) => () => { resolve(what); close(); };
    const node = dialog(title, (close) => [
      h("p", null, text),
      h(
        "div",
        { class: "dialog-actions" },
        button(null, "Keep them as they are", close, { kind: "plain" }),
        all ? button(null, `${verb} these ${number(here)}`, choose("here", close), { testid: "confirm-page" }) : null,
        button(null, all ? `${verb} ${all}` : `${verb} ${here === 1 ? "it" : `all ${number(here)}`}`, choose(all ? "all" : "here", close), { kind, testid: "confirm" }),
      ),
    ]);
    node.addEventListener("close", () => resolve(null));
  });
}

// Works through all that are meant, page after page, and says how far it is. Whoever closes it stops it after the page under way.
async function through(title, done, works) {
  const said = h("p", { role: "status" }, "Beginning …");
  let isStopped = false;
  const node = dialog(title, (close) => [said, h("div", { class: "dialog-actions" }, button(null, "Stop here", close, { testid: "stop" }))]);
  node.addEventListener("close", () => { isStopped = true; });
  let count = 0;
  try {
    for (const work of works) {
      if (isStopped) break;
      let cursor = "";
      do {
        const [some, next] = await work(cursor);
        count += some;
        cursor = next ?? "";
        said.textContent = `${number(count)} ${done} so far`;
      } while (cursor !== "" && !isStopped);
    }
    toast(isStopped ? `Stopped: ${number(count)} ${done}` : `${number(count)} ${done}`);
  } catch (trouble) {
    toast(`${number(count)} ${done}, then: ${trouble.message}`, "bad");
  }
  node.close();
}

export function lettersPage({ go, link }) {
  let isLeft = false;
  let isMore = false;
  let known = null;
  const open = (letter) => go(`messages/${letter.messageId}`);
  const isOfRun = (letter) => Boolean(letter.workflowRunId);
  // A run goes on from the step that failed; a message is sent again.
  const retry = (letter) => (isOfRun(letter) ? act(() => post("workflows/dlq/resume", { dlqIds: letter.dlqId }), "The run goes on") : act(() => post(`dlq/retry/${part(letter.dlqId)}`), "Sent again")).then(refresh);
  const drop = async (letter) => {
    if (await confirm("Delete this dead letter?", "It cannot be sent again afterwards. Its log stays.", "Delete")) await act(() => remove(`dlq/${part(letter.dlqId)}`), "Deleted").then(refresh);
  };
  const table = list({
    label: "Dead letters",
    id: (letter) => letter.dlqId,
    open,
    keys: { r: retry },
    columns: [
      { title: "Created", kind: "when", make: time((letter) => letter.createdAt) },
      { title: "Message", kind: "id", make(cell) { let known = ""; return (letter) => { if (known === letter.messageId) return; known = letter.messageId; cell.replaceChildren(link(`messages/${letter.messageId}`, { class: "mono link", title: letter.messageId }, short(letter.messageId))); }; } },
      { title: "Where", kind: "wide", make: text((letter) => host(letter.url), "cut") },
      { title: "Key or queue", kind: "side", make: text((letter) => letter.flowControlKey ?? letter.queueName ?? "", "cut") },
      { title: "Why", kind: "wide", make: text(reason, "cut") },
      {
        title: "",
        say: "Controls",
        kind: "do long",
        make: actions((letter) => letter.dlqId, (last, letter) => [
          button("retry", isOfRun(letter) ? "Resume" : "Retry", () => retry(last()), { testid: "retry", label: isOfRun(letter) ? `Resume ${letter.workflowRunId}` : `Retry ${letter.messageId}` }),
          button("trash", "Delete", () => drop(last()), { isIcon: true, kind: "plain", testid: "delete", label: `Delete ${letter.messageId}` }),
        ]),
      },
    ],
  });
  const box = search("Search dead letters", "Search: a word, msg_…, key:…, queue:…", () => { pages.reset(); refresh(); });
  const pages = pager(load);
  const refresh = () => load(pages.from());
  // What stands on the screen, and not what came since.
  const seen = () => [...table.rows.values()].map((entry) => entry.item);
  const ids = (letters) => letters.map((letter) => letter.dlqId).join(",");
  // Everything that the search means, or really everything.
  const filter = () => { const params = meant(box.value()); return Object.keys(params).length === 0 ? { all: true } : params; };
  // How many that are is not said: a search means some of them, and counting ends somewhere.
  const all = () => { if (!isMore) return null; return box.value() ? "all that are found" : "all of them"; };
  const retryAll = button("retry", "Retry all", async () => {
    const these = seen();
    const [count, runs, messages] = [these.length, these.filter(isOfRun), these.filter((letter) => !isOfRun(letter))];
    const params = { ...filter(), count: AT_ONCE };
    const again = async () => {
      if (messages.length > 0) await post("dlq/retry", { dlqIds: ids(messages) });
      if (runs.length > 0) await post("workflows/dlq/resume", { dlqIds: ids(runs) });
    };
    const chosen = await which("Send dead letters again?", "Each one waits again under the limits of its key; runs resume from the step that failed.", "Send", "main", count, all());
    if (chosen === "here") await act(again, `${number(count)} sent again`);
    else if (chosen === "all") {
      await through("Sending dead letters again", "sent again", [
        async (cursor) => { const told = await post("dlq/retry", { ...params, cursor }); return [told.responses.length, told.cursor]; },
        async (cursor) => { const told = await post("workflows/dlq/resume", { ...params, cursor }); return [told.workflowRuns.length, told.cursor]; },
      ]);
    }
    if (chosen) { pages.reset(); refresh(); }
  }, { testid: "retry-all" });
  const dropAll = button("trash", "Delete all", async () => {
    const these = seen();
    const count = these.length;
    const params = { ...filter(), count: AT_ONCE };
    const chosen = await which("Delete dead letters?", "They cannot be sent again afterwards. Their logs stay.", "Delete", "danger", count, all());
    if (chosen === "here") await act(() => remove("dlq", { dlqIds: ids(these) }), `${number(count)} deleted`);
    else if (chosen === "all") await through("Deleting dead letters", "deleted", [async (cursor) => { const told = await remove("dlq", { ...params, cursor }); return [told.deleted, told.cursor]; }]);
    if (chosen) { pages.reset(); refresh(); }
  }, { kind: "plain", testid: "delete-all" });
  let turn = 0;

  // What somebody asked for is shown, also where the answer is that to a later question of nobody's.
  let isAsked = false;

  async function load(cursor, isOffer = false) {
    const own = (turn += 1);
    isAsked ||= !isOffer;
    const typed = box.value();
    let told;
    try {
      told = await get("dlq", { ...meant(typed), cursor: cursor ?? "", count: 50 });
    } catch (trouble) {
      if (own === turn && !isLeft) table.fail("The dead letters", trouble, refresh);
      return;
    }
    if (own !== turn || isLeft) return;
    const shown = told.messages;
    isMore = Boolean(told.cursor) || !pages.isFirst();
    table.empty(h("h2", null, typed ? "No dead letter matches" : "No dead letters"), h("p", null, typed ? "" : "A message that fails at its last attempt comes here and is kept for thirty days."));
    (isAsked ? table.show : table.offer)(shown);
    isAsked = false;
    retryAll.hidden = shown.length === 0;
    dropAll.hidden = shown.length === 0;
    pages.show(told.cursor, shown.length > 0 ? `${number(shown.length)} on this page` : "");
  }

  const unhear = live.hear(({ totals }) => {
    if (!totals) return;
    if ((known !== null && known !== totals.dead) || totals.failed > 0) load(pages.from(), true);
    known = totals.dead;
  });
  refresh();
  return {
    node: h("div", { class: "page" }, h("header", { class: "page-head" }, h("div", null, h("h1", null, "Dead letters"), h("p", { class: "faint" }, "Messages with no attempt left.")), h("div", { class: "tools" }, retryAll, dropAll)), h("div", { class: "card flush" }, h("div", { class: "bar" }, box.node), table.node, pages.node)),
    search: box.input,
    refresh,
    press: (event) => pages.press(event) || table.press(event),
    leave() { isLeft = true; unhear(); box.leave(); },
  };
}
