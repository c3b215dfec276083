// The server goes away and comes back: what is old is said to be old, nothing is said that is not known, and all goes on by itself.

import assert from "node:assert/strict";
import net from "node:net";
import { api, base, browse, endpoint, flow, publish, reads, row, text, token, until } from "./browser.mjs";

const there = await endpoint();
const { messageId } = await publish(there.url("/hold/orders"), flow("orders", "parallelism=2"));

// A way to the server that can be cut. It keeps its port meanwhile, which somebody else could be given.
const { hostname, port } = new URL(base);
const open = new Set();
let isCut = false;
const way = net.createServer((near) => {
  if (isCut) return near.destroy();
  const far = net.connect(Number(port), hostname);
  for (const [one, other] of [[near, far], [far, near]]) {
    open.add(one);
    one.pipe(other);
    one.on("error", () => {});
    one.on("close", () => { open.delete(one); other.destroy(); });
  }
});
const cut = () => { isCut = true; for (const one of open) one.destroy(); };
await new Promise((resolve) => way.listen(0, "127.0.0.1", resolve));
const at = way.address().port;

await browse(async (page) => {
  const wrong = [];
  page.removeAllListeners("console");
  page.on("pageerror", (error) => wrong.push(error.message));
  await page.evaluateOnNewDocument(() => {
    window.streams = [];
    window.EventSource = class extends EventSource { constructor(to) { super(to); window.streams.push(this); } };
  });
  await page.goto(`http://127.0.0.1:${at}/console`);
  await page.waitForSelector("#token");
  await page.type("#token", token);
  await page.keyboard.press("Enter");
  await reads(page, "it is live", ".state", /Live/);
  await reads(page, "one is in flight", `${row("orders")} td.flight`, /^1 \/ 2/);
  assert.equal(await page.$(".away:not([hidden])"), null);

  // Gone: said in words with the time, and the figures stay, but not as if they were of now.
  cut();
  await reads(page, "that it is gone, and since when", ".away", /cannot be reached[\s\S]*\d\d:\d\d:\d\d/);
  await reads(page, "the figures stay", `${row("orders")} td.flight`, /^1 \/ 2/);
  assert.match(await page.$eval("main", (main) => getComputedStyle(main).filter), /grayscale/);
  // A stream that is open again, and has told nothing yet, makes nothing of it newer.
  const opened = await page.evaluate(() => {
    window.streams.at(-1).dispatchEvent(new Event("open"));
    return [document.querySelector(".state").textContent, document.querySelector(".away").hidden];
  });
  assert.deepEqual(opened, ["Offline", false]);

  // Pages that are opened meanwhile say that they cannot be read, not that there is nothing.
  const visit = (path) => page.evaluate((to) => { history.pushState(null, "", to); dispatchEvent(new PopStateEvent("popstate")); }, `/console/${path}`);
  for (const path of [`messages/${messageId}`, "keys/orders", "runs/wfr_1", "keys", "messages", "runs", "letters", "schedules", "queues", "gateway"]) {
    await visit(path);
    await reads(page, `${path} says what is the matter`, "main", /cannot be read[\s\S]*cannot be reached/);
    assert.doesNotMatch(await text(page, "main"), /There is no such|No keys yet|No messages yet|No schedules\b|No dead letters/, path);
  }

  // Back: the page that could not be read is read, and all is live again, without a click.
  await visit("letters");
  await reads(page, "not to be read", "main", /cannot be read/);
  isCut = false;
  await reads(page, "it is live again", ".state", /Live/);
  await reads(page, "and the page is there", "main", /No dead letters/);
  assert.equal(await page.$(".away:not([hidden])"), null);
  there.release(1);
  await visit("keys");
  await reads(page, "with what happened meanwhile", `${row("orders")} td.flight`, /^0 \/ 2/);
  assert.deepEqual(wrong, []);
});

way.close();
for (const one of open) one.destroy();
there.close();
console.log("away: all well");
