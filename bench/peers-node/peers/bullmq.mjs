// bullmq, on Redis. Its limit: so many at a time for each queue, over all processes. A key is a queue where it is tested.

import { Queue, Worker } from 'bullmq';

const WIDE = 100;
const TWO = 2;

export async function open(order, floor) {
  const { hostname, port } = new URL(order.database);
  const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null };
  const names = order.limit === 'two' ? Array.from({ length: order.keys }, (_, key) => `key-${key}`) : ['bench'];
  const queues = names.map((name) => new Queue(name, { connection, defaultJobOptions: { removeOnComplete: true } }));
  await Promise.all(queues.map((queue) => queue.waitUntilReady()));
  if (order.limit !== 'none') {
    await Promise.all(queues.map((queue) => queue.setGlobalConcurrency(order.limit === 'two' ? TWO : WIDE)));
  }
  const queue = (task) => queues[task.key % queues.length];
  let workers = [];
  return {
    async insert(tasks) {
      const shares = new Map();
      for (const task of tasks) {
        const share = shares.get(queue(task)) ?? [];
        share.push({ name: 'task', data: task });
        shares.set(queue(task), share);
      }
      await Promise.all([...shares].map(([to, jobs]) => to.addBulk(jobs)));
    },
    send: (task) => queue(task).add('task', task),
    async unfinished() {
      const counts = await Promise.all(queues.map((each) => each.getJobCountByTypes('waiting', 'active', 'delayed')));
      return counts.reduce((sum, count) => sum + count, 0);
    },
    async work() {
      const concurrency = Math.max(1, Math.ceil(order.concurrency / names.length));
      workers = names.map((name) => new Worker(name, (job) => floor.perform(job.data), { connection, concurrency }));
      workers.forEach((worker) => worker.on('error', () => {}));
      await Promise.all(workers.map((worker) => worker.waitUntilReady()));
    },
    async close() {
      await Promise.all(workers.map((worker) => worker.close()));
    },
  };
}
