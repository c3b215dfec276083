// The stream of what changes: one for the page, closed while nobody looks at it.

import { current, isStillIn } from "./server.js";

const MOST_KEYS = 100;
const MOST_LETTERS = 30000;
const REMEMBERED = 90;
// A look comes at least every half minute, however slow the store is: after this a server that is still connected hangs.
const SILENCE = 45000;

let source = null;
let keys = [];
let soon = 0;
let silence = 0;
let state = "off";
// What is shown is of this moment, that of the last look, and why it is not of now: a stream that is open has told nothing yet.
let seen = Date.now();
let reason = "";
const hearers = new Set();
const watchers = new Set();

// How far this machine's clock is ahead of the server's, by which windows end.
let ahead = 0;
export const now = () => Date.now() - ahead;

export const past = { totals: [], keys: new Map() };

export function hear(hearer) {
  hearers.add(hearer);
  return () => hearers.delete(hearer);
}

export function onState(watcher) {
  watchers.add(watcher);
  watcher(state, seen, reason);
  return () => watchers.delete(watcher);
}

function become(next, why = "") {
  if (next === "live") seen = Date.now();
  if (state === next && reason === why) return;
  state = next;
  reason = why;
  for (const watcher of watchers) watcher(state, seen, reason);
}

// Watches these keys from now on.
export function watch(names) {
  let letters = 0;
  const wanted = [];
  for (const name of names.slice(0, MOST_KEYS)) {
    letters += encodeURIComponent(name).length + 5;
    if (letters > MOST_LETTERS) break;
    wanted.push(name);
  }
  // Another order of the same keys is no other stream.
  wanted.sort();
  const isSame = source !== null && wanted.length === keys.length && wanted.every((name, index) => name === keys[index]);
  keys = wanted;
  if (isSame) return;
  // Pages that are turned quickly open one stream, not many.
  clearTimeout(soon);
  soon = setTimeout(open, source === null ? 0 : 120);
}

export function close() {
  clearTimeout(soon);
  clearTimeout(silence);
  source?.close();
  source = null;
  become("off");
}

// Something came. If nothing more does, what is shown is old, and another stream is tried.
function heard() {
  clearTimeout(silence);
  silence = setTimeout(() => { if (source !== null) { become("lost"); open(); } }, SILENCE);
}

function open() {
  source?.close();
  source = null;
  clearTimeout(silence);
  if (document.hidden || current() === null) return;
  const search = keys.map((key) => `key=${encodeURIComponent(key)}`).join("&");
  source = new EventSource(`/console/live${search ? `?${search}` : ""}`);
  const own = source;
  const asked = keys;
  heard();
  own.addEventListener("error", () => {
    become("lost");
    // The browser tries again by itself, unless it was refused: then it is asked for again, later, unless nobody is logged in.
    if (own.readyState !== EventSource.CLOSED || source !== own) return;
    clearTimeout(soon);
    soon = setTimeout(async () => { if ((await isStillIn()) && source === own) open(); }, 1000 + 3000 * Math.random());
  });
  own.addEventListener("history", (event) => {
    const told = JSON.parse(event.data);
    past.totals = told.totals;
    for (const [key, seen] of Object.entries(told.keys)) past.keys.set(key, seen);
    for (const hearer of hearers) hearer({ isHistory: true });
  });
  own.addEventListener("sample", (event) => {
    heard();
    const told = JSON.parse(event.data);
    if (told.trouble) {
      become("lost", told.trouble);
      return;
    }
    become("live");
    ahead = Date.now() - told.totals.at;
    // Of which keys this tells, also where it says that there is nothing of them.
    const unseen = new Set(told.unseen);
    const seenKeys = new Set(asked.filter((key) => !unseen.has(key)));
    remember(told, seenKeys);
    for (const hearer of hearers) hearer({ ...told, isTold: (key) => seenKeys.has(key) });
  });
}

function remember({ totals, keys: seen }, told) {
  past.totals.push(totals);
  if (past.totals.length > REMEMBERED) past.totals.shift();
  for (const key of told) {
    const line = past.keys.get(key) ?? [];
    const look = seen[key];
    line.push([totals.at, look?.parallelismCount ?? 0, look?.waitListSize ?? 0]);
    if (line.length > REMEMBERED) line.shift();
    past.keys.set(key, line);
  }
  for (const key of past.keys.keys()) {
    if (past.keys.size <= 2 * MOST_KEYS) break;
    if (!keys.includes(key)) past.keys.delete(key);
  }
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(soon);
    clearTimeout(silence);
    source?.close();
    source = null;
  } else if (current() !== null) {
    open();
  }
});
