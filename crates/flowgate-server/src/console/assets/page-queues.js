// Queues and workers: the caps at their three levels, and who serves what.

import { h, fill, say } from "./dom.js";
import { button, act, form } from "./dialogs.js";
import { actions, list, text, titled } from "./list.js";
import { meter } from "./charts.js";
import { counted, number, span } from "./format.js";
import { change, data, part, post, put } from "./server.js";
import * as live from "./live.js";
import { why } from "./explain.js";

const used = (of, most) => (cell) => {
  const figure = h("span", { class: "of" });
  const bar = meter("in use");
  cell.append(figure, bar.node);
  return (item) => {
    say(figure, `${number(of(item))} / ${most(item) === null ? "∞" : number(most(item))}`);
    bar.show(of(item), most(item));
  };
};

const whole = (value) => {
  if (value === "") return null;
  const count = Number(value);
  if (!Number.isInteger(count) || count < 1) throw new Error(`${value} is no cap: a whole number from 1 on, or nothing for no cap`);
  return count;
};

const named = (badge) => (cell) => {
  const name = h("span", { class: "strong cut" });
  const badges = h("span", { class: "badges" });
  cell.append(name, badges);
  return (item) => {
    say(name, item.name);
    name.title = item.name;
    fill(badges, badge(item) ? h("span", { class: "badge paused" }, "paused") : null);
  };
};

export function queuesPage({ go }) {
  let isLeft = false;
  const [cap, capNote] = [h("b", { class: "figure" }, "–"), h("span", { class: "faint" })];
  const capBar = meter("of the cluster in use");
  let cluster = { inUse: 0, cap: null };

  const said = (queue, isPaused) => `queue ${queue.name} ${isPaused ? "goes on" : "is paused"}`;
  const pause = (queue) => {
    const undo = () => pause({ ...queue, isPaused: !queue.isPaused });
    return act(() => change(`queues/${part(queue.name)}`, { paused: !queue.isPaused }), said(queue, queue.isPaused), undo).then(load);
  };
  const setMax = (queue) => form(`The cap of queue ${queue.name}`, [{ name: "max", label: "max_concurrency", kind: "number", min: 1, value: queue.max ?? "", hint: "Claimed or running at once, over all workers. Empty: no cap." }], "Set", async ({ max }) => { await change(`queues/${part(queue.name)}`, { max: whole(max) }); load(); });
  const queues = list({
    label: "Queues",
    id: (queue) => queue.name,
    keys: { p: pause, w: (queue) => why(queue.name, "explain", { what: `queue:${queue.name}` }, go) },
    columns: [
      { title: "Queue", kind: "name", make: named((queue) => queue.isPaused) },
      { title: "In use", kind: "flight", make: used((queue) => queue.inUse, (queue) => queue.max) },
      { title: "Waiting", kind: "num", make: text((queue) => counted(queue.waiting, queue.isMore)) },
      { title: "Delayed", kind: "num side", make: text((queue) => counted(queue.delayed, queue.isMore)) },
      { title: "Priority", kind: "num side", hint: "Queues with a lower number are served first", make: text((queue) => queue.priority) },
      {
        title: "",
        say: "Controls",
        kind: "do",
        make: actions((queue) => queue.isPaused, (last, queue) => [
          button(queue.isPaused ? "play" : "pause", queue.isPaused ? "Resume" : "Pause", () => pause(last()), { isIcon: true, kind: "plain", label: `${queue.isPaused ? "Resume" : "Pause"} ${queue.name}`, testid: "pause" }),
          button("edit", "Cap", () => setMax(last()), { isIcon: true, kind: "plain", label: `Set the cap of ${queue.name}`, testid: "cap" }),
          button("why", "Why", () => why(last().name, "explain", { what: `queue:${last().name}` }, go), { isIcon: true, kind: "plain", label: `Why does ${queue.name} wait?`, testid: "why" }),
        ]),
      },
    ],
  });
  queues.empty(h("p", null, "No queue has been used yet: its first task creates a queue."));

  const workers = list({
    label: "Workers",
    id: (worker) => worker.id,
    columns: [
      { title: "Worker", kind: "name", make: text((worker) => worker.name, "strong cut") },
      { title: "In use", kind: "flight", make: used((worker) => worker.inUse, (worker) => worker.slots) },
      { title: "Serves", kind: "side", make: text((worker) => (worker.queues.length === 0 ? "all queues" : worker.queues.join(", ")), "cut") },
      { title: "Claimed ahead", kind: "num side", hint: "How many tasks a worker may claim before it has a slot for them", make: text((worker) => (worker.ahead > 0 ? `${number(worker.ahead)}, soft` : "none")) },
      { title: "Lease", kind: "num", hint: "How long the worker counts as alive if nothing more is heard of it; then others get what it holds", make: text((worker) => `${span(worker.leaseLeftMs)} left`) },
      { title: "No.", kind: "num side", make: text((worker) => worker.id) },
    ],
  });
  workers.empty(h("h2", null, "No worker is alive"), h("p", null, "Start one: ", h("code", null, "flowgate worker --processes=8 -- <command>")));

  const pauseFifo = (queue) => {
    const undo = () => pauseFifo({ ...queue, paused: !queue.paused });
    return act(() => post(`queues/${part(queue.name)}/${queue.paused ? "resume" : "pause"}`), said(queue, queue.paused), undo).then(load);
  };
  const setFifo = (queue) => form(`The parallelism of ${queue.name}`, [{ name: "parallelism", label: "Parallelism", kind: "number", min: 1, value: queue.parallelism, hint: "1: strictly one after the other." }], "Set", async ({ parallelism }) => { await put("queues", { queueName: queue.name, parallelism: whole(parallelism) ?? 1 }); load(); });
  const fifo = list({
    label: "FIFO queues",
    id: (queue) => queue.name,
    keys: { p: pauseFifo },
    columns: [
      { title: "FIFO queue", kind: "name", make: named((queue) => queue.paused) },
      { title: "In flight", kind: "flight", make: used((queue) => queue.inUse, (queue) => queue.parallelism) },
      { title: "Waiting", kind: "num", make: text((queue) => number(queue.waiting)) },
      { title: "Delayed", kind: "num side", make: text((queue) => number(queue.delayed)) },
      {
        title: "",
        say: "Controls",
        kind: "do",
        make: actions((queue) => queue.paused, (last, queue) => [
          button(queue.paused ? "play" : "pause", queue.paused ? "Resume" : "Pause", () => pauseFifo(last()), { isIcon: true, kind: "plain", label: `${queue.paused ? "Resume" : "Pause"} ${queue.name}`, testid: "pause" }),
          button("edit", "Parallelism", () => setFifo(last()), { isIcon: true, kind: "plain", label: `Set the parallelism of ${queue.name}` }),
          button("why", "Why", () => why(last().name, "explain", { what: `key:queue/${last().name}` }, go), { isIcon: true, kind: "plain", label: `Why does ${queue.name} wait?` }),
        ]),
      },
    ],
  });
  fifo.empty(h("p", null, "No FIFO queue yet: the first enqueued message creates one, ", h("code", null, "POST /v2/enqueue/{queue}/{url}"), "."));

  const setCap = () => form("The cap of the cluster", [{ name: "cap", label: "cluster_wide_cap", kind: "number", min: 1, value: cluster.cap ?? "", hint: "Claimed or running at once, over all queues and workers. Empty: no cap." }], "Set", async ({ cap: value }) => { await change("cluster", { max: whole(value) }); load(); });

  let turn = 0;

  async function load() {
    const own = (turn += 1);
    const isOld = () => own !== turn || isLeft;
    const told = await data("queues").catch((trouble) => { if (!isOld()) queues.fail("The queues", trouble, load); });
    if (!told || isOld()) return;
    cluster = told.cluster;
    say(cap, number(cluster.inUse));
    say(capNote, cluster.cap === null ? "in flight, no cap" : `of ${number(cluster.cap)} in flight`);
    capBar.node.hidden = cluster.cap === null;
    capBar.show(cluster.inUse, cluster.cap);
    queues.show(told.queues);
    workers.show(told.workers);
    fifo.show(told.fifo);
  }

  let soon = 0;
  const unhear = live.hear((told) => { if (!told.isHistory && !soon) soon = setTimeout(() => { soon = 0; load(); }, 1500); });
  load();
  const lists = [queues, workers, fifo];
  return {
    node: h(
      "div",
      { class: "page" },
      h("header", { class: "page-head" }, h("div", null, h("h1", null, "Queues and workers"), h("p", { class: "faint" }, "A task needs a free slot of its key, its queue, the cluster and a worker. Claimed and running tasks both count; a task claimed ahead counts once it starts."))),
      h("section", { class: "tile flight single", "aria-label": "Cluster" }, h("div", { class: "card-head" }, h("h2", null, "Cluster"), button("edit", "Set the cap", setCap, { kind: "plain", testid: "cluster-cap" })), h("div", null, cap, capNote), capBar.node),
      titled("Queues", "of tasks; messages wait in one of them", queues),
      titled("Workers", "processes that run what waits", workers),
      titled("FIFO queues", "of messages, one after the other", fifo),
    ),
    refresh: load,
    press: (event) => (lists.find((one) => one.node.contains(document.activeElement)) ?? queues).press(event),
    leave() { isLeft = true; unhear(); clearTimeout(soon); },
  };
}
