// What is stuck, and why, is seen on the first page without a click, and leads to where something is done about it.

import assert from "node:assert/strict";
import { api, browse, endpoint, flow, go, logIn, reads, row, text, until } from "./browser.mjs";

const there = await endpoint();
const send = (key, limits, path, count, headers = {}) => {
  const entry = { destination: there.url(path), headers: { ...flow(key, limits), ...headers }, body: "x" };
  return api("POST", "/v2/batch", { "content-type": "application/json" }, JSON.stringify(Array.from({ length: count }, () => entry)));
};

await browse(async (page) => {
  await logIn(page);
  await reads(page, "nothing is the matter", ".notes", /Nothing is paused, nothing failed/);

  // Five keys that wait, each for another reason, and one that does not wait.
  await api("POST", "/v2/flowControl/held/pause");
  await send("held", "parallelism=2", "/hold", 3);
  await send("full", "parallelism=1", "/hold", 4);
  await send("spent", "rate=1, period=1h", "/ok", 5);
  await send("even", "rate=2, period=1h, smooth=true", "/ok", 4);
  await send("free", "parallelism=9", "/hold", 2);
  await reads(page, "a pause", `${row("held")} td.wait`, /^3\s+paused/);
  await reads(page, "no slot", `${row("full")} td.wait`, /^3\s+slots full/);
  await reads(page, "a rate, and for how long", `${row("spent")} td.wait`, /^4\s+rate spent, \d+ min/);
  await reads(page, "a rate without windows", `${row("even")} td.wait`, /^3\s+smooth rate, \d+ min/);
  await reads(page, "and which", `${row("even")} td.rate`, /^2 per 1 ?h.*, smooth$/);
  await reads(page, "nothing waits", `${row("free")} td.wait`, /^0$/);

  // What needs a look: a key and a queue that are paused, tries that fail, and what is dead of them.
  await reads(page, "a key is paused", ".notes", /1 key is paused/);
  await api("POST", `/v2/enqueue/invoices/${there.url("/ok")}`, {}, "x");
  await api("POST", "/v2/queues/invoices/pause");
  await reads(page, "a queue is paused", ".notes", /1 queue is paused/);
  await send("broken", "parallelism=9", "/fail/all", 6, { "Upstash-Retries": "0" });
  await reads(page, "tries fail", ".notes", /6 of \d+ tries failed in the last minute/);
  await reads(page, "and are dead", ".notes", /6 dead letters/);
  assert.match(await text(page, ".notes li:first-child"), /tries failed/, "the worst is first");

  // Each leads to where it is.
  await page.click(".notes a[href$='show=paused']");
  await until("the key that is paused", async () => (await page.$$("tbody tr")).length === 1 && (await page.$(row("held"))) !== null);
  await go(page, "keys");
  await page.waitForSelector(".notes a[href$='/letters']");
  await page.click(".notes a[href$='/letters']");
  await reads(page, "the dead letters", "h1", /Dead letters/);

  // What is rarer, from looks that saw it.
  const said = (...looks) => page.evaluate(async (all) => (await import("/console/assets/notes.js")).notes(all).map(([, to, words]) => `${to}: ${words}`), looks);
  const look = { at: 100_000, workers: 1, waiting: 0, inFlight: 0, delivered: 0, retried: 0, failed: 0, dead: 0, pausedQueues: 0, pausedKeys: 0 };
  const before = { ...look, at: 50_000 };
  assert.deepEqual(await said(before, look), []);
  assert.deepEqual(await said({ ...look, workers: 0, waiting: 3 }), ["queues: No worker is alive, 3 wait"]);
  assert.deepEqual(await said({ ...look, cap: 4, inFlight: 4, waiting: 2 }), ["queues: The cluster is full: 4 of 4"]);
  assert.deepEqual(await said({ ...look, cap: 4, inFlight: 4 }), []);
  assert.deepEqual(await said(before, { ...look, waiting: 2 }), ["keys?show=busy: 2 wait, and this server ended none in the last minute"]);
  assert.deepEqual(await said({ ...look, waiting: 2 }), [], "a minute was not seen yet");
  // Tries that failed and are made again are not among the messages that failed.
  assert.deepEqual(await said({ ...look, retried: 6 }), ["messages?show=IN_PROGRESS: 6 of 6 tries failed in the last minute"]);
  assert.deepEqual(await said({ ...look, retried: 6, failed: 1 }), ["messages?show=FAILED: 7 of 7 tries failed in the last minute"]);
});

there.close();
console.log("notes: all well");
