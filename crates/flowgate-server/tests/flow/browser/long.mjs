// Names and addresses as long as they may be, and a message that there is none of: nothing is wider than the window, and no
// card stands empty.

import assert from "node:assert/strict";
import { base, browse, endpoint, flow, logIn, publish, reads } from "./browser.mjs";

const there = await endpoint();
const KEY = "k".repeat(256);
const { messageId } = await publish(there.url(`/hold/${"p".repeat(6000)}`), flow(KEY, "parallelism=1000000000, rate=1000000000, period=7d"));

await browse(async (page) => {
  await logIn(page);
  const asked = [];
  page.on("request", (request) => asked.push(new URL(request.url()).pathname));
  for (const width of [1280, 700, 360]) {
    await page.setViewport({ width, height: 800 });
    for (const [path, words] of [[`messages/${messageId}`, /Key k+[\s\S]*created/], [`keys/${KEY}`, /Who holds the slots/], ["keys", /kkk/], ["messages", /started/]]) {
      await page.goto(`${base}/console/${path}`);
      await reads(page, path.slice(0, 12), "main", words);
      assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= width, `${path.slice(0, 12)} fits ${width}`);
      assert.ok((await page.$$eval("dd", (all) => all.every((one) => one.clientHeight < 400))), "no address fills the page");
    }
  }
  // One that is cancelled meanwhile is gone: its log tells of it all the same.
  assert.ok(!asked.includes(`/console/api/v2/messages/${messageId}`), "what the log has is asked of the log");
  await page.goto(`${base}/console/messages/msg_none`);
  await reads(page, "it is said that there is none", "main", /There is no such message/);
  assert.equal(await page.$eval("main .columns", (columns) => columns.checkVisibility()), false, "and nothing else is shown");
}, /401|404.*msg_none/s);

there.close();
console.log("long: all well");
