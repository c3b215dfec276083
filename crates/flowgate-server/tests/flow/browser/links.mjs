// What a list shows is in its address: a link shows the same to somebody else, and the way back leads to it, to the row one came from.

import assert from "node:assert/strict";
import { api, base, browse, endpoint, flow, go, logIn, reads, row, text, until } from "./browser.mjs";

const there = await endpoint();
const entry = (key, path, headers = {}) => ({ destination: there.url(path), headers: { ...flow(key, "parallelism=1"), ...headers }, body: "x" });
const send = (all) => api("POST", "/v2/batch", { "content-type": "application/json" }, JSON.stringify(all));
await send(Array.from({ length: 60 }, (_, index) => entry(`tenant-${String(index).padStart(2, "0")}`, "/ok", { "Upstash-Delay": "1h" })));
await send([entry("orders", "/hold"), entry("orders", "/hold"), entry("mail", "/fail/1", { "Upstash-Retries": "0" }), entry("mail", "/fail/2", { "Upstash-Retries": "0" })]);
for (const key of ["tenant-07", "tenant-17"]) await api("POST", `/v2/flowControl/${key}/pause`);

await browse(async (page, browser) => {
  await logIn(page);
  const rows = () => page.$$eval("tbody tr", (all) => all.map((tr) => tr.dataset.id));
  const shows = (what, ...wanted) => until(what, async () => JSON.stringify(await rows()) === JSON.stringify(wanted));
  const asked = () => page.evaluate(() => location.pathname + location.search);

  // A search and a choice, and both again after a reload, and for who gets the link.
  await page.click("[aria-label='Which keys'] [data-value=paused]");
  await shows("those that are paused", "tenant-07", "tenant-17");
  await page.type(".search", "-17");
  await shows("one of them", "tenant-17");
  // A part of it may have been searched for before.
  await until("the address says it", async () => /^\/console(\/keys)?\?show=paused&q=-17$/.test(await asked()));
  await page.reload();
  await shows("the same after a reload", "tenant-17");
  assert.equal(await page.$eval(".search", (input) => input.value), "-17");
  assert.equal(await page.$eval("[data-value=paused]", (node) => node.getAttribute("aria-pressed")), "true");

  // Into the key, and back to the same list: by the link above it, by Escape, and by the browser.
  for (const back of [() => page.click("a.back"), () => page.keyboard.press("Escape"), () => page.goBack()]) {
    await page.click(`${row("tenant-17")} a.strong`);
    await reads(page, "its page", "h1", /^tenant-17$/);
    await back();
    await shows("the list as it was", "tenant-17");
  }

  // The navigation leads to the list as it is at first.
  await go(page, "keys");
  await until("all of them", async () => (await rows()).length === 50);
  assert.equal(await asked(), "/console/keys");

  // A page of a list has an address as well.
  await page.click("[aria-label='Which keys'] [data-value=all]");
  await until("by name", async () => (await rows())[0] === "mail");
  await page.keyboard.press("n");
  await until("the second page", async () => (await rows()).length < 50);
  const second = await rows();
  const link = page.url();
  const other = await browser.newPage();
  await other.goto(link);
  await until("the same page elsewhere", async () => JSON.stringify(await other.$$eval("tbody tr", (all) => all.map((tr) => tr.dataset.id))) === JSON.stringify(second));
  await other.click("[data-do=before]");
  await until("and before it the first", async () => (await other.$$("tbody tr")).length === 50);
  await other.close();

  // Whoever comes back is at the row they left, also without a mouse; whoever goes in is in the page, and not at the top of the window.
  const at = () => page.evaluate(() => document.activeElement.dataset.id ?? document.activeElement.id);
  await page.keyboard.press("b");
  await until("the first page", async () => (await rows()).length === 50);
  for (let pressed = 0; pressed < 8; pressed += 1) await page.keyboard.press("j");
  const chosen = await at();
  assert.match(chosen, /^tenant-/);
  await page.keyboard.press("Enter");
  await reads(page, "its page", "h1", new RegExp(`^${chosen}$`));
  assert.equal(await at(), "main");
  await page.keyboard.press("Escape");
  await until("the row one came from", async () => (await at()) === chosen);

  // A moment has its day and its zone, for those who are elsewhere.
  await page.emulateTimezone("Asia/Tokyo");
  await page.goto(`${base}/console/messages`);
  await page.waitForSelector("tbody td.when span");
  assert.match(await page.$eval("tbody td.when span", (cell) => cell.title), /\d{4}.*(GMT\+9|JST).* · \d{4}-\d\d-\d\dT[\d:.]+Z$/);
  assert.match(await text(page, ".rail-foot"), /Asia\/Tokyo/);
  await page.emulateTimezone();

  // The log, dead letters and schedules keep theirs as well.
  await page.goto(`${base}/console/messages?q=key%3Amail&show=FAILED`);
  await until("what failed of one key", async () => (await rows()).length === 2 && /failed[\s\S]*failed/.test(await text(page, "tbody")));
  await page.goto(`${base}/console/letters?q=fail%2F2`);
  await until("one letter", async () => (await rows()).length === 1 && /fail\/2/.test(await text(page, "tbody")));
  await page.goto(`${base}/console/schedules?q=nothing`);
  await reads(page, "no schedule", ".empty", /No schedules/);
});

there.close();
console.log("links: all well");
