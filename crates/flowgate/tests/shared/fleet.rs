//! Real processes, killed.
//!
//! A process of this very program is a member of the fleet when it is told so by its environment. Each writes down by
//! the machine's clock when it got a pass and when it gave it back; who was killed gave back what it had when it was
//! killed.

use std::{
    env, fs,
    io::{Read as _, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use flowgate::Reason;

use super::kit::{PATIENCE, Store, runtime, started, stores};

const MAX: u32 = 3;
const LEASE: Duration = Duration::from_secs(3);
const STORE: &str = "FLOWGATE_SHARED_STORE";
const GATE: &str = "FLOWGATE_SHARED_GATE";
const RECORD: &str = "FLOWGATE_SHARED_RECORD";

fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()
}

/// Where the processes of the fleet begin. Run as a test it has nothing to do.
#[test]
fn the_member_process() {
    let (Ok(url), Ok(gate), Ok(record)) = (env::var(STORE), env::var(GATE), env::var(RECORD)) else { return };
    let store = Store { url, gate };
    // Gone with the test, whatever becomes of that.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_string(&mut String::new());
        std::process::exit(0);
    });
    runtime().block_on(async {
        let gate = started(|| store.builder().max(MAX).lease(LEASE).keyed()).await;
        let mut work = tokio::task::JoinSet::new();
        for task in 0..4 {
            let (gate, record) = (gate.clone(), format!("{record}-{task}"));
            work.spawn(async move {
                let mut record = fs::OpenOptions::new().create(true).append(true).open(record).unwrap();
                loop {
                    let pass = match gate.enter_key("k").await {
                        // On a busy machine the store may be late.
                        Err(refusal) if refusal.reason == Reason::Unreachable => continue,
                        answer => answer.unwrap(),
                    };
                    writeln!(record, "+{}", now()).unwrap();
                    // Held for as long as the store takes to answer, so that passes of several processes are out at once.
                    let _ = gate.look_key("k").await;
                    let end = now();
                    // One that stalled for as long as its lease is told, and then its slot may be another's.
                    writeln!(record, "{}{end}", if pass.is_lost() { 'x' } else { '-' }).unwrap();
                    drop(pass);
                }
            });
        }
        work.join_all().await;
    });
}

/// A member, and where it writes to.
struct Process {
    child: Child,
    record: PathBuf,
}

impl Process {
    fn start(store: &Store, number: usize) -> Self {
        let record = env::temp_dir().join(format!("flowgate-{}-{}-{number}", store.gate, std::process::id()));
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "fleet::the_member_process", "--nocapture"]);
        command.env(STORE, &store.url).env(GATE, &store.gate).env(RECORD, &record);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        Process { child, record }
    }

    fn lines(&self) -> Vec<Vec<String>> {
        let read = |task| fs::read_to_string(format!("{}-{task}", self.record.display())).unwrap_or_default();
        (0..4).map(|task| read(task).lines().map(str::to_owned).collect()).collect()
    }

    /// SIGKILL; then what it did, each as begin and end.
    fn kill(mut self) -> Vec<(u128, u128)> {
        // Where it is killed before it works, nothing is shown.
        let begun = Instant::now();
        while self.lines().iter().map(Vec::len).sum::<usize>() < 40 {
            assert!(self.child.try_wait().unwrap().is_none(), "a member ended by itself");
            assert!(begun.elapsed() < PATIENCE, "a member does nothing");
            std::thread::yield_now();
        }
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let killed = now();
        let mut spans = Vec::new();
        for (task, lines) in self.lines().iter().enumerate() {
            let at = |line: &String| line.get(1..).and_then(|at| at.parse().ok()).unwrap_or(killed);
            let kept = lines.chunks(2).filter(|pair| !pair.last().is_some_and(|end| end.starts_with('x')));
            spans.extend(kept.map(|pair| (at(&pair[0]), pair.get(1).map_or(killed, at))));
            fs::remove_file(format!("{}-{task}", self.record.display())).unwrap();
        }
        spans
    }
}

// Seen to fail: with only the first holder of a document counted, four were out; with the dead left in it, nothing
// moved any more.
#[test]
fn s1_processes_are_killed_and_the_bound_holds_and_nothing_stays_stuck() {
    for store in stores() {
        println!("on {}", store.url);
        let mut processes: Vec<Process> = (0..3).map(|number| Process::start(&store, number)).collect();
        let mut spans = Vec::new();
        for number in 3..9 {
            spans.extend(processes.remove(0).kill());
            processes.push(Process::start(&store, number));
        }
        spans.extend(processes.drain(..).flat_map(Process::kill));
        // At each begin: who is in?
        let mut moments: Vec<(u128, i32)> =
            spans.iter().flat_map(|&(begin, end)| [(begin, 1), (end, -1)]).collect();
        moments.sort_unstable();
        let (mut out, mut most) = (0, 0);
        for (_, change) in moments {
            out += change;
            most = most.max(out);
        }
        assert!(most <= MAX as i32, "{most} at once in {} entries", spans.len());
        // What the dead held is free within their lease: all of it, and no more.
        runtime().block_on(async {
            let gate = started(|| store.builder().max(MAX).keyed()).await;
            let _all = gate.enter_key("k").weight(MAX).await.unwrap();
            assert_eq!(gate.try_enter_key("k").await.unwrap_err().reason, Reason::Busy);
        });
    }
}
