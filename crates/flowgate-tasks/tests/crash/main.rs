//! Worker processes are killed at random, and nothing is lost, nothing runs twice at the same time, and every cap holds at
//! every instant: by what the handlers themselves wrote down.
//!
//! A process of this very program is a worker when it is told so by its environment. `FLOWGATE_KILLS` sets how many are
//! killed for each store; the default keeps the test short.

mod evidence;
mod fleet;
#[cfg(feature = "postgres")]
mod storm;

use fleet::{Fleet, Plan};

/// Where the processes of the fleet begin. Run as a test it has nothing to do.
#[test]
fn the_worker_process() {
    fleet::work_if_told();
}

fn kills() -> usize {
    std::env::var("FLOWGATE_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(25)
}

fn survive(store: &str, ahead: u32) {
    survive_all(store, &Plan { ahead, ..plan() });
}

fn survive_with(store: &str, ahead: u32, chains: usize, keys: usize) {
    survive_all(store, &Plan { ahead, chains, keys, ..plan() });
}

fn plan() -> Plan {
    Plan {
        chains: 0,
        workers: 3,
        slots: 4,
        keys: 5,
        max_per_key: 2,
        cap: 9,
        ahead: 0,
        tasks: 40 * kills(),
        kills: kills(),
        storm: None,
    }
}

fn survive_all(store: &str, plan: &Plan) {
    let evidence = Fleet::start(store, plan).kill_until_done();
    evidence.nothing_was_lost();
    evidence.nothing_ran_twice_at_once();
    evidence.caps_held();
}

// Seen to fail: with `End::Lost` settled as done, tasks were missing; with the fence taken out of the first flight, a task
// ran twice at once; with `leases` not counted in a key's `in_use`, three of a key ran at once.
#[test]
fn s1_killed_workers_lose_nothing_and_break_no_cap_on_sqlite() {
    survive_on_sqlite("hard", 0);
}

// Seen to fail: with starts left out of what the store is told, twelve ran at once, and the cap was nine.
#[test]
fn t1_killed_workers_break_no_soft_cap_on_sqlite() {
    survive_on_sqlite("soft", 3);
}

fn survive_on_sqlite(name: &str, ahead: u32) {
    let folder = std::env::temp_dir().join(format!("flowgate-crash-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the database");
    survive(&format!("sqlite:{}", folder.join("tasks.db").display()), ahead);
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

// Seen to fail: as on SQLite.
#[cfg(feature = "postgres")]
#[test]
fn s1_killed_workers_lose_nothing_and_break_no_cap_on_postgres() {
    let postgres = flowgate_testkit::postgres::Postgres::shared();
    survive(&postgres.create_database("crash").expect("a database"), 0);
}

// Each task is sent by the one before it, in a process with slots to spare: nearly all are claimed by the send that stores them.
// Seen to fail: with nothing written by a send that claims, keys were taken for full, and the chains came to no end.
#[cfg(feature = "postgres")]
#[test]
fn s1_killed_workers_that_send_lose_nothing_and_break_no_cap_on_postgres() {
    let postgres = flowgate_testkit::postgres::Postgres::shared();
    survive_with(&postgres.create_database("chain_crash").expect("a database"), 0, 8, 5);
}

// Nearly every turn of these is a swap.
// Seen to fail: with leases that a swap gives back left where they are, it came to no end.
#[cfg(feature = "postgres")]
#[test]
fn s1_killed_workers_of_tasks_without_keys_lose_nothing_and_break_no_cap_on_postgres() {
    let postgres = flowgate_testkit::postgres::Postgres::shared();
    survive_with(&postgres.create_database("plain_crash").expect("a database"), 0, 0, 0);
}

// Seen to fail: as on SQLite.
#[cfg(feature = "postgres")]
#[test]
fn t1_killed_workers_break_no_soft_cap_on_postgres() {
    let postgres = flowgate_testkit::postgres::Postgres::shared();
    survive(&postgres.create_database("soft_crash").expect("a database"), 3);
}

/// Connections are ended, rows and tables locked, tables rewritten and limits changed all the while. Everything takes
/// longer then.
#[cfg(feature = "postgres")]
fn stormy() -> Plan {
    Plan { kills: kills().div_ceil(2), storm: Some(storm::start), ..plan() }
}

// Seen to fail: with a dedupe id that was known taken for new, a task of a chain ran twice at once.
#[cfg(feature = "postgres")]
#[test]
fn s1_killed_workers_lose_nothing_and_break_no_cap_whatever_others_do_to_their_postgres() {
    let postgres = flowgate_testkit::postgres::Postgres::shared();
    let plan = Plan { chains: 8, tasks: 8 * kills(), ..stormy() };
    survive_all(&postgres.create_database("storm").expect("a database"), &plan);
}

// Seen to fail: with claims whose reply was lost not asked after, it came to no end.
#[cfg(feature = "postgres")]
#[test]
fn t1_killed_workers_break_no_soft_cap_whatever_others_do_to_their_postgres() {
    let postgres = flowgate_testkit::postgres::Postgres::shared();
    let plan = Plan { ahead: 3, tasks: 10 * kills(), ..stormy() };
    survive_all(&postgres.create_database("soft_storm").expect("a database"), &plan);
}
