// Small drawings: a line of the last looks, a meter, a strip of slots.

import { h, svg } from "./dom.js";

const WIDTH = 120;
const HEIGHT = 28;

function points(values, most, width, height, slots) {
  const step = width / (slots - 1);
  const from = width - (values.length - 1) * step;
  return values.map((value, index) => {
    const y = height - 2 - (most === 0 ? 0 : (value / most) * (height - 4));
    return [from + index * step, y];
  });
}

const path = (all) => all.map(([x, y], index) => `${index === 0 ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// What is in flight as an area, what waits as a line, each on its own scale.
export function sparkline(label) {
  const area = svg("path", { class: "area" });
  const flight = svg("path", { class: "flight" });
  const wait = svg("path", { class: "wait" });
  const node = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "spark", role: "img", "aria-label": label, preserveAspectRatio: "none" }, area, flight, wait);
  let drawn = "";
  return {
    node,
    draw(past, max) {
      const seen = past.slice(-60);
      const busy = seen.map((look) => look[1]);
      const line = seen.map((look) => look[2]);
      const first = points(busy, Math.max(1, max ?? 0, ...busy), WIDTH, HEIGHT, 60);
      const second = points(line, Math.max(1, ...line), WIDTH, HEIGHT, 60);
      const next = path(first) + path(second);
      if (next === drawn || seen.length < 2) return;
      drawn = next;
      flight.setAttribute("d", path(first));
      area.setAttribute("d", `${path(first)}L${WIDTH} ${HEIGHT}L${first[0][0].toFixed(1)} ${HEIGHT}Z`);
      wait.setAttribute("d", line.some((value) => value > 0) ? path(second) : "");
    },
  };
}

// One value over time.
export function trend(kind, label) {
  const area = svg("path", { class: `area ${kind}` });
  const line = svg("path", { class: `line ${kind}` });
  const node = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "spark trend", role: "img", "aria-label": label, preserveAspectRatio: "none" }, area, line);
  return {
    node,
    draw(values) {
      const seen = values.slice(-60);
      if (seen.length < 2) return;
      const all = points(seen, Math.max(1, ...seen), WIDTH, HEIGHT, 60);
      line.setAttribute("d", path(all));
      area.setAttribute("d", `${path(all)}L${WIDTH} ${HEIGHT}L${all[0][0].toFixed(1)} ${HEIGHT}Z`);
    },
  };
}

// The large one of a key: both on one time axis, with the max as a line.
export function chart(label) {
  const [width, height] = [720, 150];
  const grid = [0.25, 0.5, 0.75].map((share) => svg("path", { class: "grid", d: `M0 ${height * share}H${width}` }));
  const area = svg("path", { class: "area" });
  const flight = svg("path", { class: "flight" });
  const wait = svg("path", { class: "wait" });
  const max = svg("path", { class: "max" });
  const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": label, preserveAspectRatio: "none" }, ...grid, area, max, flight, wait);
  return {
    node,
    draw(past, limit) {
      if (past.length < 2) return null;
      const busy = past.map((look) => look[1]);
      const line = past.map((look) => look[2]);
      const most = Math.max(1, ...busy, limit ?? 0) * 1.15;
      const longest = Math.max(1, ...line) * 1.15;
      const first = points(busy, most, width, height, 90);
      const second = points(line, longest, width, height, 90);
      flight.setAttribute("d", path(first));
      area.setAttribute("d", `${path(first)}L${width} ${height}L${first[0][0].toFixed(1)} ${height}Z`);
      wait.setAttribute("d", line.some((value) => value > 0) ? path(second) : "");
      const level = height - 2 - ((limit ?? 0) / most) * (height - 4);
      max.setAttribute("d", limit ? `M0 ${level.toFixed(1)}H${width}` : "");
      return { busy: Math.max(...busy), longest: Math.max(...line) };
    },
  };
}

// A bar of how much of something is used.
export function meter(label) {
  const fillBar = h("i");
  const node = h("div", { class: "meter", role: "meter", "aria-label": label, "aria-valuemin": 0 }, fillBar);
  return {
    node,
    show(value, most) {
      const share = most ? Math.min(1, value / most) : value > 0 ? 0.12 : 0;
      fillBar.style.setProperty("inline-size", `${(share * 100).toFixed(1)}%`);
      node.classList.toggle("full", Boolean(most) && value >= most);
      node.classList.toggle("open", !most);
      node.setAttribute("aria-valuenow", value);
      if (most) node.setAttribute("aria-valuemax", most);
      else node.removeAttribute("aria-valuemax");
    },
  };
}

// One box for each slot, while they are few enough to be seen.
export function slots() {
  const node = h("div", { class: "slots", "aria-hidden": "true" });
  const bar = meter("slots in use");
  return {
    node,
    show(inUse, max) {
      const count = max ?? inUse;
      if (count > 80 || !max) {
        if (bar.node.parentNode !== node) node.replaceChildren(bar.node);
        bar.show(inUse, max);
        return;
      }
      if (bar.node.parentNode === node) node.replaceChildren();
      const wanted = Math.max(count, inUse);
      while (node.children.length < wanted) node.append(document.createElement("i"));
      while (node.children.length > wanted) node.lastChild.remove();
      [...node.children].forEach((box, index) => {
        box.className = index < inUse ? (index >= count ? "over" : "on") : "";
      });
    },
  };
}
