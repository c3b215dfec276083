//! What is done with a peer, and what is told of it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines, Stdin, stdin},
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    floor::{self, Floor},
    order::{Command, Order},
    peer::{Failure, Peer},
    task::Task,
};

/// How many tasks are inserted in one call.
const BATCH: usize = 1_000;
/// How many such calls there are at once.
const INSERTERS: usize = 4;
/// How often the store is asked whether all is over, once all have run.
const LOOK: Duration = Duration::from_millis(2);
/// How often the count of those that ran is told.
const TELL: Duration = Duration::from_millis(50);
/// How long a worker may take to stop before the process simply ends.
const STOP: Duration = Duration::from_secs(3);

/// Does as ordered.
pub(crate) async fn play<P: Peer>(order: &Order) -> Result<(), Failure> {
    let floor = floor::open(order);
    let peer = Arc::new(P::open(order).await?);
    match order.command {
        Command::SetUp => Ok(()),
        Command::Insert => insert(&peer, order).await,
        Command::Send => send(&peer, order).await,
        Command::Drain => drain(&peer, order, floor).await,
        Command::Work => work(&peer, floor).await,
        Command::Latency => latency(&peer, order, floor).await,
    }
}

async fn insert<P: Peer>(peer: &Arc<P>, order: &Order) -> Result<(), Failure> {
    let tasks: Vec<Task> = Task::many(order.count, order.keys).collect();
    let mut callers = JoinSet::new();
    let start = Instant::now();
    let share = tasks.len().div_ceil(INSERTERS).max(1);
    for share in tasks.chunks(share).map(<[Task]>::to_vec) {
        let peer = Arc::clone(peer);
        callers.spawn(async move {
            for batch in share.chunks(BATCH) {
                peer.insert(batch.to_vec()).await?;
            }
            Ok::<(), Failure>(())
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended??;
    }
    tell_seconds(start.elapsed());
    Ok(())
}

async fn send<P: Peer>(peer: &Arc<P>, order: &Order) -> Result<(), Failure> {
    let mut callers = JoinSet::new();
    let start = Instant::now();
    for caller in 0..order.callers {
        let peer = Arc::clone(peer);
        let (count, keys, callers_in_all) = (order.count, order.keys, order.callers);
        callers.spawn(async move {
            for task in Task::many(count, keys).skip(caller as usize).step_by(callers_in_all as usize) {
                peer.send(task).await?;
            }
            Ok::<(), Failure>(())
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended??;
    }
    tell_seconds(start.elapsed());
    Ok(())
}

async fn drain<P: Peer>(peer: &Arc<P>, order: &Order, floor: &Floor) -> Result<(), Failure> {
    let mut lines = ready().await?;
    let stop = CancellationToken::new();
    let start = Instant::now();
    let mut worker = tokio::spawn(Arc::clone(peer).work(stop.clone()));
    tokio::select! {
        () = floor.reached() => {}
        ended = &mut worker => return Err(ended_early(ended)),
        // Told to stop: it is too slow, and says how far it came.
        _ = lines.next_line() => {
            tell_ran(start.elapsed(), floor);
            return Ok(());
        }
    }
    // One that settles behind its back is not done when the last handler is.
    while peer.unfinished().await? > 0 {
        sleep(LOOK).await;
    }
    let took = start.elapsed();
    assert!(floor.ran() >= order.count, "all have run");
    tell_ran(took, floor);
    stop.cancel();
    let _ = timeout(STOP, worker).await;
    Ok(())
}

async fn work<P: Peer>(peer: &Arc<P>, floor: &Floor) -> Result<(), Failure> {
    let mut lines = ready().await?;
    let stop = CancellationToken::new();
    let start = Instant::now();
    let mut worker = tokio::spawn(Arc::clone(peer).work(stop.clone()));
    let mut ticks = interval(TELL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => tell_ran(start.elapsed(), floor),
            _ = lines.next_line() => break,
            ended = &mut worker => return Err(ended_early(ended)),
        }
    }
    stop.cancel();
    let _ = timeout(STOP, worker).await;
    for record in floor.records() {
        println!("{}", json!({ "record": record }));
    }
    Ok(())
}

async fn latency<P: Peer>(peer: &Arc<P>, order: &Order, floor: &Floor) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    let mut worker = tokio::spawn(Arc::clone(peer).work(stop.clone()));
    // It has connected, listened and found nothing by then.
    sleep(Duration::from_secs(1)).await;
    for task in Task::many(order.count, order.keys) {
        floor.sends(task.number);
        tokio::select! {
            sent = peer.send(task) => sent?,
            ended = &mut worker => return Err(ended_early(ended)),
        }
        sleep(order.interval).await;
    }
    let _ = timeout(Duration::from_secs(10), floor.reached()).await;
    for wait in floor.waits() {
        println!("{}", json!({ "wait": wait.as_secs_f64() }));
    }
    stop.cancel();
    let _ = timeout(STOP, worker).await;
    Ok(())
}

/// Says that the worker can start, and waits for the word.
async fn ready() -> Result<Lines<BufReader<Stdin>>, Failure> {
    println!("{}", json!({ "ready": true }));
    let mut lines = BufReader::new(stdin()).lines();
    lines.next_line().await?;
    Ok(lines)
}

fn ended_early(ended: Result<Result<(), Failure>, tokio::task::JoinError>) -> Failure {
    match ended {
        Ok(Ok(())) => "the worker ended by itself".into(),
        Ok(Err(error)) => error,
        Err(error) => error.into(),
    }
}

fn tell_seconds(took: Duration) {
    println!("{}", json!({ "seconds": took.as_secs_f64() }));
}

fn tell_ran(took: Duration, floor: &Floor) {
    println!("{}", json!({ "ran": floor.ran(), "seconds": took.as_secs_f64() }));
}
