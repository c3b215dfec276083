// Many runs on one key: how many are in flight and how often they start is counted here, where they arrive.
// usage: load.mjs <runs> <steps> <parallelism> <rate>

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";

import { serve } from "@upstash/workflow/express";

import { client, endpoint, patience, until } from "./endpoint.mjs";

const [runs, steps, parallelism, rate] = process.argv.slice(2).map(Number);
patience("load", 280_000);
console.warn = console.error = () => {};
const executed = {};
let working = 0;
let most = 0;

const site = await endpoint((app) => {
  app.use(
    "/load",
    serve(
      async (context) => {
        const recorded = [];
        for (let step = 1; step <= steps; step += 1) {
          const value = await context.run(`s${step}`, async () => {
            working += 1;
            most = Math.max(most, working);
            await new Promise((done) => setTimeout(done, 15));
            working -= 1;
            const value = randomUUID();
            (executed[`${context.workflowRunId}/s${step}`] ??= []).push(value);
            return value;
          });
          recorded.push(value);
        }
        return recorded;
      },
      { verbose: undefined },
    ),
  );
});

const started = Date.now();
const flowControl = { key: "load", parallelism, rate, period: "1s" };
const url = `${site.url}/load`;
const begun = await client.trigger(Array.from({ length: runs }, () => ({ url, flowControl, retries: 20, retryDelay: "200" })));
const ids = begun.map((run) => run.workflowRunId);
console.log("begun");

const ended = {};
await until(
  "every run ends",
  async () => {
    for (const id of ids.filter((id) => !ended[id])) {
      try {
        const { runs } = await client.logs({ filter: { workflowRunId: id } });
        if (runs[0].workflowState === "RUN_STARTED") break;
        ended[id] = runs[0];
      } catch {
        break; // The server is being started again.
      }
    }
    return Object.keys(ended).length === runs;
  },
  270_000,
);
console.log("ended");

const names = ["init", ...Array.from({ length: steps }, (_, index) => `s${index + 1}`)];
for (const [id, run] of Object.entries(ended)) {
  assert.equal(run.workflowState, "RUN_SUCCESS", JSON.stringify(run));
  const found = run.steps.flatMap((group) => group.steps);
  assert.deepEqual(found.map((step) => step.stepName), names, `${id}: each step is recorded once`);
  const recorded = found.slice(1).map((step) => JSON.parse(step.out));
  assert.deepEqual(JSON.parse(run.workflowRunResponse), recorded, `${id}: what was recorded is what is replayed`);
  for (const [index, value] of recorded.entries()) assert.ok(executed[`${id}/s${index + 1}`].includes(value));
}
const at = site.of("/load").map((call) => call.at).sort((one, other) => one - other);
const inASecond = Math.max(...at.map((start, index) => at.slice(index).findLastIndex((later) => later < start + 1000) + 1));
const executions = Object.values(executed).reduce((sum, values) => sum + values.length, 0);
const seconds = (at.at(-1) - at[0]) / 1000;
console.log(
  `${runs} runs of ${steps} steps: ${at.length} deliveries in ${seconds.toFixed(1)} s, ${(at.length / seconds).toFixed(1)} a second, ` +
    `at most ${most} at once, at most ${inASecond} in any second; ${executions} executions for ${runs * steps} steps, ${Date.now() - started} ms`,
);
assert.ok(most <= parallelism, `${most} steps were at work at once`);
// Two windows that touch have twice the rate in the second that lies over both.
assert.ok(inASecond <= 2 * rate, `${inASecond} starts in a second`);
// The last come early in their window, and the first may come late in theirs.
assert.ok(at.length / rate - 2 <= seconds, `${at.length} starts in ${seconds} s`);
console.log("all well");
process.exit(0);
