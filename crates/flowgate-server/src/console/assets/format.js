// Numbers, spans and moments as people read them.

const NUMBER = new Intl.NumberFormat("en");
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
const FULL = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });

export const number = (value) => NUMBER.format(value ?? 0);

// A count that may end where counting ended.
export const counted = (value, isMore) => number(value) + (isMore ? "+" : "");

export function span(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

// The length of a period, from its milliseconds.
export function period(millis) {
  if (millis % 1000 !== 0) return `${millis}ms`;
  const seconds = millis / 1000;
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "m"]]) {
    if (seconds >= size && seconds % size === 0) return `${seconds / size}${unit}`;
  }
  return `${seconds}s`;
}

export function rate(perSecond) {
  if (perSecond === 0) return "0";
  return perSecond < 10 ? perSecond.toFixed(1) : number(Math.round(perSecond));
}

export const clock = (ms) => CLOCK.format(ms);
export const day = (ms) => DAY.format(ms);
// With its year and zone, and as the servers' logs have it.
export const full = (ms) => `${FULL.format(ms)} · ${new Date(ms).toISOString()}`;
export const zone = () => FULL.resolvedOptions().timeZone;

export function moment(ms) {
  return Date.now() - ms < 43200000 && Date.now() - ms > -43200000 ? clock(ms) : day(ms);
}

// How far from now, by this machine's clock.
export function away(ms) {
  const left = ms - Date.now();
  return left >= 0 ? `in ${span(left)}` : `${span(-left)} ago`;
}

export function host(url) {
  try {
    const parsed = new URL(url);
    return parsed.host + (parsed.pathname === "/" ? "" : parsed.pathname);
  } catch {
    return url;
  }
}

export function short(id) {
  return id && id.length > 16 ? `${id.slice(0, 6)}…${id.slice(-6)}` : id;
}

export function decode(base64) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)));
  } catch {
    return null;
  }
}

export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
