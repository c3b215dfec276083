//! `flowgate token …`: who may use the API.
//!
//! Tokens are made in the store itself, and opening the store needs no token.

use std::io::{self, Write as _};

use super::{
    client::say,
    failure::Failure,
    options::{TokenAction, TokenOptions},
};
use crate::{commands::Table, office::Secrets, serve::StoreAt, terminal::plain};

pub(crate) fn token(options: &TokenOptions) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Start)?;
    let (TokenAction::Create { store, .. } | TokenAction::List { store } | TokenAction::Revoke { store, .. }) =
        &options.action;
    let at = StoreAt::from(&store.sources().load().map_err(Failure::Config)?.config.store);
    let makes_one = matches!(options.action, TokenAction::Create { .. });
    if let StoreAt::Sqlite(path) = &at
        && !makes_one
        && !path.exists()
    {
        return Err(Failure::NoStore(at.to_string()));
    }
    let failed = |error| Failure::Store { at: at.to_string(), error };
    let is_new = matches!(&at, StoreAt::Sqlite(path) if !path.exists());
    runtime.block_on(async {
        let store = at.open().await.map_err(failed)?;
        match &options.action {
            TokenAction::Create { name, namespace, .. } => {
                let space = namespace.clone().unwrap_or_default();
                let token = Secrets::create(&*store, name, space).await.map_err(failed)?;
                if is_new {
                    // Only the token is for a pipe; nobody may be left to read this.
                    let other = "to use another one, set --store or FLOWGATE_STORE";
                    let _ = writeln!(io::stderr(), "{}", plain(&format!("made a new store, {at}; {other}")));
                }
                say(&format!("{token}\n"))
            }
            TokenAction::List { .. } => {
                let mut table = Table::new(&["id", "name", "created", "namespace"]);
                for (id, note) in Secrets::list(&*store).await.map_err(failed)? {
                    let made = jiff::Timestamp::from_millisecond(note.created as i64);
                    let made =
                        made.map_or_else(|_| "-".to_owned(), |made| made.strftime("%F %T").to_string());
                    let space = if note.space.is_root() { "-" } else { note.space.as_str() };
                    table.row(vec![id, note.name, made, space.to_owned()]);
                }
                say(&table.text_or("no tokens"))
            }
            TokenAction::Revoke { id, .. } => match Secrets::revoke(&*store, id).await.map_err(failed)? {
                true => say(&format!("{id} is no longer accepted\n")),
                false => Err(Failure::Refused(format!("no token begins with {id:?}, or more than one does"))),
            },
        }
    })
}
