// What was done in haste is undone, and what cannot be undone is asked for first.

import assert from "node:assert/strict";
import { api, base, browse, endpoint, flow, go, logIn, publish, reads, row, text, until } from "./browser.mjs";

const there = await endpoint();
for (let sent = 0; sent < 2; sent += 1) await publish(there.url("/hold"), flow("orders", "rate=1, period=1h"));
await api("POST", "/v2/flowControl/orders/pin?parallelism=3");
await publish(there.url("/hold"), flow("mail", "parallelism=1"));
await api("POST", `/v2/schedules/${there.url("/ok")}`, { "Upstash-Cron": "0 9 * * *", "Upstash-Schedule-Id": "report" });
await api("POST", "/v2/queues", { "content-type": "application/json" }, '{"queueName": "invoices", "parallelism": 2}');

await browse(async (page) => {
  await logIn(page);
  const key = () => api("GET", "/v2/flowControl/orders");
  const undone = async (what, said) => {
    await reads(page, what, ".toast:last-child", said);
    await page.click(".toast:last-child [data-do=undo]");
  };

  // A key: by the button where it is said, and by the keyboard.
  await page.waitForSelector(`${row("orders")} [data-do=pause]`);
  await page.click(`${row("orders")} [data-do=pause]`);
  await until("it is paused", async () => (await key()).isPaused);
  await undone("that it is paused is said", /orders is paused/);
  await until("it goes on", async () => !(await key()).isPaused);
  await reads(page, "that is said as well", ".toast:last-child", /orders goes on/);
  await page.keyboard.press("u");
  await until("paused again", async () => (await key()).isPaused);

  // Its pin.
  await page.goto(`${base}/console/keys/orders`);
  await page.waitForSelector(".tools [data-do=unpin]");
  await page.click(".tools [data-do=unpin]");
  await until("the pin is gone", async () => !(await key()).isPinnedParallelism);
  await undone("that is said", /own limits hold again/);
  await until("and is there again", async () => { const { isPinnedParallelism, parallelismMax } = await key(); return isPinnedParallelism && parallelismMax === 3; });

  await reads(page, "which is shown", ".page-title", /pinned/);
  await page.waitForSelector(".tools [data-do=unpin]");

  // What is not said any more is not undone by the keyboard either.
  const pushedOut = await page.evaluate(async () => {
    const { toast, undoLast } = await import("/console/assets/dialogs.js");
    let count = 0;
    toast("done", "well", () => { count += 1; });
    for (let more = 0; more < 4; more += 1) toast("and more");
    undoLast();
    return count;
  });
  assert.equal(pushedOut, 0, "a toast that was pushed out");

  // Its rate cannot be spent again: that is asked first, and whoever says no has changed nothing.
  await page.click(".tools [data-do=reset]");
  await reads(page, "what it does is said before", "dialog", /cannot be undone/);
  await page.keyboard.press("Escape");
  await until("the dialog is closed", async () => (await page.$("dialog")) === null);
  assert.equal((await key()).rateCount, 1, "nothing was reset");
  await page.click(".tools [data-do=reset]");
  await page.waitForSelector("dialog [data-do=confirm]");
  await page.click("dialog [data-do=confirm]");
  await until("a new period", async () => (await key()).rateCount === 0);

  // A pin that lets starts through evenly is that again.
  const mail = () => api("GET", "/v2/flowControl/mail");
  await api("POST", "/v2/flowControl/mail/pin?parallelism=3&rate=90&period=60&smooth=true");
  await page.goto(`${base}/console/keys/mail`);
  await page.waitForSelector(".tools [data-do=unpin]");
  await page.click(".tools [data-do=unpin]");
  await undone("that it is unpinned is said", /own limits hold again/);
  await until("it is pinned again", async () => (await mail()).isPinnedRate);
  const { rateMax, ratePeriod, isSmooth, parallelismMax } = await mail();
  assert.deepEqual([rateMax, ratePeriod, isSmooth, parallelismMax], [90, 60, true, 3]);

  // A schedule, and a FIFO queue.
  await go(page, "schedules");
  await page.waitForSelector(`${row("report")} [data-do=pause]`);
  await page.click(`${row("report")} [data-do=pause]`);
  await until("it is paused", async () => (await api("GET", "/v2/schedules/report")).isPaused);
  await undone("that is said", /report is paused/);
  await until("it goes on", async () => !(await api("GET", "/v2/schedules/report")).isPaused);
  await go(page, "queues");
  await page.waitForSelector(`${row("invoices")} [data-do=pause]`);
  await page.click(`${row("invoices")} [data-do=pause]`);
  await until("it is paused", async () => (await api("GET", "/v2/queues/invoices")).paused);
  await undone("that is said", /invoices is paused/);
  await until("it goes on", async () => !(await api("GET", "/v2/queues/invoices")).paused);
  assert.match(await text(page, row("invoices")), /invoices/);
});

there.close();
console.log("undo: all well");
