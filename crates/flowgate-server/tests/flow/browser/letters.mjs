// Many dead letters: found by their key, sent again or deleted all at once, and not only those of one page.

import assert from "node:assert/strict";
import { api, base, browse, endpoint, flow, logIn, reads, text, until } from "./browser.mjs";

const there = await endpoint();
const send = async (key, path, count) => {
  const entry = { destination: there.url(path), headers: { ...flow(key, "parallelism=50"), "Upstash-Retries": "0" }, body: "x" };
  await api("POST", "/v2/batch", { "content-type": "application/json" }, JSON.stringify(Array.from({ length: count }, () => entry)));
};
const left = async (params = "") => (await api("GET", `/v2/dlq?count=1000${params}`)).messages.length;
await send("orders", "/fail/orders", 130);
await send("mail", "/fail/mail", 70);
await until("all have failed", async () => (await left()) === 200);

await browse(async (page) => {
  await logIn(page);
  const rows = async () => (await page.$$("tbody tr")).length;
  await page.goto(`${base}/console/letters`);
  await until("a page of them", async () => (await rows()) === 50);
  await reads(page, "what the endpoint said is told", "tbody", /answered 500: .*the warehouse is closed/);

  // Those of a key: of a page, or all of them, and no others.
  await page.type(".search", "key:mail");
  await until("those of one key", async () => (await rows()) === 50 && !/orders/.test(await text(page, "tbody")));
  await page.click("[data-do=delete-all]");
  await page.waitForSelector("dialog [data-do=confirm-page]");
  await page.click("dialog [data-do=confirm-page]");
  await until("the rest of them", async () => (await rows()) === 20);
  assert.deepEqual([await left("&flowControlKey=mail"), await left()], [20, 150]);
  await page.click("[data-do=delete-all]");
  await reads(page, "one page has all", "dialog", /Delete all 20/);
  await page.keyboard.press("Escape");
  await until("nobody said yes", async () => (await page.$("dialog")) === null);
  assert.equal(await left(), 150);

  // One of them from its own page, which becomes that of the message that is sent.
  const one = (await api("GET", "/v2/dlq?count=1&flowControlKey=mail")).messages[0].messageId;
  await page.goto(`${base}/console/messages/${one}`);
  await page.waitForSelector(".tools [data-do=retry]");
  await page.click(".tools [data-do=retry]");
  await until("the page of the new message", async () => /\/messages\/msg_/.test(page.url()) && !page.url().endsWith(one));
  await until("which fails as well", async () => (await left("&flowControlKey=mail")) === 20);
  assert.equal((await api("GET", `/v2/dlq?messageId=${one}`)).messages.length, 0);
  await page.goto(`${base}/console/letters?q=nothing`);
  await reads(page, "no letter is like that", ".empty", /No dead letter matches/);

  // All of them are sent again, once the endpoint is well.
  await page.click(".search");
  await page.keyboard.press("Escape");
  await until("all again", async () => (await rows()) === 50);
  await reads(page, "they are counted", ".nav-item[data-page=letters]", /150/);
  there.state.isWell = true;
  const came = there.state.came;
  await page.click("[data-do=retry-all]");
  await reads(page, "that it is about all", "dialog", /Send all of them/);
  await page.click("dialog [data-do=confirm]");
  await reads(page, "and how many it were", ".toasts", /150 sent again/);
  await reads(page, "none is left", ".empty", /No dead letters/);
  await until("each came once more", () => there.state.came === came + 150);
  assert.equal(await left(), 0);
});

there.close();
console.log("letters: all well");
