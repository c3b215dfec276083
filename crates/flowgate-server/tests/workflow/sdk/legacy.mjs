// The workflow of the older client, which is in the package for messages: it says everything again with every step.

import assert from "node:assert/strict";
import http from "node:http";

import { Client } from "@upstash/qstash";
import { serve } from "@upstash/qstash/workflow";

import { client, patience, reached, until } from "./endpoint.mjs";

patience("legacy", 100_000);
console.warn = () => {};
const ran = {};
const count = (name) => (ran[name] = (ran[name] ?? 0) + 1);
const qstashClient = new Client({ baseUrl: process.env.QSTASH_URL, token: process.env.QSTASH_TOKEN });
const handler = serve(
  async (context) => {
    const first = await context.run("first", () => count("first") && context.requestPayload.text);
    await context.sleep("nap", 1);
    const both = await Promise.all([context.run("a", () => count("a") && 1), context.run("b", () => count("b") && 2)]);
    ran.result = [first, ...both];
    await context.run("last", () => count("last") && "done");
  },
  { qstashClient, receiver: undefined },
);
const answer = typeof handler === "function" ? handler : handler.handler;
const server = http.createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const url = `http://${request.headers.host}${request.url}`;
  const answered = await answer(new Request(url, { method: request.method, headers: request.headers, body: Buffer.concat(chunks) }));
  response.writeHead(answered.status, Object.fromEntries(answered.headers)).end(await answered.text());
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const url = `http://127.0.0.1:${server.address().port}/old`;

await qstashClient.publishJSON({ url, body: { text: "hi" } });
const run = await until("a run has begun", async () => (await client.logs()).runs[0]);
const ended = await reached(run.workflowRunId, "RUN_SUCCESS");
assert.deepEqual(ran.result, ["hi", 1, 2]);
assert.deepEqual([ran.first, ran.a, ran.b, ran.last], [1, 1, 1, 1]);
assert.deepEqual(ended.steps.map((group) => group.type), ["sequential", "sequential", "sequential", "parallel", "sequential"]);
console.log("all well");
process.exit(0);
