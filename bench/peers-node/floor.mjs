// The floor on which tasks run: it counts them, and keeps what their own clock says.

import { setTimeout as sleep } from 'node:timers/promises';

const BODY = '{"to":"ada@example.com","subject":"Your receipt","order":4711,"lines":[1,2,3],"note":"thank you"}';

/** All processes of a machine share this clock, in nanoseconds. */
const now = () => process.hrtime.bigint();

export class Floor {
  ran = 0;
  waits = [];
  records = [];
  sent = [];

  constructor({ command, count, taskMs, url }) {
    this.url = url;
    this.keepsRecords = command === 'work';
    this.taskMs = taskMs;
    this.goal = count;
    this.reached = new Promise((resolve) => (this.reach = resolve));
  }

  /** Notes that a task is about to be sent. */
  sends(number) {
    this.sent[number] = now();
  }

  /** Posts to the endpoint, and reads what it says. */
  async deliver() {
    const answer = await fetch(this.url, { method: 'POST', body: BODY });
    await answer.text();
    if (!answer.ok) throw new Error(`the endpoint answered ${answer.status}`);
  }

  /** Runs a task: what every handler does. */
  async perform({ key, number }) {
    const start = now();
    if (this.sent[number] !== undefined) this.waits.push(Number(start - this.sent[number]) / 1e9);
    if (this.url) await this.deliver();
    if (this.taskMs > 0) await sleep(this.taskMs);
    // As text: these are larger than what a number of JavaScript holds.
    if (this.keepsRecords) this.records.push(`{"record":{"key":${key},"start":${start},"end":${now()}}}`);
    this.ran += 1;
    if (this.ran === this.goal) this.reach();
  }
}
