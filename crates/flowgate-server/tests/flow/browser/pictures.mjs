// Every page with something on it, in light and dark and on a phone. Pictures are kept where they are asked for.

import assert from "node:assert/strict";
import fs from "node:fs";
import { checkout } from "./checkout.mjs";
import { faintTexts } from "./contrast.mjs";
import { api, base, browse, endpoint, flow, go, publish, reads, row, text, until } from "./browser.mjs";

const folder = process.env.FLOWGATE_PICTURES;
const gateway = process.env.FLOWGATE_GATEWAY;
const there = await endpoint();
const shop = await checkout();
fs.mkdirSync(folder, { recursive: true });

const KEYS = [
  ["billing-jobs", "parallelism=1, rate=2, period=10s", 700],
  ["crm-sync", "parallelism=2", 2500],
  ["email-digest", "rate=5, period=30s", 300],
  ["media-processing", "parallelism=4, rate=10, period=1m", 3500],
  ["openai-gpt", "parallelism=8", 2500],
  ["search-index", "parallelism=16", 900],
  ["stripe-webhooks", "parallelism=20, rate=100, period=1m", 600],
  ["user-onboarding", "parallelism=5, rate=20, period=1m", 1500],
];
const load = async (count) => {
  const entry = ([key, limits, span]) => ({ destination: there.url(`/after/${span}/${key}`), headers: flow(key, limits), body: '{"customer": "acme"}' });
  const all = KEYS.flatMap((one, index) => Array.from({ length: count(index) }, () => entry(one)));
  await api("POST", "/v2/batch", { "content-type": "application/json" }, JSON.stringify(all));
};

await load(() => 16);
for (let sent = 0; sent < 4; sent += 1) await publish(there.url(`/fail/${sent}/orders`), { ...flow("warehouse", "parallelism=2"), "Upstash-Retries": "1" });
await api("POST", "/v2/flowControl/crm-sync/pause");
await api("POST", "/v2/flowControl/openai-gpt/pin?parallelism=12");
for (const [id, cron] of [["daily-report", "0 9 * * 1-5"], ["heartbeat", "* * * * *"], ["weekly-cleanup", "0 3 * * 0"]]) {
  await api("POST", `/v2/schedules/${there.url("/ok")}`, { "Upstash-Cron": cron, "Upstash-Schedule-Id": id });
}
for (let sent = 0; sent < 5; sent += 1) await api("POST", `/v2/enqueue/invoices/${there.url("/after/2500/invoice")}`, {}, "x");
await browse(async (page) => {
  // Bars are seen as they stand, not on their way there.
  await page.emulateMediaFeatures([{ name: "prefers-reduced-motion", value: "reduce" }]);
  await page.goto(`${base}/console`);
  await page.waitForSelector(row("billing-jobs"));
  const picture = async (name) => {
    for (const theme of ["light", "dark"]) {
      await page.evaluate((chosen) => { document.documentElement.dataset.theme = chosen; }, theme);
      await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
      await page.screenshot({ path: `${folder}/${name}-${theme}.png` });
      assert.deepEqual(await page.evaluate(faintTexts), [], `${name}, ${theme}: every text can be read`);
    }
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)) <= 0, `${name} is no wider than the window`);
  };
  // The lines of the last minute have something to show.
  const points = () => page.$eval(`${row("user-onboarding")} .spark .flight`, (path) => (path.getAttribute("d") ?? "").split("L").length);
  let fed = 0;
  const wave = (index) => Math.round([0.2, 0.4, 0.2, 0.3, 3, 9, 12, 0.5][index] * (1 + Math.sin(fed / (3 + index))) * 0.6);
  await until("looks to draw", async () => { if ((await points()) > fed) { fed += 1; await load(wave); } return fed >= Number(process.env.FLOWGATE_LOOKS); }, 240_000);
  await picture("flow-control");

  // Not by the mouse: rows move while nobody points at them.
  await page.$eval(`${row("media-processing")} a.strong`, (link) => link.click());
  await reads(page, "its page", "h1", /media-processing/);
  // Enough for its rate to be spent while some wait.
  await load((index) => (KEYS[index][0] === "media-processing" ? 14 : 0));
  await until("its line", async () => (await page.$$(".columns tbody tr")).length > 2);
  await reads(page, "its rate is spent", ".tile.wait", /rate spent/);
  await page.click(".tools [data-do=why]");
  await reads(page, "why", ".verdict", /spent/);
  await page.evaluate(() => scrollTo(0, 0));
  await picture("key");

  await go(page, "queues");
  await reads(page, "the worker", "main", /flowgate serve[\s\S]*invoices/);
  await picture("queues");
  await go(page, "messages");
  await reads(page, "the log", "tbody", /delivered/);
  await picture("messages");
  await go(page, "letters");
  await until("the letters", async () => (await page.$$("tbody tr")).length === 4);
  await picture("dead-letters");
  await page.click("tbody tr a.link");
  await reads(page, "a letter's story", ".entries", /failed/);
  await picture("message");
  await go(page, "schedules");
  await reads(page, "the schedules", "tbody", /weekly-cleanup/);
  await picture("schedules");
  await go(page, "runs");
  for (const order of [4711, 4712, 4713, 4714]) await shop.trigger({ order, fails: order === 4712, naps: order === 4714 ? 3600 : 2 });
  await until("runs of all sorts", async () => /done[\s\S]*failed|failed[\s\S]*done/.test(await text(page, "tbody")) && !/running[\s\S]*running/.test(await text(page, "tbody")));
  await picture("runs");
  await page.evaluate(() => [...document.querySelectorAll("tbody tr")].find((tr) => /done/.test(tr.innerText)).querySelector("a.link").click());
  await reads(page, "its timeline", ".timeline", /confirm/);
  await picture("run");
  // Four of one integration, of which three are let in, and one of another.
  for (const id of ["hris-1", "hris-1", "hris-1", "hris-1", "ats-7"]) fetch(`${gateway}/v1/actions/sync`, { method: "POST", headers: { "X-Integration-Id": id } }).catch(() => {});
  await go(page, "gateway");
  await reads(page, "who was refused", "main", /busy 1/);
  await reads(page, "who is in use", "main", /hris-1[\s\S]*3 \/ 3/);
  await picture("gateway");

  await page.setViewport({ width: 360, height: 740, deviceScaleFactor: 1.5 });
  for (const name of ["keys", "queues", "messages", "runs", "letters", "schedules", "gateway"]) {
    await page.evaluate((path) => { history.pushState(null, "", path); dispatchEvent(new PopStateEvent("popstate")); }, `/console/${name}`);
    await reads(page, name, "main", /\w/);
    await until(`${name} is drawn`, async () => (await text(page, "main")).length > 40);
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 360, `${name} fits a phone`);
    // Tables have no head there: a figure says itself what it is. And where one is, is seen.
    const bare = await page.$$eval(".list td.num, .list td.flight, .list td.rate", (cells) => cells.filter((cell) => cell.checkVisibility() && getComputedStyle(cell, "::before").content.length < 4).map((cell) => cell.innerText));
    assert.deepEqual(bare, [], `${name}: every figure has its name`);
    await until(`${name} is in sight`, () => page.$eval(".nav-item[aria-current=page]", (item) => { const { left, right } = item.getBoundingClientRect(); return left >= 0 && right <= innerWidth; }));
    if (name === "keys") { await page.waitForSelector(row("billing-jobs")); await page.evaluate(() => scrollTo(0, 0)); await picture("phone"); }
  }
});

there.close();
shop.close();
console.log("pictures: all well");
process.exit(0);
