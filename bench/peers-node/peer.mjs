// One durable queue on node at work: `node peer.mjs <peer> <command> --database <url> [--option value]...`.
//
// Speaks as ../peers-tasks does: one command, and lines of JSON about what came of it. A peer is a module in peers/ with
// `open(order)`, which gives `insert`, `send`, `unfinished`, `work` and `close`.

import { play } from './play.mjs';
import { open as graphile } from './peers/graphile.mjs';
import { open as pgBoss } from './peers/pg-boss.mjs';
import { open as bullmq } from './peers/bullmq.mjs';

const PEERS = { 'graphile-worker': graphile, 'pg-boss': pgBoss, bullmq };

function order([peer, command, ...options]) {
  const given = {};
  for (let at = 0; at < options.length; at += 2) given[options[at].slice(2)] = options[at + 1];
  const number = (name, otherwise) => (given[name] === undefined ? otherwise : Number(given[name]));
  return {
    open: PEERS[peer],
    command,
    database: given.database,
    count: number('count', 0),
    keys: number('keys', 1),
    callers: number('callers', 1),
    limit: given.limit ?? 'none',
    concurrency: number('concurrency', 64),
    taskMs: number('task-ms', 0),
    url: given.url,
    intervalMs: number('interval-ms', 0),
  };
}

try {
  await play(order(process.argv.slice(2)));
  process.exit(0);
} catch (error) {
  console.error(`error: ${error?.message ?? error}`);
  process.exit(1);
}
