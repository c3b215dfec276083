// The shell: who is logged in, which page is shown, and what is the same on all of them.

import { h, fill } from "./dom.js";
import { comeBack, lastOf, noted } from "./address.js";
import { icon } from "./icons.js";
import { button, toast } from "./dialogs.js";
import { current, keyOf, logOut, resume, whenLost } from "./server.js";
import * as live from "./live.js";
import { help, listen } from "./keyboard.js";
import { clock, counted, full, zone } from "./format.js";
import { login } from "./page-login.js";
import { keysPage } from "./page-keys.js";
import { keyPage } from "./page-key.js";
import { queuesPage } from "./page-queues.js";
import { messagesPage, messagePage } from "./page-messages.js";
import { runsPage, runPage } from "./page-runs.js";
import { lettersPage } from "./page-letters.js";
import { schedulesPage } from "./page-schedules.js";
import { gatewayPage } from "./page-gateway.js";

const PAGES = [
  { path: "keys", name: "Flow control", icon: "flow", make: keysPage, one: keyPage },
  { path: "queues", name: "Queues", icon: "queues", make: queuesPage },
  { path: "messages", name: "Messages", icon: "messages", make: messagesPage, one: messagePage },
  { path: "runs", name: "Runs", icon: "runs", make: runsPage, one: runPage },
  { path: "letters", name: "Dead letters", icon: "letters", make: lettersPage },
  { path: "schedules", name: "Schedules", icon: "schedules", make: schedulesPage },
  { path: "gateway", name: "Gateway", icon: "gateway", make: gatewayPage },
];
// A stream that is opened again at once is not worth a word.
const PATIENCE = 1500;
// So much of what is beside it is seen as well: there is more on both sides.
const BESIDE = 24;
const STATES = { live: "Live", lost: "Offline", off: "Connecting" };

const app = document.getElementById("app");
let shown = null;
let unhear = () => {};
let unwatch = () => {};
let later = 0;

// An address may have been typed, or cut off in the middle.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function route() {
  const [first, ...rest] = location.pathname.replace(/^\/console\/?/, "").split("/").map(decoded);
  const page = PAGES.find(({ path }) => path === (first || "keys"));
  return { page, name: rest.join("/") };
}

export function go(to) {
  const path = `/console/${to}`;
  const { page, name } = route();
  comeBack(Boolean(page && name) && to === lastOf(page.path));
  if (path !== location.pathname + location.search) history.pushState(null, "", path);
  draw();
}

function theme() {
  const root = document.documentElement;
  const isDark = getComputedStyle(root).colorScheme === "dark" || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset.theme = isDark ? "light" : "dark";
  try {
    localStorage.setItem("flowgate-theme", root.dataset.theme);
  } catch {
    // Then it is for this page only.
  }
}

function link(to, props, ...children) {
  const onclick = (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    go(to);
  };
  return h("a", { href: `/console/${to}`, onclick, ...props }, children);
}

// Figures that are no longer true are said to be old, and lose their colours.
function tellAway(node, seen, why) {
  const what = why ? `The server cannot look at its store: ${why}.` : "The server cannot be reached.";
  fill(node, h("b", null, what), ` What is shown is of ${clock(seen)}; it is tried again.`);
  node.hidden = false;
  document.body.classList.add("stale");
}

function shell() {
  const session = current();
  const counts = new Map();
  const items = PAGES.map(({ path, name, icon: of }, index) => {
    const count = h("span", { class: "count" });
    counts.set(path, count);
    return link(path, { class: "nav-item", "data-page": path, title: `${name} (${index + 1})` }, icon(of), h("span", null, name), count);
  });
  const state = h("span", { class: "state", role: "status" });
  const away = h("div", { class: "away", role: "alert", hidden: true });
  unwatch();
  unwatch = live.onState((now, seen, why) => {
    state.className = `state ${now}`;
    fill(state, h("i"), STATES[now]);
    clearTimeout(later);
    if (now === "lost") later = setTimeout(() => tellAway(away, seen, why), PATIENCE);
    else {
      // Whatever could not be read, or was not told meanwhile, is read now.
      if (now === "live" && !away.hidden) shown?.refresh?.();
      away.hidden = true;
      document.body.classList.remove("stale");
    }
  });
  const main = h("main", { id: "main", tabindex: -1 });
  const leave = async () => { await logOut(); start(); };
  fill(
    app,
    h(
      "div",
      { class: "shell" },
      h(
        "header",
        { class: "rail" },
        link("keys", { class: "brand", title: "Flow control" }, h("img", { src: "/console/assets/icon.svg", alt: "", width: 28, height: 28 }), h("b", null, "Flowgate"), state),
        h("nav", { class: "nav", "aria-label": "Console" }, items),
        h(
          "div",
          { class: "rail-foot" },
          h("p", { class: "faint", title: session.store }, session.isDev ? h("span", { class: "badge dev" }, "dev") : null, h("span", { class: "cut" }, `v${session.version} · ${session.store}`)),
          h("p", { class: "faint", title: full(Date.now()) }, h("span", { class: "cut" }, `Times: ${zone()}`)),
          h(
            "div",
            { class: "rail-tools" },
            button("sun", "Light or dark (t)", theme, { isIcon: true, kind: "plain", testid: "theme" }),
            button("help", "Keyboard (?)", help, { isIcon: true, kind: "plain" }),
            session.isDev ? null : button("out", "Log out", leave, { isIcon: true, kind: "plain", testid: "log-out" }),
          ),
        ),
      ),
      main,
      away,
    ),
  );
  unhear();
  unhear = live.hear(({ totals }) => {
    if (!totals) return;
    const tell = (path, text) => {
      const node = counts.get(path);
      if (node.textContent === text) return;
      node.textContent = text;
      // On a phone the one that is chosen may have been pushed out of sight.
      const here = app.querySelector(".nav-item[aria-current=page]");
      if (here) reveal(here);
    };
    tell("keys", totals.keys > 0 ? counted(totals.keys) : "");
    tell("letters", totals.dead > 0 ? counted(totals.dead, totals.isDeadMore) : "");
  });
  return main;
}

// Moves the list and nothing else: what a browser scrolls into view is where its Tab key goes on from, past the way to the content.
function reveal(item) {
  const [own, all] = [item, item.parentElement].map((node) => node.getBoundingClientRect());
  item.parentElement.scrollLeft += Math.min(0, own.left - BESIDE - all.left) + Math.max(0, own.right + BESIDE - all.right);
}

function draw() {
  if (current() === null) return;
  let main = document.getElementById("main");
  if (!main) main = shell();
  shown?.leave?.();
  shown = null;
  const { page, name } = route();
  for (const item of app.querySelectorAll(".nav-item")) {
    const isHere = item.dataset.page === page?.path;
    item.setAttribute("aria-current", isHere ? "page" : "false");
    if (isHere) reveal(item);
  }
  if (!page || (name && !page.one)) {
    document.title = "Flowgate";
    fill(main, h("div", { class: "empty" }, h("h2", null, "There is no such page"), link("keys", { class: "button" }, "Flow control")));
    live.watch([]);
    return;
  }
  document.title = `${page.path === "keys" ? keyOf(name) || page.name : name || page.name} · Flowgate`;
  if (!name) noted();
  const make = name ? page.one : page.make;
  // Who was in the page before is in the next one, and not at the top of the window.
  const wasInside = main.contains(document.activeElement);
  shown = make({ go, link, name, back: lastOf(page.path) });
  fill(main, shown.node);
  if (wasInside) main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
  live.watch(shown.watched?.() ?? []);
}

async function start() {
  shown?.leave?.();
  shown = null;
  live.close();
  clearTimeout(later);
  document.body.classList.remove("stale");
  try {
    if ((await resume()) === null) {
      fill(app, login(() => { fill(app); draw(); }));
      return;
    }
  } catch (trouble) {
    fill(app, h("div", { class: "empty" }, h("h2", null, "The server cannot be reached"), h("p", null, trouble.message), button("retry", "Try again", start)));
    return;
  }
  fill(app);
  draw();
}

whenLost(() => { toast("The session has ended.", "bad"); start(); });
window.addEventListener("popstate", () => { comeBack(true); draw(); });
listen({ page: () => shown, go: (index) => go(PAGES[index].path), theme });
start();
