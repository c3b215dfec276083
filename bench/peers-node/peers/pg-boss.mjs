// pg-boss. Its limit: so many at a time for each group, over all processes.

import { PgBoss } from 'pg-boss';
import pg from 'pg';

const QUEUE = 'bench';
/** At its best for tasks that take no time: few workers with large batches. */
const DRAINERS = 4;
const FETCH = 1000;
const WIDE = 100;
const TWO = 2;

export async function open(order, floor) {
  const boss = new PgBoss({ connectionString: order.database, max: 20, useListenNotify: true, schedule: false });
  boss.on('error', () => {});
  await boss.start();
  await boss.createQueue(QUEUE, { notify: true });
  const pool = new pg.Pool({ connectionString: order.database, max: 1 });
  const group = (task) => (order.limit === 'none' ? {} : { group: { id: `key-${task.key}` } });
  const one = order.taskMs > 0 || order.command === 'latency';
  const options = {
    pollingIntervalSeconds: 0.5,
    notifyPollingIntervalSeconds: 0.5,
    // A batch is settled when its last task is over: where tasks take time, each worker takes one.
    batchSize: one ? 1 : FETCH,
    localConcurrency: one ? order.concurrency : DRAINERS,
    ...(order.limit === 'none' ? {} : { groupConcurrency: order.limit === 'two' ? TWO : WIDE }),
  };
  return {
    insert: (tasks) => boss.insert(QUEUE, tasks.map((data) => ({ data, ...group(data) }))),
    send: (data) => boss.send(QUEUE, data, group(data)),
    async unfinished() {
      const answer = await pool.query("select count(*)::int as count from pgboss.job where state < 'completed'");
      return answer.rows[0].count;
    },
    async work() {
      await boss.work(QUEUE, options, (jobs) => Promise.all(jobs.map((job) => floor.perform(job.data))));
    },
    async close() {
      await boss.stop({ graceful: true, timeout: 2000 });
    },
  };
}
