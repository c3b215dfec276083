// What is out of the ordinary: names of any form, addresses that lead nowhere, a key that is idle again, a token that is revoked.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { api, base, browse, endpoint, flow, logIn, publish, reads, row, text, until } from "./browser.mjs";

const there = await endpoint();
const flowgate = (...words) => execFileSync(process.env.FLOWGATE_BIN, [...words, "--store", process.env.FLOWGATE_STORE], { encoding: "utf8" });

// A task's key may be any text; one of a message may be two dots, which a path cannot name.
const TASKS = ['<img src=x onerror="window.wasRun = true">', "a b/c?d#e%zz", "~home"];
for (const key of TASKS) flowgate("send", "none", "{}", "--key", key);
for (const key of ["..", "."]) await publish(there.url("/hold/dots"), flow(key, "parallelism=1"));

await browse(async (page, browser) => {
  await logIn(page);
  const find = (key) => until(`${key} is listed`, async () => {
    const rows = await page.$$("tbody tr");
    for (const one of rows) if ((await one.evaluate((tr) => tr.dataset.id)) === key) return one;
    return null;
  });
  for (const key of [...TASKS, "..", "."]) {
    await page.goto(`${base}/console/keys`);
    await (await (await find(key)).$("a")).click();
    await until(`the page of ${key}`, async () => (await page.$eval(".page-title h1", (title) => title.textContent).catch(() => "")) === key);
    await page.waitForSelector(".tools [data-do=pause]");
    await page.click(".tools [data-do=pause]");
    await reads(page, `${key} is paused`, ".page-title", /paused/);
    await page.click(".tools [data-do=why]");
    await reads(page, `why ${key} waits`, ".why .verdict", /paused|in use|nothing/i);
    await page.reload();
    await reads(page, `${key} is found by its address`, ".page-title", /paused/);
    await page.waitForSelector(".tools [data-do=pause]");
    await page.click(".tools [data-do=pause]");
    await until(`${key} goes on`, async () => !/paused/.test(await text(page, ".page-title")));
  }
  assert.equal(await page.evaluate(() => window.wasRun), undefined, "a name is text");

  // An address that cannot be decoded is no page, and not nothing at all.
  await page.goto(`${base}/console/%E0%A4%A`);
  await reads(page, "an address that is cut off", "main", /There is no such page/);

  // A key that has just been used is seen when it is idle again, and can be opened.
  const { messageId } = await publish(there.url("/well/idle"), flow("just-now", "parallelism=3"));
  await until("it was delivered", async () => (await api("GET", `/v2/events?messageIds=${messageId}`)).events.some(({ state }) => state === "DELIVERED"));
  await page.goto(`${base}/console/keys`);
  await reads(page, "it is listed", row("just-now"), /0 \/ 3/);
  await page.goto(`${base}/console/keys/just-now`);
  await reads(page, "and has a page", ".tile.flight", /0\s*of 3/);

  // Whoever is logged in with a token that is revoked is logged out, without a click.
  const second = flowgate("token", "create", "--name", "second").trim();
  const other = await (await browser.createBrowserContext()).newPage();
  await other.goto(`${base}/console/keys`);
  await other.waitForSelector("#token");
  await until("the server knows the new token", async () => {
    // The try before may be let in at this very moment: then the form is gone.
    await other.$eval("#token", (input, value) => { input.value = value; }, second).catch(() => {});
    await other.click("form .main").catch(() => {});
    return other.waitForSelector(".nav", { timeout: 500 }).catch(() => null);
  });
  await reads(other, "it is live", ".state", /Live/);
  const id = flowgate("token", "list").split("\n").find((line) => line.includes("second")).split(/\s+/)[0];
  flowgate("token", "revoke", id);
  await other.waitForSelector("#token");
  assert.equal(await other.$(".nav"), null, "nothing is left on the screen");
});

there.close();
console.log("strange: all well");
