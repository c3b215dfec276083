//! A database that is away while a worker starts.

#![cfg(feature = "postgres")]

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use flowgate_tasks::{
    NewTask,
    store::{Postgres, Store, StoreError},
    worker::{Ending, Handlers, Worker, WorkerOptions},
};
use flowgate_testkit::postgres::{Options, Postgres as Cluster};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc, watch},
    time::timeout,
};

const DEADLINE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_a_worker_waits_for_a_store_that_is_away_when_it_starts() {
    // Seen to fail: with a first lease that is asked for once, the worker ended with an error.
    let cluster =
        tokio::task::spawn_blocking(|| Cluster::start(Options::default())).await.unwrap().expect("a server");
    let url = cluster.create_database("away").expect("a database");
    let store: Arc<dyn Store> = Arc::new(Postgres::connect(&url).await.expect("a store"));
    cluster.stop().expect("it stops");

    let (told, mut ran) = mpsc::channel(1);
    let handlers = Handlers::new().on("hello", move |name: String| {
        let told = told.clone();
        async move {
            told.send(name).await.expect("somebody listens");
            Ok::<(), Infallible>(())
        }
    });
    let worker = |handlers| Worker::new(Arc::clone(&store), handlers, WorkerOptions::default()).unwrap();
    let (end, asked) = tokio::sync::oneshot::channel::<()>();
    let mut patient = tokio::spawn(worker(handlers).run(async move { drop(asked.await) }));
    let mut asked_to_end = tokio::spawn(worker(Handlers::new()).run(std::future::ready(())));
    let ended = timeout(DEADLINE, &mut asked_to_end).await.expect("it does not wait").unwrap();
    assert_eq!(ended.expect("it had nothing to do"), Ending::default());
    assert!(timeout(Duration::from_secs(1), &mut patient).await.is_err(), "it waits");

    cluster.restart().expect("it starts again");
    store.send(vec![NewTask::new("hello", br#""world""#.to_vec())]).await.expect("sent");
    assert_eq!(timeout(DEADLINE, ran.recv()).await.expect("it runs").as_deref(), Some("world"));
    drop(end);
    let ending = timeout(DEADLINE, patient).await.expect("it ends").unwrap().expect("and well");
    assert_eq!(ending.settled, 1);
}

/// Tells when it is dropped.
struct Told(mpsc::UnboundedSender<()>);

impl Drop for Told {
    fn drop(&mut self) {
        let _nobody_listens = self.0.send(());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_a_worker_whose_lease_is_over_while_its_store_is_away_can_be_stopped_at_once() {
    // Seen to fail: with only `shutdown` heard while it waits for another lease, it did not end.
    let cluster =
        tokio::task::spawn_blocking(|| Cluster::start(Options::default())).await.unwrap().expect("a server");
    let url = cluster.create_database("hurried").expect("a database");
    let store: Arc<dyn Store> = Arc::new(Postgres::connect(&url).await.expect("a store"));
    let ((began, mut begins), (ended, mut ends)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    let handlers = Handlers::new().on_bytes("endless", move |_, _| {
        let (began, told) = (began.clone(), Told(ended.clone()));
        async move {
            began.send(()).expect("somebody listens");
            let _told = told;
            std::future::pending().await
        }
    });
    store.send(vec![NewTask::new("endless", Vec::new())]).await.expect("sent");
    let options = WorkerOptions { lease: Duration::from_secs(1), ..WorkerOptions::default() };
    let (stop, asked) = tokio::sync::oneshot::channel::<()>();
    let worker = Worker::new(Arc::clone(&store), handlers, options).expect("a worker");
    let worker = worker.stop_at_once(async move { drop(asked.await) });
    let worker = tokio::spawn(worker.run(std::future::pending()));
    timeout(DEADLINE, begins.recv()).await.expect("it begins");
    cluster.stop().expect("it stops");
    timeout(DEADLINE, ends.recv()).await.expect("its lease is over, and what ran is stopped");
    drop(stop);
    let ended = timeout(DEADLINE, worker).await.expect("it ends").unwrap();
    let ending = ended.expect("though the store does not hear that it leaves");
    assert_eq!((ending.settled, ending.lost), (0, 1));
}

/// Passes on what comes to a server, until it is told that the server is away: then whoever comes is counted, and shut
/// out when it is let go.
async fn serve(
    listener: TcpListener,
    port: u16,
    is_away: watch::Receiver<bool>,
    shut_out: Arc<Semaphore>,
    came: Arc<AtomicU32>,
) {
    while let Ok((mut client, _)) = listener.accept().await {
        let (mut is_away, shut_out, came) = (is_away.clone(), Arc::clone(&shut_out), Arc::clone(&came));
        tokio::spawn(async move {
            if *is_away.borrow() {
                came.fetch_add(1, Ordering::SeqCst);
                let _is_let_go = shut_out.acquire().await;
                return;
            }
            let mut server = TcpStream::connect(("127.0.0.1", port)).await.expect("the server");
            tokio::select! {
                _ = copy_bidirectional(&mut client, &mut server) => {}
                _ = is_away.wait_for(|is_away| *is_away) => {}
            }
        });
    }
}

// On one thread, so that all sends have asked before they are let go.
#[tokio::test]
async fn s1_a_connection_that_cannot_be_had_is_tried_once_for_all_who_wait_for_it() {
    // Seen to fail: with each of them trying in its turn, there were as many tries as sends.
    const SENDS: u32 = 40;
    let cluster = Cluster::shared();
    let url = cluster.create_database("shared_failure").expect("a database");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let (away, is_away) = watch::channel(false);
    let (shut_out, came) = (Arc::new(Semaphore::new(0)), Arc::<AtomicU32>::default());
    tokio::spawn(serve(listener, cluster.port(), is_away, Arc::clone(&shut_out), Arc::clone(&came)));
    let url = url.replace(&format!(":{}/", cluster.port()), &format!(":{port}/"));
    let store = Arc::new(Postgres::connect(&url).await.expect("a store"));
    let send = |store: &Arc<Postgres>| {
        let store = Arc::clone(store);
        tokio::spawn(async move { store.send(vec![NewTask::new("one", Vec::new())]).await })
    };
    send(&store).await.unwrap().expect("sent");

    away.send_replace(true);
    let sends: Vec<_> = (0..SENDS).map(|_| send(&store)).collect();
    let tried = async {
        while came.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, tried).await.expect("it is tried");
    // All of them come to wait for it.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    shut_out.close();
    for send in sends {
        let error = timeout(DEADLINE, send).await.expect("it is told").unwrap().expect_err("nobody is there");
        assert!(matches!(error, StoreError::Database { .. }), "{error}");
    }
    // Whoever listens tries by itself, twice a second.
    let tries = came.load(Ordering::SeqCst);
    assert!(tries < SENDS / 2, "{tries} tries for {SENDS} sends");

    away.send_replace(false);
    send(&store).await.unwrap().expect("it is there again");
}
