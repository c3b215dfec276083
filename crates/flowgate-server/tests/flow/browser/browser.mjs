// A real browser, an endpoint that receives deliveries, and words for what the scripts do with both.

import assert from "node:assert/strict";
import http from "node:http";
import puppeteer from "puppeteer-core";

export const base = process.env.FLOWGATE_URL;
export const token = process.env.FLOWGATE_TOKEN;
const DEADLINE = 60_000;

// Asks until it holds. Between two questions the event loop goes on.
export async function until(what, holds, within = DEADLINE) {
  const end = Date.now() + within;
  for (;;) {
    const found = await holds();
    if (found) return found;
    assert.ok(Date.now() < end, `${what}: not in time`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export async function api(method, path, headers = {}, body) {
  const response = await fetch(base + path, { method, headers: { authorization: `Bearer ${token}`, ...headers }, body });
  const text = await response.text();
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`);
  return text === "" ? null : JSON.parse(text);
}

export const flow = (key, value) => ({ "Upstash-Flow-Control-Key": key, "Upstash-Flow-Control-Value": value });
export const publish = (url, headers = {}, body = '{"order": 4711}') => api("POST", `/v2/publish/${url}`, { "content-type": "application/json", ...headers }, body);

// What it is sent it holds until it is told to answer; `/fail/…` it refuses, until it is told that all is well;
// `/broken/…` it always refuses, and says nothing of when to come again; `/after/500/…` it answers after so many milliseconds.
export async function endpoint() {
  const held = [];
  const state = { came: 0, isWell: false };
  const server = http.createServer((request, response) => {
    request.resume();
    state.came += 1;
    const [, what, span] = request.url.split("/");
    if (what === "fail" && !state.isWell) {
      response.writeHead(500, { "retry-after": "0", "content-type": "application/json" });
      response.end('{"error": "the warehouse is closed"}');
    } else if (what === "broken") {
      response.writeHead(500);
      response.end("the warehouse is on fire");
    } else if (what === "hold") held.push(response);
    else if (what === "after") setTimeout(() => response.end("done"), Number(span));
    else response.end("done");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    state,
    url: (path) => `http://127.0.0.1:${server.address().port}${path}`,
    inFlight: () => held.length,
    release: (count) => held.splice(0, count).forEach((response) => response.end("done")),
    close: () => { held.splice(0).forEach((response) => response.end("done")); server.closeAllConnections(); server.close(); },
  };
}

// A browser of its own. What a page says goes wrong, fails the script at its end, but for what is expected.
export async function browse(work, expected = /401/) {
  const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
  const wrong = [];
  try {
    const page = await browser.newPage();
    page.setDefaultTimeout(DEADLINE);
    await page.setViewport({ width: 1280, height: 820 });
    page.on("pageerror", (error) => wrong.push(error.message));
    page.on("console", (message) => { const said = `${message.text()}: ${message.location().url}`; if (message.type() === "error" && !expected.test(said)) wrong.push(said); });
    await work(page, browser);
    assert.deepEqual(wrong, [], "the page had nothing to complain of");
  } finally {
    await browser.close();
  }
}

export async function logIn(page) {
  await page.goto(`${base}/console`);
  await page.waitForSelector("#token");
  await page.type("#token", token);
  await page.keyboard.press("Enter");
  await page.waitForSelector(".nav");
}

export const go = async (page, name) => {
  await page.click(`.nav-item[data-page=${name}]`);
  await page.waitForSelector(`.nav-item[data-page=${name}][aria-current=page]`);
};

export const text = (page, selector) => page.$eval(selector, (node) => node.innerText).catch(() => "");
export const reads = (page, what, selector, wanted) => until(what, async () => wanted.test(await text(page, selector)));
export const row = (id) => `tr[data-id="${id}"]`;
