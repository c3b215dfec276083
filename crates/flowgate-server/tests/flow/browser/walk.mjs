// An operator's walk: log in, watch a key fill, pause it, see deliveries stop, resume, pin, ask why, retry a dead letter.

import assert from "node:assert/strict";
import { checkout } from "./checkout.mjs";
import { api, base, browse, endpoint, flow, go, logIn, publish, reads, row, text, token, until } from "./browser.mjs";

const there = await endpoint();
const shop = await checkout();

await browse(async (page) => {
  // A wrong token is told so, and opens nothing.
  await page.goto(`${base}/console/keys`);
  await page.waitForSelector("#token");
  await page.type("#token", "not-a-token");
  await page.keyboard.press("Enter");
  await reads(page, "a wrong token is refused", ".wrong", /does not know this token/);
  await logIn(page);
  const cookies = (await page.cookies(`${base}/console`)).filter(({ name }) => name === "flowgate_console");
  assert.equal(cookies.length, 1);
  assert.ok(cookies[0].httpOnly && cookies[0].sameSite === "Strict" && cookies[0].path === "/console");
  assert.ok(!page.url().includes(token), "no secret in the address");
  assert.ok(!(await page.evaluate(() => document.cookie)).includes("flowgate"), "no script sees the cookie");

  // Nothing yet, and a way to begin.
  await reads(page, "an empty state", ".empty", /No keys yet/);

  // A key fills as it happens: two in flight, three in line.
  for (let sent = 0; sent < 5; sent += 1) await publish(there.url("/hold/orders"), flow("orders", "parallelism=2,rate=90,period=1m"));
  const orders = row("orders");
  await reads(page, "two are in flight", `${orders} td.flight`, /^2 \/ 2/);
  await reads(page, "three wait", `${orders} td.wait`, /^3/);
  await until("the endpoint has two", () => there.inFlight() === 2);

  // Paused: those in flight end, and nothing else comes to the endpoint.
  await page.click(`${orders} [data-do=pause]`);
  await reads(page, "it is shown as paused", `${orders} td.name`, /paused/);
  assert.equal((await api("GET", "/v2/flowControl/orders")).isPaused, true);
  there.release(2);
  await reads(page, "nothing is in flight", `${orders} td.flight`, /^0 \/ 2/);
  await reads(page, "three still wait", `${orders} td.wait`, /^3/);
  assert.equal(there.state.came, 2, "deliveries have stopped");

  // Why does it wait? The pause is named, and what would end it.
  await page.click(`${orders} [data-do=why]`);
  await reads(page, "the pause is named", "dialog .verdict", /key orders is paused/);
  await reads(page, "and what would help", "dialog .help", /flowgate key resume orders/);
  await page.keyboard.press("Escape");
  await until("the dialog is closed", async () => (await page.$("dialog")) === null);

  // Resumed, by the keyboard: the search finds it, the row is chosen, `p` resumes.
  await page.keyboard.press("/");
  await page.keyboard.type("ORD");
  await page.keyboard.press("Enter");
  await until("the search has found it", async () => (await page.$$("tbody tr")).length === 1);
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("j");
  await page.keyboard.press("p");
  await until("deliveries go on", () => there.inFlight() === 2);
  await reads(page, "and it is shown", `${orders} td.flight`, /^2 \/ 2/);

  // Enter opens the key: who holds the slots, who waits, and the limits.
  await page.keyboard.press("Enter");
  await reads(page, "the key's own page", "h1", /^orders$/);
  await until("its holders are listed", async () => (await page.$$(".columns section:first-child tbody tr")).length === 2);
  await until("its line is listed", async () => (await page.$$(".columns section:last-child tbody tr")).length === 1);

  // Pinned to three: the third starts at once.
  await page.click(".tools [data-do=pin]");
  await page.waitForSelector("dialog input[name=parallelism]");
  await page.$eval("dialog input[name=parallelism]", (input) => { input.value = "3"; });
  await page.click("dialog [data-do=submit]");
  await until("the third has started", () => there.inFlight() === 3);
  assert.equal((await api("GET", "/v2/flowControl/orders")).isPinnedRate, false, "the rate of the messages is not pinned");
  await reads(page, "it is shown as pinned", ".page-title", /pinned/);
  await reads(page, "three of three", ".tile.flight", /3\s*of 3/);
  await page.click(".tools [data-do=unpin]");
  await until("the pin is gone", async () => !(await api("GET", "/v2/flowControl/orders")).isPinnedParallelism);
  there.release(3);

  // A dead letter, sent again once the endpoint is well.
  const { messageId } = await publish(there.url("/fail/warehouse"), { "Upstash-Retries": "0" });
  await go(page, "letters");
  await reads(page, "the letter is there, and why", "tbody", /warehouse[\s\S]*answered 500/);
  there.state.isWell = true;
  const came = there.state.came;
  await page.click("tbody tr [data-do=retry]");
  await until("it was delivered again", () => there.state.came === came + 1);
  await reads(page, "and is no dead letter any more", ".empty", /No dead letters/);

  // Its log, from its first moment to its end.
  await page.keyboard.press("3");
  await reads(page, "the log", "h1", /^Messages$/);
  await page.click(".search");
  await page.keyboard.type(messageId);
  await page.keyboard.press("Enter");
  await until("only this message", async () => (await page.$$eval("tbody tr", (rows, id) => rows.length > 1 && rows.every((tr) => tr.dataset.id.startsWith(`${id}/`)), messageId)) && /failed/.test(await text(page, "tbody")));
  await page.click("tbody tr a.link");
  await reads(page, "its story", ".entries", /failed[\s\S]*created/);

  // One that waits can be cancelled.
  const waits = await publish(there.url("/hold/later"), { "Upstash-Delay": "1h" });
  await page.goto(`${base}/console/messages/${waits.messageId}`);
  await page.waitForSelector(".tools [data-do=why]");
  await page.click(".tools [data-do=why]");
  await reads(page, "the delay is named", "dialog .verdict", /it is delayed for another 59 min/);
  await page.keyboard.press("Escape");
  await page.click(".tools [data-do=cancel]");
  await page.waitForSelector("dialog [data-do=confirm]");
  await page.click("dialog [data-do=confirm]");
  await reads(page, "it is cancelled", ".page-title", /cancelled/);

  // Runs: none yet; then one, whose timeline grows while it goes on, and one that fails.
  await go(page, "runs");
  await reads(page, "an empty state", ".empty", /No runs yet/);
  const run = await shop.trigger({ order: 4711, naps: 12 });
  await reads(page, "the run is listed", row(run), /running/);
  await page.click(`${row(run)} a.link`);
  await reads(page, "its first step", ".timeline", /reserve-stock/);
  await reads(page, "steps side by side", ".step.parallel", /charge-card|render-invoice|notify-crm/);
  await reads(page, "it is done", ".page-title", /done/);
  const steps = await page.$$eval(".timeline .step-name b", (names) => names.map((name) => name.textContent));
  assert.deepEqual([steps[0], steps[1], steps.slice(2, 5).sort(), steps.slice(5)], ["init", "reserve-stock", ["charge-card", "notify-crm", "render-invoice"], ["wait-for-parcel", "confirm"]]);
  const spans = await page.$$eval(".timeline .span", (bars) => bars.map((bar) => bar.getBoundingClientRect()).map(({ left, right }) => [left, right]));
  assert.ok(spans[5][0] >= Math.max(...spans.slice(2, 5).map(([, right]) => right)) - 1, "the sleep begins when all three have ended");
  assert.ok(spans[5][1] - spans[5][0] > spans[1][1] - spans[1][0], "and is longer than the first step");
  const wakes = await page.evaluate(async () => (await import("/console/assets/page-runs.js")).wakesAt({ createdAt: 5, sleepFor: "2s500ms" }));
  assert.equal(wakes, 2505, "a sleep may have milliseconds");
  const failed = await shop.trigger({ order: 4712, fails: true });
  await go(page, "runs");
  await reads(page, "the other has failed", row(failed), /failed/);
  await page.click("[aria-label='Which runs'] [data-value=RUN_FAILED]");
  await until("those that did not fail are left out", async () => (await page.$(row(run))) === null);
  await reads(page, "those that did are not", row(failed), /failed/);
  await page.click(`${row(failed)} a.link`);
  await reads(page, "and says why", ".timeline", /1 failed try/);
  await reads(page, "for all of it", ".facts", /Why it failed/);
  await page.click(".tools [data-do=restart]");
  await reads(page, "what is done is done twice", "dialog", /done twice/);
  await page.click("dialog [data-do=confirm]");
  await until("it is begun again, on a page of its own", async () => /\/runs\/wfr_/.test(page.url()) && !page.url().endsWith(failed));

  // The theme that is chosen stays.
  await page.click("[data-do=theme]");
  const chosen = await page.evaluate(() => document.documentElement.dataset.theme);
  await page.reload();
  await page.waitForSelector(".nav");
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), chosen);

  // Help, and the way to the content for those who do not use a mouse.
  await page.keyboard.press("?");
  await reads(page, "the help", "dialog", /move in a list/);
  await page.keyboard.press("Escape");
  await page.reload();
  await page.waitForSelector(".nav");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.className), "skip");

  // Logged out, nothing is shown and nothing is done.
  await page.click("[data-do=log-out]");
  await page.waitForSelector("#token");
  const answer = await page.evaluate(() => fetch("/console/data/keys").then((response) => response.status));
  assert.equal(answer, 401);
});

there.close();
shop.close();
console.log("walk: all well");
