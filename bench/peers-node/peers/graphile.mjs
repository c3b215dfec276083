// graphile-worker. Its limit: one at a time for each named queue.

import { Logger, makeWorkerUtils, run } from 'graphile-worker';
import pg from 'pg';

const FETCH = 500;
const quiet = new Logger(() => () => {});

export async function open(order, floor) {
  const pool = new pg.Pool({ connectionString: order.database, max: 20 });
  pool.on('error', () => {});
  pool.on('connect', (client) => client.on('error', () => {}));
  const utils = await makeWorkerUtils({ pgPool: pool, logger: quiet });
  await utils.migrate();
  const queueName = (task) => (order.limit === 'none' ? undefined : `key-${task.key}`);
  const worker = {
    concurrentJobs: order.concurrency,
    maxPoolSize: 20,
    // Nobody is told when a named queue is free again: whoever waits for one has to look.
    pollInterval: order.limit === 'none' ? 1000 : 20,
    // Not with named queues: then it fetches few at a time, and waits between.
    ...(order.limit !== 'none' ? {} : { localQueue: { size: FETCH }, completeJobBatchDelay: 0 }),
  };
  let runner;
  return {
    insert: (tasks) =>
      utils.addJobs(tasks.map((task) => ({ identifier: 'task', payload: task, queueName: queueName(task) }))),
    send: (task) => utils.addJob('task', task, { queueName: queueName(task) }),
    async unfinished() {
      const answer = await pool.query('select count(*)::int as count from graphile_worker._private_jobs');
      return answer.rows[0].count;
    },
    async work() {
      runner = await run({
        pgPool: pool,
        logger: quiet,
        noHandleSignals: true,
        crontab: '',
        preset: { worker },
        taskList: { task: (payload) => floor.perform(payload) },
      });
    },
    async close() {
      await runner?.stop();
    },
  };
}
