// Everything a workflow can do, with the client from npm and an express endpoint.

import assert from "node:assert/strict";

import { WorkflowNonRetryableError } from "@upstash/workflow";
import { createWorkflow, serve, serveMany } from "@upstash/workflow/express";

import { api, client, endpoint, log, patience, reached, until } from "./endpoint.mjs";

patience("workflow", 170_000);
const ran = {};
const count = (name) => (ran[name] = (ran[name] ?? 0) + 1);
const failures = [];
let isBroken = true;

const greet = createWorkflow(async (context) => {
  const name = await context.run("name", () => context.requestPayload.name);
  return { hello: name };
});
const host = createWorkflow(async (context) => {
  const invoked = await context.invoke("greet", {
    workflow: greet,
    body: { name: "child" },
    flowControl: { key: "invoked", parallelism: 1 },
  });
  await context.run("after", () => invoked.body);
  return invoked;
});

// Half of an emoji in each name, as `slice` leaves it where it cuts one in two. The client holds a name that comes back
// against the one it knows.
const cut = createWorkflow(async (context) => {
  const ran = await context.run("run \ud83d", () => context.requestPayload.text);
  await context.sleep("sleep \ud83d", "1s");
  const { eventData } = await context.waitForEvent("wait \ud83d", "cut", { timeout: "1m" });
  const invoked = await context.invoke("invoke \ud83d", { workflow: greet, body: { name: ran } });
  const all = await Promise.all([context.run("one \ud83d", () => 1), context.run("two \ud83d", () => 2)]);
  return { ran, eventData, hello: invoked.body.hello, all };
});

const site = await endpoint((app) => {
  app.use(
    "/two",
    serve(async (context) => {
      const input = context.requestPayload;
      const first = await context.run("first", () => count("first") && { got: input.text });
      const second = await context.run("second", () => count("second") && `${first.got}!`);
      return { second, user: context.headers.get("x-user") };
    }),
  );
  app.use(
    "/sleep",
    serve(async (context) => {
      const before = await context.run("before", () => Date.now());
      await context.sleep("nap", 1);
      await context.sleepUntil("until", Math.floor(Date.now() / 1000) + 1);
      const after = await context.run("after", () => Date.now());
      return after - before;
    }),
  );
  app.use(
    "/parallel",
    serve(async (context) => {
      const all = await Promise.all([
        context.run("a", () => count("a") && 1),
        context.run("b", () => count("b") && 2),
        context.sleep("c", 1),
        context.run("d", () => count("d") && 4),
      ]);
      return await context.run("sum", () => all[0] + all[1] + all[3]);
    }),
  );
  // An error that is final, with a name that is no text of one byte for each letter.
  app.post("/odd", (request, response) => response.status(489).set({ "upstash-nonretryable-error": "true", "x-name": bytes("Łódź") }).json({ said: request.body }));
  app.post("/third", (request, response) => response.status(Number(request.query.status ?? 201)).json({ said: request.body }));
  app.use(
    "/call",
    serve(async (context) => {
      const good = await context.call("good", {
        url: `${context.url.replace("/call", "/third")}`,
        method: "POST",
        body: { ask: 1 },
        headers: { "x-third": "yes" },
        flowControl: { key: "third-party", parallelism: 1 },
      });
      const bad = await context.call("bad", { url: `${context.url.replace("/call", "/third")}?status=418`, method: "POST", body: { ask: 2 } });
      const odd = await context.call("odd", { url: `${context.url.replace("/call", "/odd")}`, method: "POST", body: "cut \ud83d", headers: { "content-type": "text/plain" }, retries: 2 });
      return [good.status, good.body.said, bad.status, odd.status, odd.body.said, odd.header["X-Name"]];
    }),
  );
  app.use(
    "/nowhere",
    serve(async (context) => await context.call("nowhere", { url: context.url.replace("http://", "http://me:word@") })),
  );
  app.use(
    "/wait",
    serve(async (context) => {
      const first = await context.waitForEvent("first", context.requestPayload.event, { timeout: "1m" });
      const { notifyResponse } = await context.notify("tell", "nobody-waits", { some: "data" });
      const never = await context.waitForEvent("never", "never-comes", { timeout: "1s" });
      return { first, never, told: notifyResponse.length };
    }),
  );
  app.use(
    "/lookback",
    serve(async (context) => {
      await context.run("slow", () => until("it may go on", () => ran.lookback));
      return await context.waitForEvent("early", "early-bird", { timeout: "1m" });
    }),
  );
  app.use(
    "/hook",
    serve(async (context) => {
      const hook = await context.createWebhook("make");
      await context.run("tell", () => (ran.hook = hook.webhookUrl));
      const first = await context.waitForWebhook("first", hook, "1m");
      const second = await context.waitForWebhook("second", hook, "1m");
      const name = Buffer.from(second.request.headers.get("x-name"), "latin1").toString();
      return [await first.request.json(), second.request.method, first.request.url === hook.webhookUrl, name, second.request.url === hook.webhookUrl.replace("http:", "https:")];
    }),
  );
  app.use(
    "/fail",
    serve(
      async (context) => {
        await context.run("fine", () => count("fine"));
        await context.run("broken", () => {
          count("broken");
          if (isBroken) throw new Error("it is broken");
          return "mended";
        });
        return "done";
      },
      {
        failureFunction: async ({ context, failStatus, failResponse, failHeaders }) => {
          failures.push({ id: context.workflowRunId, payload: context.requestPayload, failStatus, failResponse, failHeaders });
          return "sorry";
        },
      },
    ),
  );
  app.use(
    "/final",
    serve(async (context) => {
      await context.run("never again", () => {
        count("final");
        throw new WorkflowNonRetryableError("no attempt can help");
      });
    }),
  );
  app.use(
    "/long",
    serve(async (context) => {
      await context.sleep("long", "1h");
      await context.run("never", () => count("never"));
    }),
  );
  app.use(
    "/steps/:count",
    serve(async (context) => {
      for (let step = 1; step <= context.requestPayload.count; step += 1) await context.run(`s${step}`, () => step);
      return "done";
    }),
  );
  app.post("/plain", (_, response) => response.json({ no: "workflow" }));
  app.use("/many", serveMany({ greet, host, cut }));
});
const start = (path, options = {}) => client.trigger({ url: `${site.url}${path}`, ...options });
const names = (run) => run.steps.flatMap((group) => group.steps.map((step) => step.stepName));
// Text as headers carry it.
const bytes = (text) => Buffer.from(text).toString("latin1");
const answer = (run) => JSON.parse(run.workflowRunResponse);

const tests = {
  async "two steps under flow control, with settings of the trigger on every delivery"() {
    const flowControl = { key: "two", parallelism: 1, rate: 50, period: "1s" };
    const headers = { "x-user": "me" };
    const options = { body: { text: "hi" }, flowControl, headers, label: "greeting", retries: 1 };
    const { workflowRunId } = await start("/two", { ...options, workflowRunId: "fixed" });
    assert.equal(workflowRunId, "wfr_fixed");
    const run = await reached(workflowRunId, "RUN_SUCCESS");
    assert.deepEqual(answer(run), { second: "hi!", user: "me" });
    assert.deepEqual([ran.first, ran.second], [1, 1]);
    assert.deepEqual(names(run), ["init", "first", "second"]);
    assert.deepEqual(run.steps.map((group) => group.type), ["sequential", "sequential", "sequential"]);
    assert.equal(run.steps[1].steps[0].state, "STEP_SUCCESS");
    assert.equal(run.steps[1].steps[0].out, JSON.stringify({ got: "hi" }));
    assert.equal(run.label, "greeting");
    assert.ok(run.workflowRunCompletedAt >= run.workflowRunCreatedAt);
    const deliveries = site.of("/two");
    assert.equal(deliveries.length, 3);
    assert.equal(site.most["/two"], 1);
    for (const { headers } of deliveries) {
      assert.equal(headers["x-user"], "me");
      assert.equal(headers["upstash-workflow-runid"], workflowRunId);
      assert.equal(headers["upstash-label"], "greeting");
      assert.ok(headers["upstash-signature"] && headers["upstash-message-id"]);
    }
    // The run ends within its last delivery, which is logged when it has ended.
    await until("every delivery was under the key of the run", async () => {
      const messages = await api("GET", "/v2/events?flowControlKey=two&state=DELIVERED");
      return messages.json.events.length === 3;
    });
  },
  async "a step with a key of its own"() {
    const headers = { "Flowgate-Step-2": "key=second-step, parallelism=1" };
    const { workflowRunId } = await start("/two", { body: { text: "own" }, flowControl: { key: "run", parallelism: 5 }, headers });
    await reached(workflowRunId, "RUN_SUCCESS");
    const under = async (key) => (await api("GET", `/v2/events?flowControlKey=${key}&state=DELIVERED`)).json.events.length;
    await until("it is noted", async () => (await under("run")) + (await under("second-step")) === 3);
    assert.equal(await under("second-step"), 1);
    const wrong = { "Flowgate-Step-2": "parallelism=1" };
    await assert.rejects(start("/two", { headers: wrong }), /key=<name>/);
  },
  async "a run id that is live is not started twice"() {
    const body = { name: "x" };
    const first = await start("/long", { body, workflowRunId: "once" });
    await start("/long", { body, workflowRunId: "once" });
    await until("it sleeps", () => site.of("/long").length > 0);
    assert.equal((await client.logs({ filter: { workflowRunId: first.workflowRunId } })).runs.length, 1);
    assert.equal((await client.cancel({ ids: [first.workflowRunId] })).cancelled, 1);
    await reached(first.workflowRunId, "RUN_CANCELED");
  },
  async "sleeps"() {
    const { workflowRunId } = await start("/sleep");
    const run = await reached(workflowRunId, "RUN_SUCCESS");
    assert.ok(answer(run) >= 1000, run.workflowRunResponse);
    assert.deepEqual(names(run), ["init", "before", "nap", "until", "after"]);
    assert.equal(run.steps[2].steps[0].sleepFor, 1);
  },
  async "parallel branches"() {
    const { workflowRunId } = await start("/parallel");
    const run = await reached(workflowRunId, "RUN_SUCCESS");
    assert.equal(run.workflowRunResponse, "7");
    assert.deepEqual([ran.a, ran.b, ran.d], [1, 1, 1]);
    assert.deepEqual(run.steps.map((group) => group.type), ["sequential", "parallel", "sequential"]);
    assert.deepEqual(run.steps[1].steps.map((step) => [step.stepName, step.state]), [
      ["a", "STEP_SUCCESS"],
      ["b", "STEP_SUCCESS"],
      ["c", "STEP_SUCCESS"],
      ["d", "STEP_SUCCESS"],
    ]);
  },
  async "calls to others"() {
    const { workflowRunId } = await start("/call", { flowControl: { key: "caller", parallelism: 1 } });
    const run = await reached(workflowRunId, "RUN_SUCCESS");
    assert.deepEqual(answer(run), [201, { ask: 1 }, 418, 489, "cut \ufffd", [bytes("Łódź")]]);
    const [third] = site.of("/third");
    assert.equal(third.headers["x-third"], "yes");
    assert.equal(third.headers["upstash-workflow-runid"], undefined, "others are not told of the run");
    const called = await api("GET", "/v2/events?flowControlKey=third-party&state=DELIVERED");
    assert.equal(called.json.events.length, 1, "a call has its own key");
    assert.equal((await api("GET", "/v2/dlq?source=workflow&workflowRunId=" + workflowRunId)).json.messages.length, 0);
    const step = run.steps[1].steps[0];
    assert.deepEqual([step.stepType, step.callMethod, step.callResponseStatus], ["Call", "POST", 201]);
  },
  async "workflows that invoke others"() {
    const { workflowRunId } = await start("/many/host", { body: {} });
    const run = await reached(workflowRunId, "RUN_SUCCESS");
    assert.deepEqual(answer(run), { body: { hello: "child" }, isCanceled: false, isFailed: false });
    const { runs } = await client.logs({ filter: { workflowUrl: `${site.url}/many/greet` } });
    assert.equal(runs.length, 1);
    assert.equal(runs[0].invoker.workflowRunId, workflowRunId);
    assert.equal(runs[0].flowControlKey, "invoked");
    const { stepType, invokedWorkflowRunId, invokedWorkflowUrl, invokedWorkflowCreatedAt } = run.steps[1].steps[0];
    assert.deepEqual([stepType, invokedWorkflowRunId, invokedWorkflowUrl, invokedWorkflowCreatedAt], ["Invoke", runs[0].workflowRunId, runs[0].workflowUrl, runs[0].workflowRunCreatedAt]);
  },
  async "names that are cut in the middle of a letter"() {
    const { workflowRunId } = await start("/many/cut", { body: { text: "cut \ud83d" } });
    await until("it waits", async () => (await client.getWaiters({ eventId: "cut" })).length > 0);
    await client.notify({ eventId: "cut", eventData: { has: "\ud83d" } });
    const run = await reached(workflowRunId, "RUN_SUCCESS");
    assert.deepEqual(answer(run), { ran: "cut \ud83d", eventData: { has: "\ud83d" }, hello: "cut \ud83d", all: [1, 2] });
    const shown = ["run", "sleep", "wait", "invoke", "one", "two"].map((name) => `${name} \ufffd`);
    assert.deepEqual(names(run), ["init", ...shown]);
  },
  async "events"() {
    const event = "order/1 paid";
    const { workflowRunId } = await start("/wait", { body: { event } });
    const waiters = await until("somebody waits", async () => {
      const found = await client.getWaiters({ eventId: event });
      return found.length > 0 && found;
    });
    assert.equal(waiters[0].url, `${site.url}/wait`);
    assert.equal((await log(workflowRunId)).steps[1].steps[0].waitEventId, event);
    const told = await client.notify({ eventId: event, eventData: { paid: 3 } });
    assert.equal(told.length, 1);
    assert.equal(told[0].workflowRunId, workflowRunId);
    const run = await reached(workflowRunId, "RUN_SUCCESS");
    assert.deepEqual(answer(run), {
      first: { eventData: { paid: 3 }, timeout: false },
      never: { timeout: true },
      told: 0,
    });
    const waits = run.steps.flatMap(({ steps }) => steps).filter((step) => step.stepType === "Wait");
    assert.deepEqual(waits.map((step) => [step.waitEventId, step.waitTimeoutDuration, step.waitTimeout]), [[event, "1m", false], ["never-comes", "1s", true]]);
    assert.ok(waits.every((step) => step.waitTimeoutDeadline > run.workflowRunCreatedAt));
    assert.deepEqual(await client.getWaiters({ eventId: event }), []);
    assert.deepEqual(await client.notify({ eventId: event }), [], "nobody waits any more");
  },
  async "an event that comes early is kept"() {
    const { workflowRunId } = await start("/lookback");
    await until("it has begun", () => site.of("/lookback").length > 0);
    await client.notify({ eventId: "early-bird", eventData: "worm", workflowRunId });
    ran.lookback = true;
    const run = await reached(workflowRunId, "RUN_SUCCESS");
    assert.deepEqual(answer(run), { eventData: "worm", timeout: false });
  },
  async "webhooks"() {
    const { workflowRunId } = await start("/hook");
    const url = await until("there is a webhook", () => ran.hook);
    const hit = await fetch(url, { method: "POST", body: JSON.stringify({ from: "outside" }), headers: { "content-type": "application/json" } });
    assert.equal(hit.status, 200);
    // By way of two others, each of which says how it was called.
    assert.equal((await fetch(url, { headers: { "x-name": bytes("Łódź"), "x-forwarded-proto": "https,http" } })).status, 200);
    const run = await reached(workflowRunId, "RUN_SUCCESS");
    assert.deepEqual(answer(run), [{ from: "outside" }, "GET", true, "Łódź", true]);
    assert.equal((await fetch(url)).status, 404, "the run has ended");
  },
  async "failures, told, resumed and restarted"() {
    const { workflowRunId } = await start("/fail", { body: { n: 1 }, retries: 1, retryDelay: "10", label: "failing" });
    const run = await reached(workflowRunId, "RUN_FAILED");
    assert.deepEqual([ran.fine, ran.broken], [1, 2]);
    const next = run.steps.at(-1);
    assert.deepEqual([next.type, next.steps[0].state, next.steps[0].errors.length], ["next", "STEP_FAILED", 2]);
    assert.equal(next.steps[0].errors[0].status, 500);
    assert.deepEqual([next.steps[0].stepName, next.steps[0].retryDelay, run.steps[1].steps[0].retryDelay], ["broken", "10", "10"]);
    const told = await until("the failure is told", () => failures[0]);
    assert.deepEqual([told.id, told.payload, told.failStatus, told.failResponse], [workflowRunId, { n: 1 }, 500, "it is broken"]);
    const done = await until("the failure function has ended", async () => {
      const found = await log(workflowRunId);
      return found.failureFunction?.state === "CALLBACK_SUCCESS" && found;
    });
    assert.match(done.failureFunction.responseBody, /sorry/);
    const messages = await until("its letter is there", async () => {
      const { messages } = await client.dlq.list({ filter: { workflowRunId } });
      return messages.length === 1 && messages;
    });
    assert.equal(messages[0].dlqId, run.dlqId);
    assert.equal(messages[0].failureCallbackInfo.state, "CALLBACK_SUCCESS");
    const ofAll = (await api("GET", "/v2/dlq")).json.messages;
    assert.deepEqual(ofAll.map((letter) => [letter.dlqId, letter.workflowRunId]), [[run.dlqId, workflowRunId]], "all letters are all");
    assert.equal((await api("GET", "/v2/dlq?source=qstash")).json.messages.length, 0);
    assert.equal((await api("GET", "/v2/dlq?source=workflow&workflowUrlExactMatch=true&workflowUrl=" + ofAll[0].workflowUrl.slice(0, -1))).json.messages.length, 0);
    assert.equal((await api("POST", "/v2/dlq/retry")).json.responses.length, 0, "runs are not sent again like messages");

    await client.dlq.retryFailureFunction({ dlqId: run.dlqId });
    await until("it is told again", () => failures[1]);

    isBroken = false;
    const resumed = await client.dlq.resume({ dlqId: run.dlqId, retries: 2, flowControl: { key: "resumed", parallelism: 1 } });
    const second = await reached(resumed.workflowRunId, "RUN_SUCCESS");
    assert.equal(ran.fine, 1, "what was done is not done again");
    assert.equal(JSON.parse(second.workflowRunResponse), "done");
    assert.equal(second.flowControlKey, "resumed");
    assert.equal((await client.dlq.list({ filter: { workflowRunId } })).messages.length, 0);

    isBroken = true;
    const again = await start("/fail", { body: { n: 2 }, retries: 0 });
    const failed = await reached(again.workflowRunId, "RUN_FAILED");
    isBroken = false;
    const restarted = await client.dlq.restart({ dlqId: failed.dlqId });
    await reached(restarted.workflowRunId, "RUN_SUCCESS");
    assert.equal(ran.fine, 3, "a restart begins at the beginning");
  },
  async "an error that is final is not tried again"() {
    const { workflowRunId } = await start("/final");
    await reached(workflowRunId, "RUN_FAILED");
    assert.equal(ran.final, 1);
    await until("its letter is there and gone", async () => {
      const { deleted } = await client.dlq.delete({ filter: { workflowRunId } });
      return deleted === 1;
    });
  },
  async "a URL that has no workflow fails the run at once"() {
    const { workflowRunId } = await start("/plain");
    const run = await reached(workflowRunId, "RUN_FAILED");
    assert.match(JSON.stringify(run.steps), /detected a non-workflow destination/);
  },
  async "a call that cannot be made fails the run and leaves none that waits"() {
    const { workflowRunId } = await start("/nowhere", { retries: 0 });
    const run = await reached(workflowRunId, "RUN_FAILED");
    assert.match(run.failureFunction.failResponse, /the destination has a user before its host/);
  },
  async "cancelling by id, by URL and by label"() {
    const flowControl = { key: "long", parallelism: 1 };
    const one = await start("/long", { flowControl });
    const two = await start("/long", { label: "gone", flowControl });
    const three = await start("/long", { flowControl });
    const four = await start("/long", { flowControl });
    for (const { workflowRunId } of [one, two, three, four]) {
      await until("it sleeps", async () => (await log(workflowRunId))?.steps.length > 1);
    }
    assert.deepEqual(await client.cancel({ ids: [one.workflowRunId, "wfr_nobody"] }), { cancelled: 1 });
    assert.deepEqual(await client.cancel({ filter: { label: "gone" } }), { cancelled: 1 });
    const { host, hostname } = new URL(site.url);
    const live = async (filter) => (await client.logs({ filter: { ...filter, state: "RUN_STARTED" } })).runs.length;
    assert.deepEqual([await live({ workflowUrl: `${site.url}/lon` }), await live({ workflowUrl: `${site.url}/long` })], [0, 2]);
    assert.deepEqual([await live({ host: "e.com" }), await live({ host, path: ["/long", "/none"] }), await live({ host: hostname })], [0, 2, 2]);
    assert.deepEqual(await client.cancel({ filter: { host, path: "/lon" } }), { cancelled: 0 });
    assert.deepEqual(await client.cancel({ filter: { host, path: "/long" }, count: 1 }), { cancelled: 1 });
    assert.deepEqual(await client.cancel({ urlStartingWith: `${site.url}/lon` }), { cancelled: 1 });
    for (const { workflowRunId } of [one, two, three, four]) await reached(workflowRunId, "RUN_CANCELED");
    await until("nothing of them waits", async () => {
      const { json } = await api("GET", "/v2/flowControl/long");
      return json?.error || json?.waitListSize === 0;
    });
    assert.equal(ran.never, undefined);
  },
  async "cancelling a run's message cancels the run"() {
    const { workflowRunId } = await start("/long");
    // Not the delivery that brought it here, which may end at any moment.
    const sleep = await until("it sleeps", async () => {
      const run = await log(workflowRunId);
      return run?.steps.flatMap(({ steps }) => steps).find((step) => step.stepName === "long" && step.messageId);
    });
    const cancelled = await api("DELETE", `/v2/messages/${sleep.messageId}`);
    assert.deepEqual(cancelled.json, { cancelled: 1 });
    await reached(workflowRunId, "RUN_CANCELED");
  },
  async "what is redacted is delivered, and not told"() {
    const { workflowRunId } = await start("/two", { body: { text: "secret" }, redact: { body: true } });
    const run = await reached(workflowRunId, "RUN_SUCCESS");
    assert.doesNotMatch(JSON.stringify(run), /secret/);
    assert.match(run.steps[0].steps[0].out, /^REDACTED:/);
    assert.match(run.workflowRunResponse, /^REDACTED:/);
  },
  async "a step that comes after the end is refused with 400"() {
    const headers = { "Upstash-Workflow-RunId": "wfr_fixed", "Upstash-Workflow-Init": "false" };
    const step = JSON.stringify({ stepId: 9, stepName: "late", stepType: "Run", concurrent: 1 });
    assert.equal((await api("POST", `/v2/publish/${site.url}/two`, { headers, body: step })).status, 400);
    assert.equal((await api("GET", "/v2/workflows/runs/wfr_fixed")).status, 404);
  },
  async "runs begun with nothing but HTTP"() {
    const headers = { "Upstash-Label": "rest", "Upstash-Forward-X-User": "curl", "Content-Type": "application/json" };
    const begun = await api("POST", `/v2/trigger/${site.url}/two`, { headers, body: JSON.stringify({ text: "rest" }) });
    assert.equal(begun.status, 201);
    const run = await reached(begun.json.workflowRunId, "RUN_SUCCESS");
    assert.deepEqual(answer(run), { second: "rest!", user: "curl" });
    assert.equal(run.label, "rest");
    const plain = await api("POST", `/v2/trigger/${site.url}/plain`, { body: "{}" });
    await reached(plain.json.workflowRunId, "RUN_FAILED");
  },
  async "runs begun with nothing but HTTP, where nobody knows the version of the endpoint"() {
    const headers = { "Upstash-Workflow-Unknown-Sdk": "true", "Upstash-Label": "asked", "Upstash-Forward-X-User": "curl", "Content-Type": "application/json", "Upstash-Flow-Control-Key": "asked", "Upstash-Flow-Control-Value": "parallelism=1" };
    const before = site.of("/two").length;
    const begun = await api("POST", `/v2/trigger/${site.url}/two`, { headers, body: JSON.stringify({ text: "rest" }) });
    assert.equal(begun.status, 201);
    const run = await reached(begun.json.workflowRunId, "RUN_SUCCESS");
    assert.deepEqual(answer(run), { second: "rest!", user: "curl" });
    assert.deepEqual([run.label, run.flowControlKey, names(run)[0], run.steps[0].steps[0].out], ["asked", "asked", "init", '{"text":"rest"}']);
    assert.equal(names(run).filter((name) => name === "init").length, 1, "the payload is there once");
    const asked = site.of("/two")[before];
    assert.equal(asked.headers["upstash-workflow-unknown-sdk"], "true");
    assert.equal(asked.headers["upstash-workflow-sdk-version"], undefined);
    // An endpoint that says yes and sends nothing is no workflow.
    const plain = await api("POST", `/v2/trigger/${site.url}/plain`, { headers, body: "{}" });
    await reached(plain.json.workflowRunId, "RUN_FAILED");
  },
  async "a POST straight to the endpoint begins a run"() {
    const answered = await fetch(`${site.url}/two`, {
      method: "POST",
      body: JSON.stringify({ text: "direct" }),
      headers: { "content-type": "application/json", "x-user": "direct" },
    });
    const { workflowRunId } = await answered.json();
    const run = await reached(workflowRunId, "RUN_SUCCESS");
    assert.deepEqual(answer(run), { second: "direct!", user: "direct" });
  },
  async "a run of a hundred steps"() {
    const { workflowRunId } = await start("/steps/100", { body: { count: 100 } });
    await until("its last step is done", () => site.of("/steps/100").length > 100);
    const run = await reached(workflowRunId, "RUN_SUCCESS");
    assert.deepEqual(names(run), ["init", ...Array.from({ length: 100 }, (_, index) => `s${index + 1}`)]);
    assert.equal(site.of("/steps/100").length, 101);
  },
};

const wanted = process.argv[2] ?? "";
for (const [name, test] of Object.entries(tests)) {
  if (!name.includes(wanted)) continue;
  const started = Date.now();
  try {
    await test();
    console.log(`${name}: ${Date.now() - started} ms`);
  } catch (error) {
    console.error(`${name}: ${error.stack}`);
    process.exit(1);
  }
}
console.log("all well");
process.exit(0);
