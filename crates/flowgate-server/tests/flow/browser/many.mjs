// With 100,000 keys: a page of them, a search and the next page are there within a second, and the page stays quick.

import assert from "node:assert/strict";
import { base, browse, logIn, reads, text, until } from "./browser.mjs";

const KEYS = Number(process.env.FLOWGATE_KEYS);
const median = (all) => all.sort((one, other) => one - other)[Math.floor(all.length / 2)];

await browse(async (page) => {
  await logIn(page);
  await until("the first page", async () => (await page.$$("tbody tr")).length === 50);
  await reads(page, "all of them are counted", ".segment[data-value=all]", new RegExp(KEYS.toLocaleString("en")));

  // From asking to the last byte, as the browser sees it.
  const took = (path) => page.evaluate(async (path) => {
    const spans = [];
    for (let turn = 0; turn < 5; turn += 1) {
      const began = performance.now();
      await (await fetch(path)).text();
      spans.push(performance.now() - began);
    }
    return spans;
  }, path);
  const figures = {};
  for (const [name, path] of Object.entries({
    first: "/console/data/keys",
    middle: "/console/data/keys?after=key-050000",
    search: "/console/data/keys?search=key-099",
    "rare search": "/console/data/keys?search=99999",
    "nothing found": "/console/data/keys?search=nowhere",
    busiest: "/console/data/keys?show=busiest",
    busy: "/console/data/keys?show=busy",
    paused: "/console/data/keys?show=paused",
  })) {
    figures[name] = Math.round(median(await took(path)));
    assert.ok(figures[name] < 1000, `${name}: ${figures[name]} ms`);
  }

  // From the key that is pressed to the row that is seen.
  const began = Date.now();
  await page.click(".search");
  await page.keyboard.type("99998");
  await until("the one that was searched for", async () => /key-099998/.test(await text(page, "tbody")) && (await page.$$("tbody tr")).length === 1);
  figures["search, typed and shown"] = Date.now() - began;
  await page.keyboard.press("Escape");
  await until("all again", async () => (await page.$$("tbody tr")).length === 50);
  // The busiest are first until it is told otherwise.
  await Promise.all([page.waitForResponse((answer) => answer.url().includes("show=all")), page.click(".segment[data-value=all]")]);
  await until("by name", async () => (await text(page, ".pager > span")).startsWith("key-000000 … key-000049"));
  await page.keyboard.press("n");
  await until("the next page", async () => /key-000050/.test(await text(page, "tbody")));
  await page.keyboard.press("b");
  await until("and back", async () => /key-000000/.test(await text(page, "tbody")));

  // While looks at all of them come in, no turn of the page's loop takes long.
  const lag = await page.evaluate(async () => {
    let worst = 0;
    const end = performance.now() + 3000;
    while (performance.now() < end) {
      const began = performance.now();
      await new Promise((resolve) => setTimeout(resolve, 0));
      worst = Math.max(worst, performance.now() - began);
    }
    return worst;
  });
  figures["worst turn of the loop"] = Math.round(lag);
  assert.ok(lag < 2000, `the page hung for ${lag} ms`);
  const told = Object.entries(figures).map(([name, ms]) => `${name} ${ms} ms`).join(", ");
  console.log(`many: ${KEYS} keys at ${base}: ${told}`);
});

console.log("many: all well");
