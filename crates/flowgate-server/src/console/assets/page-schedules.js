// Schedules: what is sent again and again, and when it is due next.

import { h, fill, say } from "./dom.js";
import { button, act, confirm } from "./dialogs.js";
import { actions, list, search, text } from "./list.js";
import { away, full, host, moment } from "./format.js";
import { get, part, patch, remove } from "./server.js";

const due = (schedule) => (schedule.isPaused ? null : schedule.nextScheduleTime ?? null);

export function schedulesPage() {
  let isLeft = false;
  let all = [];
  let isRead = false;
  const toggle = (schedule) => {
    const { scheduleId: id, isPaused } = schedule;
    const undo = () => toggle({ ...schedule, isPaused: !isPaused });
    return act(() => patch(`schedules/${part(id)}/${isPaused ? "resume" : "pause"}`), `schedule ${id} ${isPaused ? "goes on" : "is paused"}`, undo).then(load);
  };
  const drop = async (schedule) => {
    if (await confirm(`Delete schedule ${schedule.scheduleId}?`, "What it has already sent stays. Nothing more is sent.", "Delete")) await act(() => remove(`schedules/${part(schedule.scheduleId)}`), "Deleted").then(load);
  };
  const table = list({
    label: "Schedules",
    id: (schedule) => schedule.scheduleId,
    keys: { p: toggle },
    columns: [
      {
        title: "Schedule",
        kind: "name",
        make(cell) {
          const name = h("span", { class: "strong cut" });
          const badges = h("span", { class: "badges" });
          cell.append(name, badges);
          return (schedule) => {
            say(name, schedule.scheduleId);
            name.title = schedule.scheduleId;
            fill(badges, schedule.isPaused ? h("span", { class: "badge paused" }, "paused") : null, schedule.error ? h("span", { class: "badge bad", title: schedule.error }, "error") : null);
          };
        },
      },
      { title: "Cron", kind: "cron", hint: "UTC, unless it names a zone: CRON_TZ=Europe/Berlin", make: text((schedule) => schedule.cron, "mono") },
      { title: "Where", kind: "wide", make: text((schedule) => host(schedule.destination), "cut") },
      { title: "Next", kind: "num", make: text((schedule) => (due(schedule) ? away(due(schedule)) : "–"), "", (schedule) => (due(schedule) ? full(due(schedule)) : "")) },
      { title: "Last", kind: "num side", make: text((schedule) => (schedule.lastScheduleTime ? moment(schedule.lastScheduleTime) : "never"), "", (schedule) => (schedule.lastScheduleTime ? full(schedule.lastScheduleTime) : "")) },
      {
        title: "",
        say: "Controls",
        kind: "do",
        make: actions((schedule) => [schedule.isPaused, schedule.scheduleId], (last, schedule) => [
          button(schedule.isPaused ? "play" : "pause", schedule.isPaused ? "Resume" : "Pause", () => toggle(last()), { isIcon: true, kind: "plain", testid: "pause", label: `${schedule.isPaused ? "Resume" : "Pause"} ${schedule.scheduleId}` }),
          button("trash", "Delete", () => drop(last()), { isIcon: true, kind: "plain", testid: "delete", label: `Delete ${schedule.scheduleId}` }),
        ]),
      },
    ],
  });
  const empty = () => {
    if (all.length > 0) table.empty(h("h2", null, "No schedule matches"));
    else table.empty(h("h2", null, "No schedules"), h("p", null, "Create one with any client, or on the command line: ", h("code", null, "flowgate schedule create --cron '0 9 * * 1-5' https://example.com/report")));
  };
  const box = search("Search schedules", "Search", () => { if (isRead) show(); });
  const show = () => { empty(); table.show(all.filter(({ scheduleId, destination, cron }) => `${scheduleId} ${destination} ${cron}`.toLowerCase().includes(box.value().toLowerCase())).slice(0, 500)); };

  let turn = 0;

  async function load() {
    const own = (turn += 1);
    const isOld = () => own !== turn || isLeft;
    const told = await get("schedules").catch((trouble) => { if (!isOld()) table.fail("The schedules", trouble, load); });
    if (!told || isOld()) return;
    isRead = true;
    all = told.sort((one, other) => one.scheduleId.localeCompare(other.scheduleId));
    show();
  }

  let count = 0;
  const ticking = setInterval(() => { count += 1; if (document.hidden) return; if (count % 5 === 0) load(); else if (isRead) show(); }, 1000);
  load();
  return {
    node: h("div", { class: "page" }, h("header", { class: "page-head" }, h("div", null, h("h1", null, "Schedules"), h("p", { class: "faint" }, "What is sent regularly, and when it is due next. Cron times are UTC unless they name a zone."))), h("div", { class: "card flush" }, h("div", { class: "bar" }, box.node), table.node)),
    search: box.input,
    refresh: load,
    press: (event) => table.press(event),
    leave() { isLeft = true; clearInterval(ticking); box.leave(); },
  };
}
