// Runs tasks of Flowgate: flowgate worker --processes=8 -- node docs/examples/worker.mjs
import { createInterface } from "node:readline";

const handlers = {
  async resize({ image }) {
    console.error(`resizing ${image}`);
    return { image, width: 640 };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, kind, body } = JSON.parse(line);
  const answer = await Promise.resolve(body)
    .then((body) => (handlers[kind] ?? (() => Promise.reject(`no handler for kind '${kind}'`)))(body))
    .then((result) => ({ result }), (error) => ({ error: String(error) }));
  console.log(JSON.stringify({ id, ...answer }));
}
