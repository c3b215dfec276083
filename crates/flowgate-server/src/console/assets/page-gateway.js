// The gates of this process: those of the gateway, if it runs one, and the server's own.

import { h, fill, say } from "./dom.js";
import { meter } from "./charts.js";
import { list, text, titled } from "./list.js";
import { number } from "./format.js";
import { data } from "./server.js";

const CONFIG = `[gateway]
listen = "127.0.0.1:8081"
upstreams = ["http://127.0.0.1:9000"]

[[gateway.route]]
name = "actions"
path = "/v1/actions/{*rest}"
key = { header = "X-Integration-Id" }
max = 30`;

const used = (cell) => {
  const figure = h("span", { class: "of" });
  const bar = meter("in use");
  cell.append(figure, bar.node);
  return (gate) => {
    const inUse = gate.in_use ?? gate.inUse;
    say(figure, `${number(inUse)} / ${gate.max === null ? "∞" : number(gate.max)}`);
    bar.show(inUse, gate.max);
  };
};

const left = text((gate) => (gate.max === null ? "∞" : number(Math.max(0, gate.max - (gate.in_use ?? gate.inUse)))));

const refused = (cell) => {
  let known = null;
  return ({ refusals }) => {
    const next = JSON.stringify(refusals);
    if (next === known) return;
    known = next;
    const some = Object.entries(refusals).filter(([, count]) => count > 0);
    fill(cell, some.length === 0 ? h("span", { class: "faint" }, "none") : some.map(([reason, count]) => h("span", { class: "badge bad" }, `${reason} ${number(count)}`)));
  };
};

export function gatewayPage() {
  let isLeft = false;
  const routes = list({
    label: "Routes of the gateway",
    id: (route) => route.name,
    columns: [
      { title: "Route", kind: "name", make: text((route) => route.name, "strong cut") },
      { title: "Limits of a key", kind: "wide", make: text((route) => route.limits, "cut") },
      { title: "In use", kind: "num", make: text((route) => number(route.in_use)) },
      { title: "Waiting", kind: "num", make: text((route) => number(route.waiting)) },
      { title: "Keys", kind: "num side", make: text((route) => number(route.keys)) },
      { title: "Refused since the start", kind: "refused", make: refused },
    ],
  });
  const lanes = list({
    label: "Keys of the gateway",
    id: (lane) => `${lane.route}/${lane.key}`,
    columns: [
      { title: "Key", kind: "name", make: text((lane) => lane.key || "(all)", "strong cut") },
      { title: "Route", kind: "side", make: text((lane) => lane.route, "cut") },
      { title: "In use", kind: "flight", make: used },
      { title: "Remaining", kind: "num", make: left },
      { title: "Waiting", kind: "num", make: text((lane) => number(lane.waiting)) },
    ],
  });
  lanes.empty(h("p", null, "No key is in use."));
  routes.empty(h("p", null, "No route has a limit."));
  const own = list({
    label: "The server's own gates",
    id: (gate) => gate.name,
    columns: [
      { title: "Gate", kind: "wide", make: text((gate) => gate.name, "strong") },
      { title: "Limits", kind: "wide", make: text((gate) => gate.limits, "cut") },
      { title: "In use", kind: "flight", make: used },
      { title: "Waiting", kind: "num", make: text((gate) => (gate.queue === 0 ? "–" : number(gate.waiting))) },
      { title: "Refused since the start", kind: "refused", make: refused },
    ],
  });
  const [connections, note] = [h("b", { class: "figure" }, "–"), h("span", { class: "faint" })];
  const gateway = h("div", { class: "stack", hidden: true }, h("section", { class: "tile flight single", "aria-label": "Connections" }, h("h2", null, "Connections"), h("div", null, connections, note)), titled("Routes", "each with the limits of one key", routes), titled("Keys in use", "up to 100 of each route", lanes));
  const none = h(
    "section",
    { class: "card empty", hidden: true },
    h("h2", null, "No gateway runs beside this server"),
    h("p", null, "A gateway stands in front of an upstream and caps each integration, with an immediate 429. Put this into ", h("code", null, "flowgate.toml"), " and start with ", h("code", null, "flowgate serve --config flowgate.toml"), ":"),
    h("pre", { tabindex: 0 }, CONFIG),
  );

  async function load() {
    const told = await data("gates").catch((trouble) => { if (!isLeft) own.fail("The gates", trouble, load); });
    if (!told || isLeft) return;
    own.show(told.own);
    none.hidden = told.gateway !== null;
    gateway.hidden = told.gateway === null;
    if (told.gateway === null) return;
    say(connections, number(told.gateway.connections));
    say(note, `open, ${number(told.gateway.resting)} of them at rest`);
    routes.show(told.gateway.routes);
    lanes.show(told.gateway.routes.flatMap((route) => route.lanes.map((lane) => ({ ...lane, route: route.name }))));
  }

  const ticking = setInterval(() => { if (!document.hidden) load(); }, 1500);
  load();
  return {
    node: h("div", { class: "page" }, h("header", { class: "page-head" }, h("div", null, h("h1", null, "Gateway and gates"), h("p", { class: "faint" }, "The limits in front of upstreams, and in front of this server."))), gateway, none, titled("The server's own gates", "what it takes at once", own)),
    refresh: load,
    press: (event) => (gateway.hidden ? own : routes).press(event),
    leave() { isLeft = true; clearInterval(ticking); },
  };
}
