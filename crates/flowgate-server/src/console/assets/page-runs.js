// Runs: workflows as they go, and one of them as a timeline of its steps.

import { h, fill } from "./dom.js";
import { button, act, confirm, toast } from "./dialogs.js";
import { choice, list, pager, search, text, time, unread } from "./list.js";
import { full, host, moment, number, pretty, short, span } from "./format.js";
import { get, part, post, remove } from "./server.js";
import * as live from "./live.js";
import { heading } from "./page-key.js";
import { code, keyLink } from "./page-messages.js";

const TOLD = { CALLBACK_INPROGRESS: "is being told", CALLBACK_SUCCESS: "was told", CALLBACK_FAIL: "could not be told", CALLBACK_CANCELED: "was not told: that was cancelled" };
const RUNS = { RUN_STARTED: ["flight", "running"], RUN_SUCCESS: ["well", "done"], RUN_FAILED: ["bad", "failed"], RUN_CANCELED: ["plain", "cancelled"] };
const STEPS = { STEP_SUCCESS: ["well", "done"], STEP_PROGRESS: ["flight", "running"], STEP_RETRY: ["wait", "retrying"], STEP_FAILED: ["bad", "failed"], STEP_CANCELED: ["plain", "cancelled"] };
const badge = (states, state) => h("span", { class: `badge ${states[state]?.[0] ?? ""}` }, states[state]?.[1] ?? state);
const ended = (run) => run.workflowRunCompletedAt ?? null;
const stepsOf = (run) => (run.steps ?? []).flatMap((group) => group.steps ?? []);
// Those that are done, but for the one that only takes the payload.
const done = (run) => stepsOf(run).filter((step) => step.state === "STEP_SUCCESS" && step.stepType !== "Initial").length;
const ask = (params) => get("workflows/events", { groupBy: "workflowRunId", ...params });

function absent() {
  return [h("h2", null, "No workflows here"), h("p", null, "This server does not run workflows yet: it has no such path.")];
}

export function runsPage({ go, link }) {
  let isLeft = false;
  let turn = 0;
  const table = list({
    label: "Runs",
    id: (run) => run.workflowRunId,
    open: (run) => go(`runs/${part(run.workflowRunId)}`),
    columns: [
      { title: "Started", kind: "when", make: time((run) => run.workflowRunCreatedAt) },
      { title: "State", kind: "what", make(cell) { let known = ""; return ({ workflowState }) => { if (known === workflowState) return; known = workflowState; fill(cell, badge(RUNS, workflowState)); }; } },
      { title: "Run", kind: "id", make(cell) { let known = ""; return ({ workflowRunId: id }) => { if (known === id) return; known = id; fill(cell, link(`runs/${part(id)}`, { class: "mono link", title: id }, short(id))); }; } },
      { title: "Workflow", kind: "wide", make: text((run) => host(run.workflowUrl ?? ""), "cut") },
      { title: "Key", kind: "side", make: text((run) => run.flowControlKey ?? "", "cut") },
      { title: "Steps", kind: "num side", hint: "How many are done", make: text((run) => number(done(run))) },
      { title: "Took", kind: "num", make: text((run) => span((ended(run) ?? Date.now()) - run.workflowRunCreatedAt)) },
    ],
  });
  const box = search("Search runs", "Search: wfr_…, or the URL of a workflow", () => { pages.reset(); refresh(); });
  const which = choice("Which runs", [["", "All"], ...Object.entries(RUNS).map(([state, [, word]]) => [state, word[0].toUpperCase() + word.slice(1)])], () => { pages.reset(); refresh(); });
  const pages = pager(load);
  const refresh = () => load(pages.from());

  async function load(cursor, put = table.show) {
    const own = (turn += 1);
    const typed = box.value();
    const params = typed.startsWith("wfr_") ? { workflowRunId: typed } : { workflowUrl: typed, workflowUrlExactMatch: false };
    try {
      const told = await ask({ ...params, state: which.value(), cursor: cursor ?? "", count: 50 });
      if (own !== turn || isLeft) return;
      if (typed || which.value()) table.empty(h("h2", null, "No run matches"), told.cursor ? h("p", null, "Older runs may be: look further.") : null);
      else table.empty(h("h2", null, "No runs yet"), h("p", null, "Trigger a workflow with the Workflow client, and see its steps here."));
      put(told.runs ?? []);
      pages.show(told.cursor, told.runs?.length ? `back to ${moment(told.runs.at(-1).workflowRunCreatedAt)}` : "");
    } catch (trouble) {
      if (own !== turn || isLeft) return;
      if (trouble.status !== 404) return table.fail("The runs", trouble, refresh);
      table.empty(absent());
      table.show([]);
      pages.show(null, "");
    }
  }

  let soon = 0;
  const unhear = live.hear((told) => { if (!told.isHistory && pages.isFirst() && !soon) soon = setTimeout(() => { soon = 0; load(pages.from(), table.offer); }, 2000); });
  refresh();
  return {
    node: h("div", { class: "page" }, h("header", { class: "page-head" }, h("div", null, h("h1", null, "Runs"), h("p", { class: "faint" }, "Workflows, and the steps they are made of."))), h("div", { class: "card flush" }, h("div", { class: "bar" }, box.node, which.node), table.node, pages.node)),
    search: box.input,
    refresh,
    press: (event) => pages.press(event) || table.press(event),
    leave() { isLeft = true; unhear(); clearTimeout(soon); box.leave(); },
  };
}

const UNITS = { ms: 1, s: 1000, m: 60000, h: 3600000, d: 86400000 };

// When a sleep that began at this moment is over: `90`, `"1m30s"`; for a sleep until, seconds of the epoch or a date.
export function wakesAt(step) {
  if (step.stepType === "SleepUntil") {
    const at = Number(step.sleepUntil);
    return Number.isFinite(at) ? at * 1000 : Date.parse(step.sleepUntil);
  }
  const seconds = Number(step.sleepFor);
  if (Number.isFinite(seconds)) return step.createdAt + seconds * 1000;
  const parts = [...String(step.sleepFor).matchAll(/(\d+)(ms|[smhd])/g)];
  return step.createdAt + parts.reduce((sum, [, count, unit]) => sum + Number(count) * UNITS[unit], 0);
}

// Steps as spans: each begins when the group before it ended, and ends when its result was stored; a sleep is stored when it begins.
export function spans(run, now) {
  const begin = run.workflowRunCreatedAt;
  const latest = ended(run) ?? now;
  let from = begin;
  const rows = [];
  for (const group of run.steps ?? []) {
    let last = from;
    for (const step of group.steps ?? []) {
      const isOpen = group.type === "next" || ["STEP_PROGRESS", "STEP_RETRY"].includes(step.state);
      const isSleep = ["SleepFor", "SleepUntil"].includes(step.stepType) && step.createdAt;
      const until = isOpen ? latest : isSleep ? Math.min(latest, wakesAt(step) || step.createdAt) : step.createdAt ?? from;
      rows.push({ step, from: Math.min(from, until), until, isParallel: group.type === "parallel" });
      last = Math.max(last, until);
    }
    from = last;
  }
  return { begin, end: Math.max(begin + 1, latest, ...rows.map((row) => row.until)), rows };
}

function told(step) {
  const out = step.out === undefined || step.out === null ? null : typeof step.out === "string" ? step.out : JSON.stringify(step.out);
  const errors = (step.errors ?? []).map((error) => h("li", null, h("b", null, error.status ? `answered ${error.status}` : "failed"), " ", error.error ?? error.body ?? "", error.time ? h("span", { class: "faint" }, ` ${moment(error.time)}`) : null));
  if (out === null && errors.length === 0) return null;
  return h("details", null, h("summary", null, errors.length > 0 ? `${errors.length} failed ${errors.length === 1 ? "try" : "tries"}` : "result"), errors.length > 0 ? h("ul", null, errors) : null, out === null ? null : h("pre", { tabindex: 0 }, pretty(out)));
}

export function timeline(run, link) {
  const { begin, end, rows } = spans(run, Date.now());
  const share = (at) => `${(((at - begin) / (end - begin)) * 100).toFixed(2)}%`;
  const items = rows.map(({ step, from, until, isParallel }) => {
    const bar = h("i", { class: `span ${STEPS[step.state]?.[0] ?? ""}` });
    bar.style.setProperty("inset-inline-start", share(from));
    bar.style.setProperty("inline-size", `max(4px, ${(((until - from) / (end - begin)) * 100).toFixed(2)}%)`);
    const name = step.stepName ?? (step.stepType ? step.stepType : "next step");
    return h(
      "li",
      { class: `step${isParallel ? " parallel" : ""}` },
      h("div", { class: "step-name" }, h("b", { class: "cut", title: name }, name), h("span", { class: "faint" }, [step.stepType ?? "", step.retries > 0 ? `${step.retries} retries` : ""].filter(Boolean).join(" · ")), step.invokedWorkflowRunId ? link(`runs/${part(step.invokedWorkflowRunId)}`, { class: "small" }, "the run it invoked") : null),
      h("div", { class: "step-line" }, bar),
      h("div", { class: "step-took num" }, span(until - from)),
      badge(STEPS, step.state ?? ""),
      told(step),
    );
  });
  return h("ol", { class: "timeline", "aria-label": "Steps" }, items);
}

export function runPage({ name: id, go, link, back }) {
  let isLeft = false;
  let isOver = false;
  let timer = 0;
  const state = h("span", { class: "badges" });
  const tools = h("div", { class: "tools" });
  const body = h("div", { class: "stack" });
  let drawn = "";

  let turn = 0;
  async function load() {
    const own = (turn += 1);
    const answer = await ask({ workflowRunId: id, count: 1 }).catch((trouble) => ({ trouble }));
    // An old answer is not shown over a later one.
    if (isLeft || own !== turn) return;
    const run = answer.runs?.[0];
    if (answer.trouble && answer.trouble.status !== 404) {
      if (drawn === "") fill(body, unread("The run", answer.trouble, load));
      return;
    }
    if (!run) {
      fill(body, h("div", { class: "card empty" }, answer.trouble?.status === 404 ? absent() : [h("h2", null, "There is no such run"), h("p", null, answer.trouble?.message ?? "It never existed, or is forgotten.")]));
      return;
    }
    isOver = run.workflowState !== "RUN_STARTED";
    const next = JSON.stringify(run);
    if (next === drawn && isOver) return;
    drawn = next;
    fill(state, badge(RUNS, run.workflowState));
    const cancel = async () => { if (await confirm("Cancel this run?", "Its steps that wait will not start.", "Cancel the run")) await act(() => remove(`workflows/runs/${part(id)}`, { cancel: true }), "The run is cancelled").then(load); };
    const again = async (how) => {
      const told = await act(() => post(`workflows/dlq/${how}`, { dlqIds: run.dlqId }));
      const next = told?.workflowRuns?.[0]?.workflowRunId;
      if (next) go(`runs/${part(next)}`);
      else if (told) toast("This run was already resumed or restarted.", "bad");
    };
    const restart = async () => { if (await confirm("Restart this run?", "Every step runs once more, including finished ones, so what they did is done twice. Resume continues with the step that failed.", "Restart from the beginning")) await again("restart"); };
    const begin = run.dlqId ? [button("retry", "Resume", () => again("resume"), { testid: "resume" }), button("retry", "Restart", restart, { testid: "restart" })] : [];
    fill(tools, begin, isOver ? null : button("close", "Cancel", cancel, { kind: "danger" }), run.flowControlKey ? keyLink(link, run.flowControlKey) : null);
    const facts = [
      ["Workflow", run.workflowUrl],
      ["Started", full(run.workflowRunCreatedAt)],
      ended(run) ? ["Ended", full(ended(run))] : null,
      run.reason ? ["Why it failed", run.reason] : null,
      ["Took", span((ended(run) ?? Date.now()) - run.workflowRunCreatedAt)],
      run.flowControlKey ? ["Key", run.flowControlKey] : null,
      run.labels ? ["Labels", run.labels.join(", ")] : null,
      run.invoker ? ["Invoked by", link(`runs/${part(run.invoker.workflowRunId)}`, {}, run.invoker.workflowRunId)] : null,
      run.failureFunction ? ["Failure function", TOLD[run.failureFunction.state] ?? run.failureFunction.state] : null,
    ].filter(Boolean);
    // What was opened stays open while the run goes on.
    const opened = [...body.querySelectorAll("details")].map((node) => node.open);
    const response = run.workflowRunResponse;
    fill(body, h("section", { class: "card" }, h("h2", null, "Steps"), timeline(run, link)), h("section", { class: "card" }, h("h2", null, "The run"), h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]))), code("Result", response === undefined || response === null ? null : pretty(String(response))));
    [...body.querySelectorAll("details")].forEach((node, index) => { node.open = opened[index] ?? false; });
  }

  const unhear = live.hear((told_) => { if (!told_.isHistory && !isOver && !timer) timer = setTimeout(() => { timer = 0; load(); }, 1000); });
  load();
  return {
    node: h("div", { class: "page" }, heading(link, [back, "Runs"], id, state), tools, body),
    back: () => go(back),
    refresh: load,
    leave() { isLeft = true; unhear(); clearTimeout(timer); },
  };
}
