// The samples of the flow-control document, as they are written there, with the address of this server and a local endpoint.

import assert from "node:assert/strict";

import { Client } from "@upstash/workflow";

import { endpoint, patience, until } from "./endpoint.mjs";

patience("seed", 120_000);
const work = await endpoint({ ms: 60 });
const client = new Client({ baseUrl: process.env.QSTASH_URL, token: process.env.QSTASH_TOKEN });
const key = async (name) => {
  const headers = { Authorization: `Bearer ${process.env.QSTASH_TOKEN}` };
  const answer = await fetch(`${process.env.QSTASH_URL}/v2/flowControl/${name}`, { headers });
  return answer.ok ? answer.json() : undefined;
};

// "Groups steps under this key": at most five at once, at most twenty starts a minute.
const onboarding = async () => {
  await client.trigger({
    url: `${work.url}/onboarding`,
    flowControl: {
      key: "user-onboarding", // Groups steps under this key
      parallelism: 5, // max concurrent steps
      rate: 20, // max starts per period
      period: "1m", // time window
    },
  });
};

// "Rate & Period": two starts in ten seconds, one at a time.
const billing = async () => {
  await client.trigger({
    url: `${work.url}/billing`,
    flowControl: {
      key: "billing-jobs",
      rate: 2, // allow 2 starts
      period: "10s", // every 10 seconds
      parallelism: 1, // can be combined
    },
  });
};

// "Full Example". The client sends a number as seconds.
const media = async () => {
  await client.trigger({
    url: `${work.url}/process`,
    flowControl: {
      key: "media-processing", // Shared grouping key
      parallelism: 4, // Max 4 at the same time
      rate: 10, // Max 10 starts
      period: 60_000, // in 60 seconds (ms or string supported)
    },
  });
};

await Promise.all([
  ...Array.from({ length: 24 }, onboarding),
  ...Array.from({ length: 4 }, billing),
  ...Array.from({ length: 13 }, media),
]);

await work.came("/onboarding", 20);
const waiting = await until("four wait for the next minute", async () => {
  const found = await key("user-onboarding");
  return found.waitListSize === 4 && found.parallelismCount === 0 && found;
});
assert.equal(waiting.parallelismMax, 5);
assert.equal(waiting.rateMax, 20);
assert.equal(waiting.rateCount, 20);
assert.equal(waiting.ratePeriod, 60);
assert.ok(work.most["/onboarding"] <= 5, `${work.most["/onboarding"]} at once`);

await work.came("/process", 10);
const processing = await until("three wait for the next window", async () => {
  const found = await key("media-processing");
  return found.waitListSize === 3 && found.parallelismCount === 0 && found;
});
assert.equal(processing.ratePeriod, 60_000);
assert.ok(work.most["/process"] <= 4, `${work.most["/process"]} at once`);

const billed = await work.came("/billing", 4);
assert.equal(work.most["/billing"], 1);
// As the endpoint saw it: a delivery may take a while to come.
assert.ok(billed[2].at - billed[0].at >= 7_000, `the second window came after ${billed[2].at - billed[0].at} ms`);
assert.ok(billed[3].at - billed[2].at < 9_000, "and has room for two");

assert.equal(work.of("/onboarding").length, 20);
assert.equal(work.of("/process").length, 10);
console.log("seed: all well");
process.exit(0);
