// The icons: strokes on a grid of 16.

import { svg } from "./dom.js";

const PATHS = {
  flow: "M3 2.5v11M13 2.5v11M6.5 8h3M8 6.5v3",
  queues: "M2.5 4h11M2.5 8h11M2.5 12h7",
  messages: "M2.5 3.5h11v7h-6l-3 2.5v-2.5h-2z",
  runs: "M2.5 4h4M5 8h5M8 12h5.5M2.5 2v12",
  letters: "M2.5 4h11v8.5h-11zM2.5 4.5 8 9l5.5-4.5",
  schedules: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2M8 5v3.2l2.2 1.5",
  gateway: "M2.5 8h4M9.5 8h4M6.5 3v10M9.5 3v10",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  play: "M5 3.5v9l7-4.5z",
  pin: "M6 2.5h4l-.6 4.2 2.1 2.1h-7l2.1-2.1zM8 8.8v4.7",
  why: "M6 6.2A2 2 0 1 1 8.6 8c-.5.3-.6.6-.6 1.2M8 11.6v.1M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2",
  reset: "M3.2 8a4.8 4.8 0 1 0 1.5-3.5L3 6M3 3v3h3",
  search: "M7 2.7a4.3 4.3 0 1 0 0 8.6 4.3 4.3 0 0 0 0-8.6M10.2 10.2l3.3 3.3",
  send: "M2.5 8 13.5 2.8 9.8 13.4 7.6 8.7zM7.6 8.7l5.9-5.9",
  trash: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.6 9h5.8l.6-9",
  retry: "M12.8 8a4.8 4.8 0 1 1-1.5-3.5L13 6M13 3v3h-3",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6M8 1.5v1.6M8 12.9v1.6M1.5 8h1.6M12.9 8h1.6M3.4 3.4l1.1 1.1M11.5 11.5l1.1 1.1M12.6 3.4l-1.1 1.1M4.5 11.5l-1.1 1.1",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5",
  out: "M6.5 2.5h-4v11h4M6.5 8h7M10.5 5l3 3-3 3",
  left: "M10 3 5 8l5 5",
  right: "M6 3l5 5-5 5",
  close: "M4 4l8 8M12 4l-8 8",
  help: "M2.5 4.5h11v7h-11zM5 7h.1M8 7h.1M11 7h.1M5.5 9.5h5",
  edit: "M3 13l.6-2.8 7-7 2.2 2.2-7 7zM9.3 4.5l2.2 2.2",
};

export function icon(name) {
  const path = svg("path", { d: PATHS[name] });
  return svg("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true", focusable: "false" }, path);
}
