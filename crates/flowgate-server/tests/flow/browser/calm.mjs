// With more keys than a page has: the busiest are first as they become so, nothing moves under the hand of who is about to act, and what
// was not looked at is not taken for nothing.

import assert from "node:assert/strict";
import { api, base, browse, endpoint, flow, go, logIn, publish, reads, row, text, until } from "./browser.mjs";

const there = await endpoint();
const send = (all) => api("POST", "/v2/batch", { "content-type": "application/json" }, JSON.stringify(all));
const line = (key, count) => send(Array.from({ length: count }, () => ({ destination: there.url("/hold"), headers: flow(key, "parallelism=1"), body: "x" })));
await send(Array.from({ length: 70 }, (_, index) => ({ destination: there.url("/ok"), headers: { ...flow(`tenant-${String(index).padStart(2, "0")}`, "parallelism=1"), "Upstash-Delay": "1h" }, body: "x" })));
await line("alpha", 4);

await browse(async (page) => {
  await logIn(page);
  const first = () => page.$eval("tbody tr", (tr) => tr.dataset.id).catch(() => "");
  await until("the busiest is first", async () => (await first()) === "alpha");
  await page.mouse.move(2, 2);

  // A look that says it was not about the keys of this page, for the page had just come, leaves their figures as they are; one that was
  // about them, and has nothing of them, says that they are idle.
  const told = (unseen) => {
    const totals = { at: Date.now(), inFlight: 4711, waiting: 0, delayed: 0, delivered: 0, retried: 0, failed: 0, spanMs: 1000, keys: 71, pausedKeys: 0, pinnedKeys: 0, dead: 0, isDeadMore: false, pausedQueues: 0, workers: 1 };
    return `event: sample\ndata: ${JSON.stringify({ totals, keys: {}, unseen })}\n\n`;
  };
  await page.setRequestInterception(true);
  let unseen = ["alpha"];
  const answer = (request) => {
    if (request.url().includes("/console/live?key=")) request.respond({ contentType: "text/event-stream", body: told(unseen) });
    else request.continue();
  };
  page.on("request", answer);
  await page.reload();
  await reads(page, "the look came", ".tile.flight", /4,711/);
  assert.match(await text(page, `${row("alpha")} td.flight`), /^1 \/ 1/);
  assert.match(await text(page, `${row("alpha")} td.wait`), /^3/);
  unseen = [];
  await reads(page, "nothing of it any more", `${row("alpha")} td.flight`, /^0 \/ 1/);
  page.off("request", answer);
  await page.setRequestInterception(false);
  await page.reload();
  await until("the busiest is first", async () => (await first()) === "alpha");

  // Another becomes the busiest while the page is open, and is seen without a click.
  await line("omega", 9);
  await until("who is busiest now is first now", async () => (await first()) === "omega");

  // With the mouse over the list the rows stay where they are; that there is another order is said, and shown when the hand is gone.
  await page.hover(`${row("omega")} [data-do=pause]`);
  await line("alpha", 20);
  await reads(page, "its figures go on", `${row("alpha")} td.wait`, /^2\d/);
  await page.waitForSelector("[data-do=fresh]:not([hidden])");
  assert.equal(await first(), "omega", "nothing moves under the mouse");
  await page.mouse.move(2, 2);
  await until("then the order is as it should be", async () => (await first()) === "alpha");
  assert.equal(await page.$("[data-do=fresh]:not([hidden])"), null);

  // A row that is kept for the hand above it, though it is no more among those of the page, is no picture: it goes on.
  await page.hover(`${row("alpha")} [data-do=pause]`);
  const last = await page.$eval("tbody tr:last-child", (tr) => tr.dataset.id);
  for (let next = 0; next < 10; next += 1) await line(`new-${next}`, 2);
  await reads(page, "ten others are busier", "[data-do=fresh]", /^10 new: show/);
  await api("POST", `/v2/flowControl/${last}/pause`);
  await reads(page, "it is paused, and says so", row(last), /paused/);
  await page.mouse.move(2, 2);

  // The log: what is new waits while a row has the focus, and comes by the button.
  await go(page, "messages");
  await page.mouse.move(2, 2);
  await until("the log", async () => (await page.$$("tbody tr")).length > 5);
  await page.keyboard.press("j");
  const chosen = await page.evaluate(() => document.activeElement.dataset.id);
  const { messageId } = await publish(there.url("/ok"));
  await reads(page, "something new is told", "[data-do=fresh]", /new: show/);
  assert.equal(await page.evaluate(() => document.activeElement.dataset.id), chosen, "the chosen row is still chosen");
  assert.ok(!(await text(page, "tbody")).includes(messageId));
  await page.click("[data-do=fresh]");
  await reads(page, "and is shown when it is wanted", "tbody", new RegExp(messageId));
  // By the keyboard as well, which is in the list afterwards.
  await page.keyboard.press("j");
  const later = await publish(there.url("/ok"));
  await page.waitForSelector("[data-do=fresh]:not([hidden])");
  await page.focus("[data-do=fresh]");
  await page.evaluate(() => new Promise((resolve) => setTimeout(() => requestAnimationFrame(resolve))));
  assert.ok(await page.$("[data-do=fresh]:not([hidden])"), "it is there for who comes to it");
  await page.keyboard.press("Enter");
  await reads(page, "it is shown", "tbody", new RegExp(later.messageId));
  assert.equal(await page.evaluate(() => document.activeElement.tagName), "TR", "the focus is in the list");

  // A message that will be tried again, read again and again meanwhile: what was opened stays open, and the focus where it is.
  const asked = async (path) => page.waitForResponse((response) => response.url().includes(path));
  const fails = await publish(there.url("/broken/later"), { "Upstash-Retries": "1", "Upstash-Retry-Delay": "3600000" });
  await page.goto(`${base}/console/messages/${fails.messageId}`);
  await reads(page, "it is tried again later", ".entries", /next try in/);
  await page.waitForSelector(".entries details summary");
  await page.$eval(".entries details summary", (summary) => { summary.focus(); summary.click(); });
  for (let turn = 0; turn < 2; turn += 1) await asked("/events");
  await until("it is drawn", async () => (await page.$$(".entries details")).length > 0);
  assert.equal(await page.$eval(".entries details", (details) => details.open), true, "it stays open");
  assert.equal(await page.evaluate(() => document.activeElement.tagName), "SUMMARY", "and has the focus");

  // So has a link among those who wait for a key.
  await page.goto(`${base}/console/keys/alpha`);
  await page.waitForSelector(".columns section:last-child tbody a");
  await page.focus(".columns section:last-child tbody a");
  const link = await page.evaluate(() => document.activeElement.href);
  for (let turn = 0; turn < 2; turn += 1) await asked("/data/key?");
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
  assert.equal(await page.evaluate(() => document.activeElement.href), link, "the focus is where it was");

  // An answer that comes behind a later one is not shown over it.
  await api("POST", "/v2/queues", { "content-type": "application/json" }, '{"queueName": "invoices", "parallelism": 2}');
  await go(page, "queues");
  await page.waitForSelector(`${row("invoices")} [data-do=pause]`);
  const body = await page.evaluate(() => fetch("/console/data/queues").then((told) => told.text()));
  const held = [];
  let isPast = false;
  const hold = (request) => {
    if (request.url().endsWith("/console/data/queues") && (isPast || held.length === 0)) held.push(request);
    else request.continue();
  };
  await page.setRequestInterception(true);
  page.on("request", hold);
  await until("one is asked", () => held.length > 0);
  await api("POST", "/v2/queues/invoices/pause");
  await reads(page, "the later answer", row("invoices"), /paused/);
  isPast = true;
  await held.shift().respond({ contentType: "application/json", body });
  await page.evaluate(() => fetch("/console/session").then((told) => told.text()));
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
  assert.match(await text(page, row("invoices")), /paused/, "it is still paused");
  page.off("request", hold);
  for (const request of held) await request.continue();
  await page.setRequestInterception(false);
});

there.close();
console.log("calm: all well");
