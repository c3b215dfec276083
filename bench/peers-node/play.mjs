// What is done with a peer, and what is told of it.

import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { Floor } from './floor.mjs';

/** How many tasks are inserted in one call, and how many such calls there are at once. */
const BATCH = 1000;
const INSERTERS = 4;

export async function play(order) {
  const floor = new Floor(order);
  const peer = await order.open(order, floor);
  await PLAYS[order.command](peer, order, floor);
}

const PLAYS = { 'set-up': async () => {}, insert, send, drain, work, latency, flow };

async function insert(peer, order) {
  const tasks = many(order);
  const batches = [];
  for (let at = 0; at < tasks.length; at += BATCH) batches.push(tasks.slice(at, at + BATCH));
  const start = performance.now();
  await together(INSERTERS, async () => {
    for (let batch = batches.pop(); batch; batch = batches.pop()) await peer.insert(batch);
  });
  tell({ seconds: since(start) });
}

async function send(peer, order) {
  const tasks = many(order).reverse();
  const start = performance.now();
  await together(order.callers, async () => {
    for (let task = tasks.pop(); task; task = tasks.pop()) await peer.send(task);
  });
  tell({ seconds: since(start) });
}

async function drain(peer, order, floor) {
  const lines = await ready();
  const start = performance.now();
  await peer.work();
  const told = lines.next().then(() => 'told');
  if ((await Promise.race([floor.reached, told])) === 'told') {
    // It is too slow, and says how far it came.
    return tell({ ran: floor.ran, seconds: since(start) });
  }
  // One that settles behind its back is not done when the last handler is.
  while ((await peer.unfinished()) > 0) await sleep(2);
  tell({ ran: floor.ran, seconds: since(start) });
  await closed(peer);
}

/** Adds and works at the same time, until all is over. */
async function flow(peer, order, floor) {
  await peer.work();
  const tasks = many(order);
  const batches = [];
  for (let at = 0; at < tasks.length; at += BATCH) batches.push(tasks.slice(at, at + BATCH));
  const start = performance.now();
  await together(INSERTERS, async () => {
    for (let batch = batches.pop(); batch; batch = batches.pop()) await peer.insert(batch);
  });
  await floor.reached;
  while ((await peer.unfinished()) > 0) await sleep(2);
  tell({ seconds: since(start) });
  await closed(peer);
}

async function work(peer, order, floor) {
  const lines = await ready();
  const start = performance.now();
  const ticks = setInterval(() => tell({ ran: floor.ran, seconds: since(start) }), 50);
  await peer.work();
  await lines.next();
  clearInterval(ticks);
  await closed(peer);
  await new Promise((written) => process.stdout.write(floor.records.map((record) => `${record}\n`).join(''), written));
}

async function latency(peer, order, floor) {
  await peer.work();
  // It has connected, listened and found nothing by then.
  await sleep(1000);
  for (const task of many(order)) {
    floor.sends(task.number);
    await peer.send(task);
    await sleep(order.intervalMs);
  }
  await Promise.race([floor.reached, sleep(10_000)]);
  floor.waits.forEach((wait) => tell({ wait }));
  await closed(peer);
}

/** So many tasks, spread over the keys, in turn. */
function many({ count, keys }) {
  return Array.from({ length: count }, (_, number) => ({ key: number % keys, number }));
}

function together(count, job) {
  return Promise.all(Array.from({ length: count }, job));
}

/** Stops the worker; one that takes long is left behind when the process ends. */
function closed(peer) {
  return Promise.race([peer.close().catch(() => {}), sleep(3000)]);
}

/** Says that the worker can start, and waits for the word. */
async function ready() {
  tell({ ready: true });
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  await lines.next();
  return lines;
}

function since(start) {
  return (performance.now() - start) / 1000;
}

function tell(what) {
  process.stdout.write(`${JSON.stringify(what)}\n`);
}
