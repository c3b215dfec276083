// An express server that has workflows, and sees every delivery that comes to them.

import express from "express";
import { Client } from "@upstash/workflow";

export const client = new Client({ baseUrl: process.env.QSTASH_URL, token: process.env.QSTASH_TOKEN });

/** `routes(app)` mounts the workflows. What is counted is counted here, at the door. */
export async function endpoint(routes) {
  const app = express();
  const calls = [];
  const inFlight = {};
  const most = {};
  app.use((request, response, next) => {
    const path = request.path;
    calls.push({ at: Date.now(), path, headers: request.headers });
    inFlight[path] = (inFlight[path] ?? 0) + 1;
    most[path] = Math.max(most[path] ?? 0, inFlight[path]);
    response.on("close", () => (inFlight[path] -= 1));
    next();
  });
  app.use(express.json({ limit: "50mb" }));
  app.use(express.text());
  routes(app);
  const server = await new Promise((ready) => {
    const server = app.listen(0, "127.0.0.1", () => ready(server));
  });
  const url = `http://127.0.0.1:${server.address().port}`;
  return { url, calls, most, of: (path) => calls.filter((call) => call.path === path) };
}

/** Asks until it gives something that is not false. */
export async function until(what, ask, ms = 60_000) {
  const deadline = Date.now() + ms;
  for (;;) {
    const found = await ask();
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`${what}: not in time`);
    await new Promise((done) => setTimeout(done, 20));
  }
}

/** The one run of this id, as the server tells it. */
export async function log(workflowRunId) {
  const { runs } = await client.logs({ filter: { workflowRunId } });
  return runs[0];
}

/** Waits until a run is in this state. */
export async function reached(workflowRunId, state) {
  let last;
  const found = await until(`${workflowRunId} is ${state}`, async () => {
    last = await log(workflowRunId);
    return last?.workflowState === state && last;
  }).catch((error) => {
    throw new Error(`${error.message}; last ${JSON.stringify(last, null, 1)}`);
  });
  return found;
}

export async function api(method, path, { headers = {}, body } = {}) {
  const authorization = { Authorization: `Bearer ${process.env.QSTASH_TOKEN}` };
  const answer = await fetch(`${process.env.QSTASH_URL}${path}`, { method, headers: { ...authorization, ...headers }, body });
  const text = await answer.text();
  let json;
  try {
    json = JSON.parse(text);
  } catch {
    json = undefined;
  }
  return { status: answer.status, text, json };
}

export function patience(name, ms) {
  setTimeout(() => {
    console.error(`${name}: took too long`);
    process.exit(1);
  }, ms).unref();
}
