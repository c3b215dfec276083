// Every method of the vendor's client for JavaScript, against a server that it does not know.

import assert from "node:assert/strict";

import { Client, Receiver } from "@upstash/qstash";

import { endpoint, patience, until } from "./endpoint.mjs";

patience("qstash", 120_000);
const work = await endpoint({ status: (path) => (path.startsWith("/fail") ? 500 : 200) });
const client = new Client({ baseUrl: process.env.QSTASH_URL, token: process.env.QSTASH_TOKEN, retry: false });
const state = (messageId, wanted) =>
  until(`${messageId} is ${wanted}`, async () => {
    const { logs } = await client.logs({ filter: { messageIds: [messageId] } });
    return logs.find((log) => log.state === wanted);
  });

// publish, publishJSON, and what the endpoint gets; the receiver checks the signature.
const sent = await client.publishJSON({
  url: `${work.url}/json?a=1`,
  body: { hello: "world" },
  headers: { "X-Mine": "1" },
  label: "greeting",
  retries: 1,
  timeout: 30,
  flowControl: { key: "hello", parallelism: 2 },
});
const [call] = await work.came("/json?a=1", 1);
assert.equal(call.headers["upstash-message-id"], sent.messageId);
assert.equal(call.headers["x-mine"], "1");
assert.deepEqual(JSON.parse(call.body), { hello: "world" });
const keys = await (await fetch(`${process.env.QSTASH_URL}/v2/keys`, { headers: { Authorization: `Bearer ${process.env.QSTASH_TOKEN}` } })).json();
const receiver = new Receiver({ currentSigningKey: keys.current, nextSigningKey: keys.next });
const signature = call.headers["upstash-signature"];
assert.ok(await receiver.verify({ signature, body: call.body, url: `${work.url}/json?a=1` }));
await assert.rejects(receiver.verify({ signature, body: `${call.body} `, url: `${work.url}/json?a=1` }));
await state(sent.messageId, "DELIVERED");

// messages: read, cancel in every form.
const message = await client.messages.get(sent.messageId);
assert.equal(message.flowControlKey, "hello");
assert.equal(message.parallelism, 2);
assert.equal(message.period, 1);
assert.equal(message.rate, undefined);
assert.equal(message.maxRetries, 1);
assert.equal(message.label, "greeting");
assert.deepEqual(message.header["X-Mine"], ["1"]);
const later = (label) => client.publish({ url: `${work.url}/later`, body: "later", delay: 3600, label });
const [one, two, three, four] = [await later("a"), await later("b"), await later("c"), await later("d")];
assert.deepEqual(await client.messages.cancel(one.messageId), { cancelled: 1 });
assert.deepEqual(await client.messages.cancel([two.messageId, "msg_unknown"]), { cancelled: 1 });
await assert.rejects(client.messages.cancel({ filter: { label: "" } }), /label is empty/);
assert.deepEqual(await client.messages.cancel({ filter: { label: "c" } }), { cancelled: 1 });
await client.messages.delete(four.messageId);
const [five, six] = [await later("e"), await later("f")];
assert.equal(await client.messages.deleteMany([five.messageId]), 1);
assert.equal(await client.messages.deleteAll(), 1);
const many = Array.from({ length: 130 }, () => ({ url: `${work.url}/later`, delay: 3600, label: "many" }));
await client.batchJSON(many);
assert.deepEqual(await client.messages.cancel({ filter: { label: "many" }, count: 5 }), { cancelled: 5 });
assert.deepEqual(await client.messages.cancel({ all: true }), { cancelled: 125 });
await assert.rejects(client.messages.get("msg_unknown"), /there is no message/);
await state(six.messageId, "CANCELED");

// notBefore, method, content type, deduplication, bad input.
const at = await client.publish({ url: `${work.url}/at`, notBefore: Math.floor(Date.now() / 1000) + 3600 });
const dated = await client.messages.get(at.messageId);
assert.ok(dated.notBefore - dated.createdAt > 3_500_000);
await client.messages.cancel(at.messageId);
await client.publish({ url: `${work.url}/put`, method: "PUT", body: "x", headers: { "Content-Type": "text/x-mine" } });
const [put] = await work.came("/put", 1);
assert.deepEqual([put.method, put.headers["content-type"]], ["PUT", "text/x-mine"]);
const first = await client.publishJSON({ url: `${work.url}/once`, body: 1, deduplicationId: "once" });
const second = await client.publishJSON({ url: `${work.url}/once`, body: 1, deduplicationId: "once" });
assert.equal(second.messageId, first.messageId);
assert.equal(second.deduplicated, true);
await assert.rejects(client.publish({ url: "nowhere/at/all" }), /destination/);

// callbacks
await client.publishJSON({ url: `${work.url}/source`, body: 7, callback: `${work.url}/callback` });
const [back] = await work.came("/callback", 1);
const told = JSON.parse(back.body);
assert.equal(told.status, 200);
assert.equal(Buffer.from(told.body, "base64").toString(), "done");
assert.equal(told.url, `${work.url}/source`);

// batch, batchJSON, and a URL group within
await client.urlGroups.addEndpoints({ name: "group", endpoints: [{ name: "x", url: `${work.url}/x` }, { url: `${work.url}/y` }] });
const batch = await client.batchJSON([
  { url: `${work.url}/batch`, body: 1, flowControl: { key: "hello", rate: 100, period: "1s" } },
  { urlGroup: "group", body: 2 },
  { url: `${work.url}/batch`, body: 3, queueName: "batched" },
]);
assert.equal(batch.length, 3);
assert.equal(batch[1].length, 2);
await work.came("/batch", 2);
await work.came("/x", 1);
await work.came("/y", 1);
await client.batch([{ url: `${work.url}/plain`, body: "text" }]);
await work.came("/plain", 1);

// URL groups
const group = await client.urlGroups.get("group");
assert.deepEqual(group.endpoints.map((found) => found.url), [`${work.url}/x`, `${work.url}/y`]);
assert.equal((await client.urlGroups.list()).length, 1);
assert.equal((await client.publish({ urlGroup: "group", body: "all" })).length, 2);
await client.urlGroups.removeEndpoints({ name: "group", endpoints: [{ name: "x" }] });
assert.equal((await client.urlGroups.get("group")).endpoints.length, 1);
await client.urlGroups.delete("group");
await assert.rejects(client.urlGroups.get("group"));

// queues
const queue = client.queue({ queueName: "line" });
await queue.upsert({ parallelism: 2, paused: true });
assert.deepEqual([(await queue.get()).parallelism, (await queue.get()).paused], [2, true]);
await queue.enqueueJSON({ url: `${work.url}/queued`, body: 1 });
await queue.enqueue({ url: `${work.url}/queued`, body: "2" });
assert.equal((await until("both wait", async () => (await queue.get()).lag === 2 && queue.get())).lag, 2);
assert.equal(work.of("/queued").length, 0);
await queue.resume();
await work.came("/queued", 2);
await queue.pause();
assert.ok((await queue.list()).some((found) => found.name === "line"));
await queue.delete();
await assert.rejects(queue.get());

// flow control
const held = await Promise.all(
  Array.from({ length: 3 }, () => client.publish({ url: `${work.url}/held`, delay: 0, flowControl: { key: "held", rate: 1, period: "1h" } })),
);
assert.equal(held.length, 3);
await work.came("/held", 1);
const info = await until("two wait", async () => {
  const found = await client.flowControl.get("held");
  return found.waitListSize === 2 && found;
});
assert.deepEqual([info.rateMax, info.rateCount, info.ratePeriod, info.isPaused], [1, 1, 3600, false]);
assert.ok(Math.abs(info.ratePeriodStart - Date.now() / 1000) < 60);
await client.flowControl.pause("held");
await client.flowControl.resetRate("held");
assert.equal((await client.flowControl.get("held")).isPaused, true);
await client.flowControl.pin("held", { parallelism: 5, rate: 7, period: 60 });
const pinned = await client.flowControl.get("held");
assert.deepEqual([pinned.parallelismMax, pinned.rateMax, pinned.ratePeriod], [5, 7, 60]);
assert.deepEqual([pinned.isPinnedParallelism, pinned.isPinnedRate], [true, true]);
assert.equal(work.of("/held").length, 1, "paused is paused");
await client.flowControl.resume("held");
await work.came("/held", 3);
await client.flowControl.unpin("held", { parallelism: true, rate: true });
const unpinned = await client.flowControl.get("held");
assert.deepEqual([unpinned.isPinnedParallelism, unpinned.isPinnedRate], [false, false]);
assert.equal(typeof (await client.flowControl.getGlobalParallelism()).parallelismCount, "number");

// schedules
const { scheduleId } = await client.schedules.create({
  destination: `${work.url}/scheduled`,
  cron: "CRON_TZ=Europe/Istanbul 0 4 1 1 *",
  body: "yearly",
  scheduleId: "yearly",
  retries: 2,
  headers: { "X-Mine": "2" },
  flowControl: { key: "yearly", parallelism: 1 },
});
assert.equal(scheduleId, "yearly");
const schedule = await client.schedules.get("yearly");
assert.deepEqual([schedule.cron, schedule.destination, schedule.retries, schedule.body], ["CRON_TZ=Europe/Istanbul 0 4 1 1 *", `${work.url}/scheduled`, 2, "yearly"]);
await client.schedules.pause({ schedule: "yearly" });
assert.equal((await client.schedules.get("yearly")).isPaused, true);
await client.schedules.resume({ schedule: "yearly" });
assert.equal((await client.schedules.list()).length, 1);
await client.schedules.delete("yearly");
await assert.rejects(client.schedules.get("yearly"));

// the dead-letter list
const failing = (label) => client.publish({ url: `${work.url}/fail/${label}`, retries: 0, label, failureCallback: `${work.url}/told` });
const dead = [await failing("one"), await failing("two"), await failing("three"), await failing("four")];
const letters = await until("four letters", async () => {
  const { messages } = await client.dlq.listMessages();
  return messages.length === 4 && messages;
});
assert.deepEqual(new Set(letters.map((letter) => letter.messageId)), new Set(dead.map((message) => message.messageId)));
assert.equal(letters[0].responseStatus, 500);
assert.equal(letters[0].responseBody, "done");
await work.came("/told", 4);
const by = (label) => letters.find((letter) => letter.label === label).dlqId;
const page = await client.dlq.listMessages({ count: 1 });
assert.equal(page.messages.length, 1);
assert.ok(page.cursor);
assert.equal((await client.dlq.listMessages({ filter: { label: "two" } })).messages.length, 1);
const again = await client.dlq.retry(by("one"));
assert.equal(again.responses.length, 1);
await work.came("/fail/one", 2);
await client.dlq.delete(by("two"));
assert.equal((await client.dlq.deleteMany({ dlqIds: [by("three")] })).deleted, 1);
await assert.rejects(client.dlq.delete({ filter: { labeel: "four" } }));
assert.equal((await client.dlq.delete({ filter: { label: "four" } })).deleted, 1);
await until("only the retried one is left", async () => (await client.dlq.listMessages()).messages.length === 1);

// logs and events
const events = await client.events({ count: 1 });
assert.equal(events.events.length, 1);
assert.ok(events.cursor);
const all = await client.logs({ filter: { label: "greeting" } });
assert.deepEqual(all.logs.map((log) => log.state), ["DELIVERED", "ACTIVE", "CREATED"]);
assert.equal(all.cursor, undefined);
const wrong = new Client({ baseUrl: process.env.QSTASH_URL, token: "wrong", retry: false });
await assert.rejects(wrong.schedules.list(), (error) => error.status === 401);

// In development the client finds the server by itself, by its public token and keys.
const found = new Client({ devMode: true, retry: false });
const { messageId } = await found.publishJSON({ url: `${work.url}/dev`, body: 1 });
await work.came("/dev", 1);
await state(messageId, "DELIVERED");

console.log("qstash: all well");
process.exit(0);
