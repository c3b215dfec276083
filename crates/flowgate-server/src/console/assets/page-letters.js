// Dead letters: messages that no attempt is left for, to be sent again or to be deleted.

import { h } from "./dom.js";
import { button, act, confirm } from "./dialogs.js";
import { actions, list, pager, search, text } from "./list.js";
import { host, moment, number, short } from "./format.js";
import { get, part, post, remove } from "./server.js";
import * as live from "./live.js";

export function lettersPage({ go, link }) {
  let isLeft = false;
  let shown = [];
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
      { title: "Created", kind: "when", make: text((letter) => moment(letter.createdAt), "num-left") },
      { title: "Message", kind: "id", make(cell) { let known = ""; return (letter) => { if (known === letter.messageId) return; known = letter.messageId; cell.replaceChildren(link(`messages/${letter.messageId}`, { class: "mono link", title: letter.messageId }, short(letter.messageId))); }; } },
      { title: "Where", kind: "wide", make: text((letter) => host(letter.url), "cut") },
      { title: "Key or queue", kind: "side", make: text((letter) => letter.flowControlKey ?? letter.queueName ?? "", "cut") },
      { title: "Why", kind: "wide", make: text((letter) => letter.reason.replace(/^the endpoint (did not answer: )?/, ""), "cut") },
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
  const box = search("Search dead letters", "Search", () => { pages.reset(); refresh(); });
  const pages = pager(load);
  const refresh = () => load(pages.from());
  const ids = (letters) => letters.map((letter) => letter.dlqId).join(",");
  const retryAll = button("retry", "Retry all of this page", async () => {
    const [count, runs, messages] = [shown.length, shown.filter(isOfRun), shown.filter((letter) => !isOfRun(letter))];
    const again = async () => {
      if (messages.length > 0) await post("dlq/retry", { dlqIds: ids(messages) });
      if (runs.length > 0) await post("workflows/dlq/resume", { dlqIds: ids(runs) });
    };
    if (await confirm(`Send ${number(count)} messages again?`, "Each waits again under the limits of its key, and runs go on from the step that failed.", "Send them", "main")) await act(again, `${number(count)} sent again`).then(refresh);
  }, { testid: "retry-all" });
  const dropAll = button("trash", "Delete all of this page", async () => {
    const count = shown.length;
    if (await confirm(`Delete ${number(count)} dead letters?`, "They cannot be sent again afterwards. Their logs stay.", "Delete them")) await act(() => remove("dlq", { dlqIds: ids(shown) }), `${number(count)} deleted`).then(refresh);
  }, { kind: "plain" });
  let turn = 0;

  async function load(cursor, put = table.show) {
    const own = (turn += 1);
    const typed = box.value();
    let told;
    try {
      told = await get("dlq", { search: typed, cursor: cursor ?? "", count: 50 });
    } catch (trouble) {
      if (own === turn && !isLeft) table.fail("The dead letters", trouble, refresh);
      return;
    }
    if (own !== turn || isLeft) return;
    shown = told.messages;
    table.empty(h("h2", null, typed ? "No dead letter is like that" : "No dead letters"), h("p", null, typed ? "" : "A message that fails on its last try comes here, and waits for you for thirty days."));
    put(shown);
    retryAll.hidden = shown.length === 0;
    dropAll.hidden = shown.length === 0;
    pages.show(told.cursor, shown.length > 0 ? `${number(shown.length)} on this page` : "");
  }

  let known = null;
  const unhear = live.hear(({ totals }) => {
    if (!totals) return;
    if ((known !== null && known !== totals.dead) || totals.failed > 0) load(pages.from(), table.offer);
    known = totals.dead;
  });
  refresh();
  return {
    node: h("div", { class: "page" }, h("header", { class: "page-head" }, h("div", null, h("h1", null, "Dead letters"), h("p", { class: "faint" }, "Messages that no attempt is left for.")), h("div", { class: "tools" }, retryAll, dropAll)), h("div", { class: "card flush" }, h("div", { class: "bar" }, box.node), table.node, pages.node)),
    search: box.input,
    refresh,
    press: (event) => pages.press(event) || table.press(event),
    leave() { isLeft = true; unhear(); box.leave(); },
  };
}
