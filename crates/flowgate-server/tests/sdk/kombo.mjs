// The vendor's own SDK against the gateway: the 429 as its typed error, a retry that succeeds, both headers seen.
//
// Usage: node kombo.mjs <path of the flowgate binary> <an empty directory>

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import readline from "node:readline";

import { HTTPClient, Kombo } from "@kombo-api/sdk";
import { KomboAtsError } from "@kombo-api/sdk/models/errors";

const [binary, directory] = process.argv.slice(2);

setTimeout(() => {
  console.error("kombo: took too long");
  process.exit(1);
}, 60_000).unref();

// The integrated tool: it answers when it is told to.
const held = [];
let seen = 0;
const upstream = http.createServer((request, response) => {
  seen += 1;
  request.resume();
  const success = { status: "success", data: {}, warnings: [] };
  const answer = () => {
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify(success));
  };
  if (request.method === "GET") answer();
  else held.push(answer);
});
upstream.listen(0, "127.0.0.1");
await once(upstream, "listening");

const config = path.join(directory, "flowgate.toml");
writeFileSync(
  config,
  `[server]
listen = "127.0.0.1:0"

[gateway]
listen = "127.0.0.1:0"
upstreams = ["http://127.0.0.1:${upstream.address().port}"]
unlisted = "pass"

[[gateway.route]]
name = "unified-actions"
path = "/ats/{*action}"
methods = ["POST"]
key = { header = "X-Integration-Id" }
rate = { limit = 1000, period = "1m" }

[[gateway.route.override]]
key = "fragile:1"
max = 2
`,
);
const server = spawn(binary, ["serve", "--store", "sqlite::memory:", "--config", config], { stdio: ["ignore", "pipe", "inherit"] });
process.on("exit", () => server.kill("SIGKILL"));
const gateway = await new Promise((resolve, reject) => {
  server.on("exit", (code) => reject(new Error(`flowgate ended with ${code}`)));
  readline.createInterface({ input: server.stdout }).on("line", (line) => {
    const address = /gateway.*(http:\/\/127\.0\.0\.1:\d+)/.exec(line);
    if (address) resolve(address[1]);
  });
});
server.removeAllListeners("exit");

// A client that remembers what came back, and may wait for it.
function client(integration, options = {}) {
  const answers = [];
  const waiting = [];
  const recording = new HTTPClient();
  recording.addHook("response", (response) => {
    const { status, headers } = response;
    answers.push({ status, limit: headers.get("concurrency-limit"), remaining: headers.get("concurrency-remaining"), rate: headers.get("ratelimit-remaining") });
    waiting.splice(0).forEach((wake) => wake());
  });
  const kombo = new Kombo({ api_key: "test", integration_id: integration, server_url: gateway, http_client: recording, ...options });
  const note = () => kombo.ats.addApplicationNote({ application_id: "a1", body: { content: "hello", content_type: "PLAIN_TEXT" } });
  const answered = () => new Promise((resolve) => waiting.push(resolve));
  return { kombo, note, answers, answered };
}

async function until(what, isSo) {
  while (!isSo()) await new Promise((resolve) => setImmediate(resolve));
  return what;
}

// Two actions are in flight: the cap of this integration.
const busy = client("fragile:1");
const first = busy.note();
const second = busy.note();
await until("both are at the upstream", () => held.length === 2);

// The third is refused at once, with the typed error, and never reaches the upstream.
const refused = await busy.note().then(
  () => assert.fail("the third action was let in"),
  (error) => error,
);
assert.ok(refused instanceof KomboAtsError, `${refused.name}: ${refused.message}`);
assert.equal(refused.statusCode, 429);
assert.equal(refused.error.code, "PLATFORM.CONCURRENCY_LIMIT_EXCEEDED");
assert.equal(refused.error.title, "Concurrency limit exceeded.");
assert.equal(refused.error.message, "Maximum concurrent action requests per integration is 2. Currently 2 in flight.");
assert.equal(refused.error.log_url, null);
assert.equal(refused.headers.get("concurrency-limit"), "2");
assert.equal(refused.headers.get("concurrency-remaining"), "0");
assert.equal(refused.headers.get("ratelimit-limit"), "1000");
assert.equal(refused.headers.get("ratelimit-remaining"), "998", "a refused action spends nothing of the rate");
assert.equal(seen, 2);

// Reads are not limited, and neither are other integrations.
const other = client("sturdy:2");
const others = other.note();
await until("another integration is let in", () => held.length === 3);

// With the SDK's own retries, the refused action succeeds once a slot is free.
const retry_config = { strategy: "backoff", backoff: { initialInterval: 50, maxInterval: 200, exponent: 1.5, maxElapsedTime: 30_000 }, retryConnectionErrors: false };
const patient = client("fragile:1", { retry_config });
const retried = patient.note();
await patient.answered();
assert.equal(patient.answers[0].status, 429);
held.splice(0).forEach((answer) => answer());
await Promise.all([first, second, others]);
await until("the retry is at the upstream", () => held.length === 1);
held.splice(0).forEach((answer) => answer());
assert.equal((await retried).status, "success");
const last = patient.answers.at(-1);
assert.deepEqual({ status: last.status, limit: last.limit, remaining: last.remaining }, { status: 200, limit: "2", remaining: "1" });
assert.equal(other.answers[0].limit, "30", "the default");

server.kill("SIGTERM");
upstream.close();
console.log("kombo: all well");
