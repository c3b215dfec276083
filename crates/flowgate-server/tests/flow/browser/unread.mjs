// Limits that nobody can read: it is said where they hold back, and whoever sees it ends it there.

import assert from "node:assert/strict";
import { api, base, browse, logIn, reads, row } from "./browser.mjs";

await browse(async (page) => {
  await logIn(page);
  await reads(page, "a badge, and what waits for it", `${row("orders")}`, /limits unreadable\s[^]*\b2\s+limits unreadable/);
  assert.equal(await page.$eval(`${row("orders")} .badge.bad`, (badge) => badge.title), "max=5;turbo=3");
  await page.goto(`${base}/console/keys/orders`);
  await reads(page, "and on its own page, with what stands there", "main", /limits unreadable[^]*max=5;turbo=3/);
  await page.click(".tools [data-do=unpin]");
  await reads(page, "the messages' own limits hold", ".toast:last-child", /own limits hold again/);
  await page.waitForFunction(() => document.querySelector(".badge.bad") === null && document.querySelector(".tools [data-do=unpin]") === null);
  assert.equal((await api("GET", "/v2/flowControl/orders")).unread, undefined);
});

console.log("unread: all well");
