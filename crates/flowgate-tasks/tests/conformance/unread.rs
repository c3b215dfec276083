//! Limits that nobody here can read: a newer version wrote them, or a hand. They hold back what is under them, and nothing else.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use flowgate_core::Limits;
use flowgate_tasks::{
    TaskId,
    explain::{Limit, Subject, explain},
    store::{KeyChange, State, Unread},
    worker::{Handlers, Worker, WorkerOptions},
};
use tokio::{sync::oneshot, time::timeout};

use crate::{
    kit::{Kit, SECOND, ids, keyed, max, task},
    sqlite::Folder,
};

const DEADLINE: Duration = Duration::from_secs(60);
const PINNED: &str = "UPDATE keys SET pinned = 'max=5;turbo=3' WHERE name = 'pinned'";
const SENT: &str = "UPDATE keys SET sent = 'most=5', latest = true WHERE name = 'sent'";
const LANE: &str =
    "UPDATE lanes SET limits = 'max=five' WHERE key = (SELECT id FROM keys WHERE name = 'lane')";
const MENDED: &str =
    "UPDATE lanes SET limits = 'max=5' WHERE key = (SELECT id FROM keys WHERE name = 'lane')";

/// Everything waits: two of each key whose limits are then spoilt, and one of another.
async fn spoilt(kit: &Kit, edit: &impl AsyncFn(&'static str)) -> Vec<TaskId> {
    let keys = ["pinned", "sent", "lane"];
    let mut sent =
        kit.send_all(keys.iter().flat_map(|key| [keyed(key, max(5)), keyed(key, max(5))]).collect()).await;
    for sql in [PINNED, SENT, LANE] {
        edit(sql).await;
    }
    sent.push(kit.send(keyed("whole", max(5))).await);
    sent
}

async fn holds_its_own(kit: &Kit, edit: impl AsyncFn(&'static str)) {
    let sent = spoilt(kit, &edit).await;
    let worker = kit.worker().await;
    let turned = worker.turn(Vec::new(), 9, true).await;
    assert_eq!(
        turned.claimed.iter().map(|task| task.id).collect::<Vec<_>>(),
        sent[6..],
        "the other key goes on"
    );
    let told: BTreeSet<_> = turned.unread.iter().map(|Unread { key, text }| (&**key, &**text)).collect();
    let texts = [("lane", "max=five"), ("pinned", "max=5;turbo=3"), ("sent", "most=5")];
    assert_eq!(told, BTreeSet::from(texts));
    for ((key, text), first) in texts.into_iter().zip([sent[4], sent[0], sent[2]]) {
        let (key, text) = (key.to_owned(), text.to_owned());
        let why = explain(kit.store.as_ref(), &Subject::Task(first)).await.expect("a store").expect("a task");
        assert_eq!(why.held_by, [Limit::KeyUnread { key: key.clone(), text: text.clone() }]);
        let look = kit.store.look_at_key(key.clone()).await.expect("a look").expect("a key");
        assert_eq!(look.unread, Some(text).filter(|_| key != "lane"), "a lane's limits are not its key's");
    }
    assert_eq!(kit.shelf.keys(String::new(), 9).await.expect("a page").len(), 4, "they can be looked at");
    kit.pass(SECOND * 14).await;
    assert_eq!(worker.turn(Vec::new(), 9, true).await.unread, [], "they are not looked at all the time");
    kit.change_key("pinned", KeyChange::Pin(max(5))).await;
    edit(MENDED).await;
    assert!(worker.beat().await, "it is still there");
    kit.pass(SECOND * 2).await;
    let claimed: BTreeSet<TaskId> = worker.claim(9).await.iter().map(|task| task.id).collect();
    assert_eq!(
        claimed,
        BTreeSet::from([sent[0], sent[1], sent[4], sent[5]]),
        "what was pinned anew, and mended"
    );
    edit("DELETE FROM tasks").await;
    kit.check().await;
}

async fn gives_way_to_a_pin(kit: &Kit, edit: impl AsyncFn(&'static str)) {
    let sent = spoilt(kit, &edit).await;
    let worker = kit.worker().await;
    assert_eq!(ids(&worker.claim(9).await), sent[6..]);
    for key in ["sent", "lane"] {
        kit.change_key(key, KeyChange::Pin(max(5))).await;
    }
    assert_eq!(ids(&worker.claim(9).await), [], "their rate is not known");
    let both = Limits::builder().max(5).rate(9, "60s").build().expect("limits");
    for key in ["sent", "lane"] {
        kit.change_key(key, KeyChange::Pin(both)).await;
        let look = kit.store.look_at_key(key.to_owned()).await.expect("a look").expect("a key");
        assert_eq!(look.unread, None, "nothing of it holds");
    }
    let claimed: BTreeSet<TaskId> = worker.claim(9).await.iter().map(|task| task.id).collect();
    assert_eq!(claimed, sent[2..6].iter().copied().collect(), "at once");
    edit("DELETE FROM tasks").await;
    kit.check().await;
}

async fn is_told_once(kit: &Kit, edit: impl AsyncFn(&'static str)) {
    spoilt(kit, &edit).await;
    let told = Arc::<Mutex<Vec<String>>>::default();
    let hears = Arc::clone(&told);
    let handlers = Handlers::new().otherwise(|_, _| async { Ok(Vec::new()) });
    let options = WorkerOptions { processes: 3, ..WorkerOptions::default() };
    let worker = Worker::new(Arc::clone(&kit.store), handlers, options).expect("a worker");
    let worker = worker.listen(move |news| hears.lock().expect("whole").push(news.to_string()));
    let (end, asked) = oneshot::channel::<()>();
    let running = tokio::spawn(worker.run(async move { drop(asked.await) }));
    for _ in 0..3 {
        let id = kit.send(task().keep_result(SECOND * 9)).await;
        let done = async {
            while !matches!(kit.state(id).await, Some(State::Done { .. })) {
                flowgate_testkit::between_looks().await;
            }
        };
        timeout(DEADLINE, done).await.expect("it goes on working");
        kit.pass(SECOND * 20).await;
    }
    drop(end);
    running.await.expect("it ends").expect("well");
    let mut told = told.lock().expect("whole").clone();
    told.sort();
    assert_eq!(told.len(), 3, "{told:#?}");
    let first = "the limits of key lane cannot be read: \"max=five\"; work under them keeps waiting, and \
        everything else goes on.";
    assert!(told[0].starts_with(first), "{}", told[0]);
}

mod sqlite {
    use super::*;

    fn edit(folder: &Folder) -> impl AsyncFn(&'static str) {
        let file = folder.file();
        async move |sql| {
            let db = rusqlite::Connection::open(&file).expect("the same file");
            db.busy_timeout(DEADLINE).expect("patience");
            db.execute(sql, []).expect(sql);
        }
    }

    // Seen to fail: with a panic for a text that cannot be read, in the place of the error that it was, the first turn failed.
    #[tokio::test]
    async fn s1_limits_that_cannot_be_read_hold_back_their_own() {
        let folder = Folder::new();
        holds_its_own(&Kit::sqlite_at(&folder.file()), edit(&folder)).await;
    }

    // Seen to fail: with a lane's own text looked at beside any pin, those of the one key waited on; with the newest sent, the
    // other was told to be unreadable.
    #[tokio::test]
    async fn f3_pinned_limits_overrule_those_that_cannot_be_read() {
        let folder = Folder::new();
        gives_way_to_a_pin(&Kit::sqlite_at(&folder.file()), edit(&folder)).await;
    }

    // Seen to fail: without the texts that were told, they were told again and again.
    #[tokio::test]
    async fn s1_limits_that_cannot_be_read_are_told_once() {
        let folder = Folder::new();
        is_told_once(&Kit::sqlite_at(&folder.file()), edit(&folder)).await;
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::*;

    async fn edit(url: &str) -> impl AsyncFn(&'static str) + use<> {
        let (client, connection) =
            tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("a connection");
        tokio::spawn(connection);
        client.batch_execute("SET search_path TO flowgate").await.expect("the schema");
        async move |sql| client.batch_execute(sql).await.expect(sql)
    }

    // Seen to fail: with a panic for a text that cannot be read, in the place of the error that it was, the first turn failed.
    #[tokio::test]
    async fn s1_limits_that_cannot_be_read_hold_back_their_own() {
        let (kit, url) = Kit::postgres_at("unread").await;
        holds_its_own(&kit, edit(&url).await).await;
    }

    // Seen to fail: with a lane's own text looked at beside any pin, those of the one key waited on; with the newest sent, the
    // other was told to be unreadable.
    #[tokio::test]
    async fn f3_pinned_limits_overrule_those_that_cannot_be_read() {
        let (kit, url) = Kit::postgres_at("unread_pinned").await;
        gives_way_to_a_pin(&kit, edit(&url).await).await;
    }

    // Seen to fail: without the texts that were told, they were told again and again.
    #[tokio::test]
    async fn s1_limits_that_cannot_be_read_are_told_once() {
        let (kit, url) = Kit::postgres_at("unread_once").await;
        is_told_once(&kit, edit(&url).await).await;
    }
}
