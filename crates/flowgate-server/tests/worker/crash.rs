//! Workers that die, and workers that are told to stop.

use std::{
    collections::HashSet,
    io::{BufRead as _, BufReader},
    process::Stdio,
    time::Duration,
};

use flowgate_tasks::store::State;

use crate::{
    kit::{Place, on_both},
    record::{self, SCRIPT},
};

/// The first event that is told of this kind, waited for by the rows that come.
fn begun(place: &Place, count: usize) -> Vec<record::Event> {
    place.wait(async {
        let mut look = tokio::time::interval(Duration::from_millis(20));
        loop {
            look.tick().await;
            let events: Vec<_> =
                record::read(&place.folder).into_iter().filter(|event| event.is_begin).collect();
            if events.len() >= count {
                return events;
            }
        }
    })
}

#[test]
fn t5_tasks_of_a_killed_worker_run_again_when_its_lease_is_over() {
    // Seen to fail: with the lease that nobody asks for, of 15 s.
    on_both("killed", |place| {
        let lease = Duration::from_secs(6);
        let victim = place.worker(&["--processes=4", "--lease=6s"], SCRIPT);
        let ids = place.send(
            (0..4)
                .map(|_| {
                    flowgate_tasks::NewTask::new("killed", b"5000".to_vec())
                        .keep_result(Duration::from_secs(600))
                })
                .collect(),
        );
        let first: HashSet<i64> = begun(place, 4).into_iter().map(|event| event.task).collect();
        let heir = place.worker(&["--processes=4", "--lease=6s"], SCRIPT);
        let workers = place.wait(place.store.workers()).expect("the store answers");
        assert!(
            !workers.is_empty() && workers.iter().all(|worker| worker.lease_left <= lease),
            "{workers:?}"
        );
        victim.signal("KILL");
        // How soon after that depends on the machine, which others may share.
        let again = begun(place, 8);
        for event in &again[4..] {
            assert!(first.contains(&event.task));
            assert_eq!(event.worker, heir.process());
        }
        // Each child ended with its worker: what it ran has no end, and nothing ran twice at once.
        place.ends(&ids);
        let events = record::read(&place.folder);
        assert_eq!(events.iter().filter(|event| !event.is_begin).count(), 4, "{events:?}");
    });
}

#[test]
fn t7_a_signal_lets_running_tasks_end_and_a_second_one_stops_at_once() {
    // Seen to fail: with the second signal not heard, it waits for the drain to end; with nothing settled then, what
    // ran was its for an hour.
    let place = Place::sqlite("signals");
    // Two that end, and two that are only ever cut off.
    let tasks = ["4000", "4000", "600000", "600000"].map(|length| {
        flowgate_tasks::NewTask::new("slow", length.into()).keep_result(Duration::from_secs(600))
    });
    let mut worker = place.worker(&["--processes=2"], SCRIPT);
    let ids = place.send(tasks.to_vec());
    begun(&place, 2);
    worker.signal("TERM");
    worker.until("stopping: running tasks have 30s to finish (a second signal stops at once)");
    let (code, said) = worker.end();
    assert_eq!(code, Some(0), "{said:?}");
    assert_eq!(said.last().map(String::as_str), Some("stopped: 2 tasks settled"));
    place.ends(&ids[..2]);
    assert_eq!(
        record::read(&place.folder).len(),
        4,
        "the two that ran have ended, the others have not begun"
    );

    // A lease that nobody waits for.
    let mut worker = place.worker(&["--processes=2", "--lease=1h"], SCRIPT);
    begun(&place, 4);
    worker.signal("INT");
    worker.until("stopping: ");
    worker.signal("INT");
    let (code, said) = worker.end();
    assert_eq!(code, Some(130), "{said:?}");
    let told = format!("stopped: 0 tasks settled, 2 ended at once and tried again: {}, {}", ids[2], ids[3]);
    assert!(said.contains(&told), "{said:?}");
    assert_eq!(record::read(&place.folder).len(), 6, "what ran was killed");

    let worker = place.worker(&["--processes=2", "--drain=100ms"], SCRIPT);
    begun(&place, 6);
    worker.signal("TERM");
    let (code, said) = worker.end();
    assert_eq!(code, Some(0), "{said:?}");
    let told = "stopped: 0 tasks settled, 2 ended by the deadline and tried again: ";
    assert!(said.iter().any(|line| line.starts_with(told)), "{said:?}");
}

/// Who has a file locked, until it is dropped, or waits for its lock for 25 seconds.
struct Locking(std::process::Child);

impl Locking {
    fn start(file: &std::path::Path) -> Self {
        let script = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1], 25, isolation_level=None); \
            print('begins', flush=True); db.execute('BEGIN IMMEDIATE'); print('locked', flush=True); sys.stdin.read()";
        let mut command = std::process::Command::new(crate::program::python());
        command.args(["-S", "-E", "-c", script]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        Locking(command.stderr(Stdio::null()).spawn().expect("python3 runs"))
    }

    /// Waits until it says this.
    fn until(&mut self, text: &str) {
        let said = BufReader::new(self.0.stdout.as_mut().expect("it was asked for"));
        assert!(said.lines().map_while(Result::ok).any(|line| line == text), "it says {text}");
    }
}

impl Drop for Locking {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn t7_a_worker_ends_by_two_signals_though_another_process_has_its_file_locked() {
    // Seen to fail: with the lock waited for in one go and to the end, its last words were said, and it went on for a minute.
    let place = Place::sqlite("locked");
    let mut worker = place.worker(&["--processes=1", "--lease=1h"], SCRIPT);
    let slow = flowgate_tasks::NewTask::new("slow", b"600000".to_vec());
    let id = place.send(vec![slow])[0];
    begun(&place, 1);
    let file = place.folder.join("flowgate.db");
    let mut holder = Locking::start(&file);
    holder.until("locked");
    worker.signal("TERM");
    worker.until("stopping: ");
    worker.signal("TERM");
    worker.until("stopped at once: tasks that ran will run again when the lease ends");
    let mut patient = Locking::start(&file);
    patient.until("begins");
    let (code, said) = worker.end();
    assert_eq!(code, Some(143), "{said:?}");
    assert!(patient.0.try_wait().expect("a look").is_none(), "it has waited no longer than others do");
    drop((patient, holder));
    let look = place.wait(place.store.look_at_task(id)).expect("the store answers").expect("a task");
    assert!(matches!(look.state, State::Held { .. }), "{look:?}");
}

#[test]
fn t7_what_a_process_has_read_has_begun_also_where_its_worker_has_not_seen_it() {
    // Seen to fail: with what was last seen of the pipe decisive, the task went back as if it had never begun.
    let place = Place::sqlite("unseen");
    let script = r#"
import os, signal, sys, time
while not os.path.exists("ready"): time.sleep(0.01)
sys.stdin.readline()
os.kill(os.getppid(), signal.SIGINT)
time.sleep(60)
"#;
    let mut worker = place.worker(&["--processes=1", "--lease=1h"], script);
    let ids = place.send(vec![flowgate_tasks::NewTask::new("unseen", b"null".to_vec())]);
    place.until_held(ids[0]);
    worker.signal("INT");
    worker.until("stopping: ");
    std::fs::write(place.folder.join("ready"), "").expect("the folder can be written to");
    let (code, said) = worker.end();
    assert_eq!(code, Some(130), "{said:?}");
    let told = format!("stopped: 0 tasks settled, 1 ended at once and tried again: {}", ids[0]);
    assert!(said.contains(&told), "{said:?}");
}
