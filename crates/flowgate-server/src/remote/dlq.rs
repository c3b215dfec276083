//! `flowgate dlq …`: messages that no attempt is left for.

use http::Method;
use serde_json::{Value, json};

use super::{
    client::{Server, moment, part, say_json, text},
    failure::Failure,
    options::{DlqAction, DlqOptions},
};
use crate::commands::Table;

pub(crate) fn dlq(options: &DlqOptions) -> Result<(), Failure> {
    match &options.action {
        DlqAction::List { label, count, server } => {
            let label = label.as_deref().map(|label| format!("&label={}", part(label))).unwrap_or_default();
            let server = Server::new(server)?;
            let found = server.ask(Method::GET, &format!("/v2/dlq?count={count}{label}"))?;
            server.print(&found, |found| table(found["messages"].as_array().map_or(&[], Vec::as_slice)))
        }
        DlqAction::Show(letter) => {
            let server = Server::new(&letter.server)?;
            let found = server.ask(Method::GET, &format!("/v2/dlq/{}", part(&letter.id)))?;
            say_json(&found)
        }
        DlqAction::Retry(letter) => {
            let server = Server::new(&letter.server)?;
            let sent = server.ask(Method::POST, &format!("/v2/dlq/retry/{}", part(&letter.id)))?;
            server.print(&sent, |sent| format!("sent again as {}\n", text(&sent["messageId"])))
        }
        DlqAction::Delete(letter) => {
            let server = Server::new(&letter.server)?;
            server.ask(Method::DELETE, &format!("/v2/dlq/{}", part(&letter.id)))?;
            server.print(&json!({ "dlqId": letter.id, "done": "is deleted" }), |_| {
                format!("{} is deleted\n", letter.id)
            })
        }
    }
}

fn table(letters: &[Value]) -> String {
    let mut table = Table::new(&["id", "created (UTC)", "key", "label", "url", "why"]);
    for letter in letters {
        let mut row = vec![text(&letter["dlqId"]), moment(&letter["createdAt"])];
        row.extend(["flowControlKey", "label", "url", "reason"].map(|field| text(&letter[field])));
        table.row(row);
    }
    table.text_or("no dead letters")
}
