// A workflow of a shop, with the official client: steps one after the other and side by side, a sleep, and an end as it is asked for.

import express from "express";
import { Client } from "@upstash/workflow";
import { serve } from "@upstash/workflow/express";
import { base, token } from "./browser.mjs";

const client = new Client({ baseUrl: base, token });

export async function checkout() {
  const app = express();
  app.use(express.json());
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  app.use(
    "/checkout",
    serve(async (context) => {
      const { order, naps, fails } = context.requestPayload;
      await context.run("reserve-stock", async () => { await pause(300); return { order, reserved: true }; });
      await Promise.all([
        context.run("charge-card", async () => { await pause(900); return "charged"; }),
        context.run("render-invoice", async () => { await pause(400); return { pages: 2 }; }),
        context.run("notify-crm", async () => { await pause(600); return "told"; }),
      ]);
      await context.sleep("wait-for-parcel", naps);
      return await context.run("confirm", () => { if (fails) throw new Error("the parcel was lost"); return { delivered: order }; });
    }),
  );
  const server = await new Promise((ready) => { const listening = app.listen(0, "127.0.0.1", () => ready(listening)); });
  const url = `http://127.0.0.1:${server.address().port}/checkout`;
  return {
    trigger: async (body) => (await client.trigger({ url, body: { naps: 1, ...body }, retries: 0, flowControl: { key: "checkout", parallelism: 10 } })).workflowRunId,
    close: () => { server.closeAllConnections(); server.close(); },
  };
}
