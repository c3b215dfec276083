// The endpoint that receives deliveries, and remembers each of them.

import http from "node:http";

/** Answers after `ms` of work; `status` says with what, by path. */
export async function endpoint({ ms = 0, status = () => 200 } = {}) {
  const calls = [];
  const inFlight = {};
  const most = {};
  const server = http.createServer(async (request, response) => {
    const started = Date.now();
    const path = request.url;
    inFlight[path] = (inFlight[path] ?? 0) + 1;
    most[path] = Math.max(most[path] ?? 0, inFlight[path]);
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    calls.push({ at: started, path, method: request.method, headers: request.headers, body: Buffer.concat(chunks).toString() });
    await new Promise((done) => setTimeout(done, ms));
    inFlight[path] -= 1;
    // What a workflow's endpoint says of itself.
    response.writeHead(status(path), { "Upstash-Workflow-Sdk-Version": "1", "Retry-After": "0" }).end("done");
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  const url = `http://127.0.0.1:${server.address().port}`;
  const of = (path) => calls.filter((call) => call.path === path);
  return { url, calls, most, of, came: (path, count) => until(`${count} deliveries to ${path}`, () => of(path).length >= count && of(path)) };
}

/** Asks until it gives something that is not false. */
export async function until(what, ask) {
  const deadline = Date.now() + 60_000;
  for (;;) {
    const found = await ask();
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`${what}: not in time`);
    await new Promise((done) => setTimeout(done, 20));
  }
}

export function patience(name, ms) {
  setTimeout(() => {
    console.error(`${name}: took too long`);
    process.exit(1);
  }, ms).unref();
}
