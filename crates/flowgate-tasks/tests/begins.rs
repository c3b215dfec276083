//! Transactions that do not begin. What flies behind a `BEGIN` is on its way before its answer is there; should the server have
//! cancelled it, or have run out of time or memory, every statement behind it is in no transaction at all. A wire between a
//! store and its server brings that about: one `BEGIN` that is armed for arrives as a word that nobody knows.

#![cfg(feature = "postgres")]

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use flowgate_core::Limits;
use flowgate_tasks::{
    NewTask, TaskId,
    store::{
        Ahead, Claimed, End, NewStep, NewWorker, Offer, Postgres, QueueLimits, RunChange, RunOutcome,
        RunWrite, Settle, Shelf as _, Store as _, Turn, Turned, Want, WorkerId,
    },
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, copy},
    net::{TcpListener, TcpStream},
};

/// The first word of a frame that asks for encryption.
const ENCRYPT: [u8; 4] = 80_877_103_u32.to_be_bytes();

struct Scene {
    store: Postgres,
    worker: WorkerId,
    is_armed: Arc<AtomicBool>,
}

async fn start(name: &str) -> Scene {
    let cluster = flowgate_testkit::postgres::Postgres::shared();
    let url = cluster.create_database(name).expect("a database");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let is_armed = Arc::new(AtomicBool::new(false));
    tokio::spawn(serve(listener, cluster.port(), Arc::clone(&is_armed)));
    let url = url.replace(&format!(":{}/", cluster.port()), &format!(":{port}/"));
    let store = Postgres::connect(&url).await.expect("a store");
    let lease = Duration::from_secs(600);
    let worker = NewWorker { name: "one".to_owned(), slots: 9, queues: Vec::new(), lease };
    let worker = store.register(worker).await.expect("a worker");
    Scene { store, worker, is_armed }
}

async fn serve(listener: TcpListener, port: u16, is_armed: Arc<AtomicBool>) {
    while let Ok((client, _)) = listener.accept().await {
        let server = TcpStream::connect(("127.0.0.1", port)).await.expect("the server");
        [&client, &server].into_iter().for_each(|side| side.set_nodelay(true).expect("a setting"));
        let is_armed = Arc::clone(&is_armed);
        tokio::spawn(async move {
            let (mut asks, mut hears) = client.into_split();
            let (mut answers, mut obeys) = server.into_split();
            tokio::select! {
                _ = copy(&mut answers, &mut hears) => {}
                _ = pass_on(&mut asks, &mut obeys, &is_armed) => {}
            }
        });
    }
}

/// Frame by frame. The first ones have no letter.
async fn pass_on(
    asks: &mut (impl AsyncRead + Unpin),
    obeys: &mut (impl tokio::io::AsyncWrite + Unpin),
    is_armed: &AtomicBool,
) -> io::Result<()> {
    loop {
        let frame = frame(asks).await?;
        obeys.write_all(&frame).await?;
        if frame[4..] != ENCRYPT {
            break;
        }
    }
    loop {
        let letter = asks.read_u8().await?;
        let mut frame = frame(asks).await?;
        if letter == b'Q'
            && frame[4..].starts_with(b"BEGIN DEFERRABLE")
            && is_armed.swap(false, Ordering::SeqCst)
        {
            frame[4..9].copy_from_slice(b"BEGUN");
        }
        frame.insert(0, letter);
        obeys.write_all(&frame).await?;
    }
}

/// Its length, itself included, and what it has.
async fn frame(asks: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let length = asks.read_u32().await?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.resize(length as usize, 0);
    asks.read_exact(&mut frame[4..]).await?;
    Ok(frame)
}

impl Scene {
    /// The next transaction does not begin.
    fn arm(&self) {
        self.is_armed.store(true, Ordering::SeqCst);
    }

    fn was_hit(&self) {
        assert!(!self.is_armed.load(Ordering::SeqCst), "nothing tried to begin");
    }

    async fn live(&self) -> usize {
        self.store.live_tasks(TaskId(0), 100).await.expect("a list").len()
    }

    async fn check(&self) {
        assert_eq!(self.store.audit().await.expect("an audit"), [""; 0]);
    }

    async fn turn(&self, turn: Turn) -> Turned {
        self.store.turn(self.worker, turn).await.expect("a turn")
    }

    /// A turn that does not begin.
    async fn fail(&self, turn: Turn) {
        self.arm();
        let said = self.store.turn(self.worker, turn).await.expect_err("it did not begin").to_string();
        assert!(said.contains("BEGUN"), "{said}");
        self.was_hit();
    }
}

fn task() -> NewTask {
    NewTask::new("one", Vec::new())
}

fn want(slots: u32) -> Option<Want> {
    Some(Want { slots, per_queue: 9, with_locks: true })
}

fn failed(task: &Claimed) -> Settle {
    let end = End::Failed { error: "once more".to_owned(), retry_after: Duration::ZERO };
    Settle { task: task.clone(), end }
}

// Seen to fail: without `begun!()` in `CLAIM_NAMES`, the second send was told that it is a duplicate of a task that is
// not there; without it in `ADD_TASKS`, the task of a send that failed was there; without it in `runs::START` or
// `runs::CHANGE`, what was written again had been before, and its task was nowhere.
#[tokio::test]
async fn s1_a_send_that_did_not_begin_leaves_nothing() {
    let scene = start("begins_sends").await;
    let named = || vec![task().dedupe("once", Duration::from_secs(60))];
    scene.arm();
    scene.store.send(named()).await.expect_err("it did not begin");
    scene.was_hit();
    assert!(!scene.store.send(named()).await.expect("sent")[0].is_duplicate);
    scene.arm();
    scene.store.send(vec![task()]).await.expect_err("it did not begin");
    assert_eq!(scene.live().await, 1);

    let offer = Offer { worker: scene.worker, slots: 1, per_queue: 9, queues: Vec::new() };
    let mut offered = scene.store.offer(offer).expect("it takes offers");
    scene.arm();
    let sent = scene.store.send(vec![task()]).await.expect("it is made again without its claim");
    scene.was_hit();
    assert!(offered.answer().await.expect("a turn").claimed.is_empty(), "the worker looks for itself");
    assert_eq!((sent.len(), scene.live().await), (1, 2));
    scene.check().await;

    let start = RunWrite::Start { id: "run".to_owned(), origin: None, head: Vec::new() };
    for (write, name) in [(start, "init"), (RunWrite::append(), "next")] {
        let before = scene.live().await;
        let step = NewStep { name: name.to_owned(), body: Vec::new(), task: Some(task()) };
        let change = RunChange { name: "run-1".to_owned(), write, steps: vec![step], tasks: Vec::new() };
        scene.arm();
        scene.store.change_runs(vec![change.clone()]).await.expect_err("it did not begin");
        scene.was_hit();
        let written = scene.store.change_runs(vec![change]).await.expect("a change").remove(0);
        let RunOutcome::Written { steps, .. } = written else { panic!("{name}: {written:?}") };
        assert!(!steps[0].is_duplicate, "{name}");
        assert_eq!(scene.live().await, before + 1, "{name}");
    }
    scene.check().await;
}

// Seen to fail: without `begun!()` in `SENT_LIMITS`, the limits of the send that failed were in force: two more of the
// key were claimed.
#[tokio::test]
async fn s1_the_limits_of_a_send_that_did_not_begin_are_not_in_force() {
    let scene = start("begins_limits").await;
    let keyed = |max| task().key("key").limits(Limits::builder().max(max).build().expect("limits"));
    scene.store.set_latest(true).await.expect("the newest limits govern");
    scene.store.send(vec![keyed(1), keyed(1), keyed(1)]).await.expect("sent");
    assert_eq!(scene.turn(Turn { want: want(9), ..Turn::default() }).await.claimed.len(), 1);
    scene.arm();
    scene.store.send(vec![keyed(3)]).await.expect_err("it did not begin");
    scene.was_hit();
    // Each looks at one more of the key's lanes.
    let claims = async || {
        let mut claimed = 0;
        for _ in 0..3 {
            claimed += scene.turn(Turn { want: want(9), ..Turn::default() }).await.claimed.len();
        }
        claimed
    };
    assert_eq!(claims().await, 0, "one runs, and one may");
    scene.store.send(vec![keyed(3)]).await.expect("sent");
    assert_eq!(claims().await, 2);
    scene.check().await;
}

// Seen to fail: without `begun!()` in `GIVE_BACK_SOME` or `GIVE_BACK`, the key's count had one more than was held, for
// ever, and what was given back again was lost; without it in `ahead::START`, two of the queue ran and one was counted.
#[tokio::test]
async fn t5_a_turn_that_did_not_begin_settles_nothing() {
    let scene = start("begins_turns").await;
    let limits = Limits::builder().max(2).build().expect("limits");
    let keyed = || task().key("key").limits(limits);
    scene.store.send(vec![keyed(), keyed()]).await.expect("sent");
    let claimed = scene.turn(Turn { want: want(9), ..Turn::default() }).await.claimed;
    assert_eq!(claimed.len(), 2);
    for settles in [vec![failed(&claimed[0])], vec![failed(&claimed[1])]] {
        let turn = || Turn { settles: settles.clone(), ..Turn::default() };
        scene.fail(turn()).await;
        scene.check().await;
        assert_eq!(scene.turn(turn()).await.lost, []);
        scene.check().await;
    }
    let again = scene.turn(Turn { want: want(9), ..Turn::default() }).await.claimed;
    assert_eq!(again.iter().map(|task| task.attempt).collect::<Vec<_>>(), [2, 2], "both came back");

    let queue = QueueLimits { name: "soft".to_owned(), priority: 1, max: Some(1) };
    scene.store.set_queue(queue).await.expect("a cap");
    scene.store.send(vec![task().queue("soft"), task().queue("soft")]).await.expect("sent");
    let ahead = Some(Ahead { most: 1, lease: Duration::from_secs(60) });
    let turned = scene.turn(Turn { want: want(1), ahead, ..Turn::default() }).await;
    let (settles, starts) = (turned.claimed.iter().map(failed).collect::<Vec<_>>(), turned.ahead);
    assert_eq!((settles.len(), starts.len()), (1, 1));
    let turn = || Turn { settles: settles.clone(), starts: starts.clone(), ..Turn::default() };
    scene.fail(turn()).await;
    scene.check().await;
    assert_eq!(scene.turn(turn()).await.lost, []);
    scene.check().await;
}

// Seen to fail: without `begun!()` in `REMOVE_DEAD`, the second try found nothing that was dead.
#[tokio::test]
async fn s1_a_revival_that_did_not_begin_is_none() {
    let scene = start("begins_revivals").await;
    let id = scene.store.send(vec![task()]).await.expect("sent")[0].id;
    let claimed = scene.turn(Turn { want: want(1), ..Turn::default() }).await.claimed.remove(0);
    let settles = vec![Settle { task: claimed, end: End::Dead { error: "over".to_owned() } }];
    scene.turn(Turn { settles, ..Turn::default() }).await;
    scene.arm();
    scene.store.revive(id).await.expect_err("it did not begin");
    scene.was_hit();
    assert_eq!(scene.live().await, 0);
    assert!(scene.store.revive(id).await.expect("an answer"), "it is still dead");
    assert_eq!(scene.live().await, 1);
    scene.check().await;
}
