//! `flowgate schedule …`: messages that are sent again and again.

use http::Method;
use serde_json::{Value, json};

use super::{
    client::{Server, moment, part, say_json, text},
    failure::Failure,
    options::{OneSchedule, ScheduleAction, ScheduleOptions},
    publish::headers,
};
use crate::commands::Table;

pub(crate) fn schedule(options: &ScheduleOptions) -> Result<(), Failure> {
    match &options.action {
        ScheduleAction::Create { destination, cron, id, settings, server } => {
            let mut headers = headers(settings)?;
            headers.push(("Upstash-Cron".to_owned(), cron.clone()));
            headers.extend(id.as_ref().map(|id| ("Upstash-Schedule-Id".to_owned(), id.clone())));
            let server = Server::new(server)?;
            let made = server.send(
                Method::POST,
                &format!("/v2/schedules/{destination}"),
                &headers,
                &settings.body,
            )?;
            server.print(&made, |made| format!("{}\n", text(&made["scheduleId"])))
        }
        ScheduleAction::List { server } => {
            let server = Server::new(server)?;
            let found = server.ask(Method::GET, "/v2/schedules")?;
            server.print(&found, |found| table(found.as_array().map_or(&[], Vec::as_slice)))
        }
        ScheduleAction::Show(one) => {
            let found = Server::new(&one.server)?.ask(Method::GET, &path(one, ""))?;
            say_json(&found)
        }
        ScheduleAction::Pause(one) => change(one, Method::PATCH, "/pause", "is paused"),
        ScheduleAction::Resume(one) => change(one, Method::PATCH, "/resume", "is resumed"),
        ScheduleAction::Delete(one) => change(one, Method::DELETE, "", "is deleted"),
    }
}

fn path(one: &OneSchedule, behind: &str) -> String {
    format!("/v2/schedules/{}{behind}", part(&one.id))
}

fn change(one: &OneSchedule, method: Method, behind: &str, done: &str) -> Result<(), Failure> {
    let server = Server::new(&one.server)?;
    server.ask(method, &path(one, behind))?;
    server.print(&json!({ "scheduleId": one.id, "done": done }), |_| format!("{} {done}\n", one.id))
}

fn table(schedules: &[Value]) -> String {
    let mut table = Table::new(&["id", "cron", "state", "next (UTC)", "destination"]);
    for schedule in schedules {
        let is_paused = schedule["isPaused"] == true;
        table.row(vec![
            text(&schedule["scheduleId"]),
            text(&schedule["cron"]),
            if is_paused { "paused" } else { "on" }.to_owned(),
            if is_paused { "-".to_owned() } else { moment(&schedule["nextScheduleTime"]) },
            text(&schedule["destination"]),
        ]);
    }
    table.text_or("no schedules")
}
