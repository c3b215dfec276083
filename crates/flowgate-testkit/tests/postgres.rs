//! A private PostgreSQL comes, crashes, comes back and goes, and leaves nothing behind.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use flowgate_testkit::postgres::{Options, Postgres};

/// Set in the process that is to be killed.
const VICTIM: &str = "FLOWGATE_TESTKIT_VICTIM";

#[test]
fn each_test_has_a_database_of_its_own_on_the_shared_server() {
    let postgres = Postgres::shared();
    let urls = ["One test", "One test"].map(|name| postgres.create_database(name).unwrap());
    assert_ne!(urls[0], urls[1]);
    postgres
        .psql(&urls[0], "create table a (b int, c text); insert into a values (1, 'x'), (2, 'y')")
        .unwrap();
    assert_eq!(postgres.psql(&urls[0], "select * from a order by b").unwrap(), "1|x\n2|y");
    let error = postgres.psql(&urls[1], "select * from a").unwrap_err().to_string();
    assert!(error.contains("relation \"a\" does not exist"), "{error}");
}

/// Seen to fail: with the words of the options left out of the command line.
#[test]
fn options_are_what_the_server_goes_by() {
    let options = Options::durable().max_connections(17.try_into().unwrap()).setting("work_mem", "3MB");
    let postgres = Postgres::start(options.shared_buffers(16.try_into().unwrap())).unwrap();
    let show = |name: &str| postgres.psql(&postgres.url(), &format!("show {name}")).unwrap();
    let shown = ["fsync", "synchronous_commit", "shared_buffers", "max_connections", "work_mem"].map(show);
    assert_eq!(shown, ["on", "on", "16MB", "17", "3MB"]);
    let shared = Postgres::shared();
    assert_eq!(shared.psql(&shared.url(), "show fsync").unwrap(), "off");
}

/// Seen to fail: with `kill -s KILL $1` alone, where the one that is busy lives on.
#[test]
fn what_was_committed_outlives_a_crash_and_what_was_not_does_not() {
    let postgres = Postgres::start(Options::default()).unwrap();
    let url = postgres.create_database("crash").unwrap();
    postgres.psql(&url, "create table a as select 1 as b").unwrap();
    let for_days = "insert into a values (2); select count(*) from generate_series(1, 1e6) as x, generate_series(1, 1e6) as y";
    thread::scope(|scope| {
        // Someone in the middle of a transaction, who does not look whether the server is still there.
        let busy = scope.spawn(|| postgres.psql(&url, for_days));
        let others =
            "select count(*) from pg_stat_activity where state = 'active' and pid <> pg_backend_pid()";
        while postgres.psql(&url, others).unwrap() != "1" {}
        postgres.kill_nine().unwrap();
        assert!(busy.join().unwrap().is_err());
    });
    assert!(postgres.psql(&url, "select 1").is_err());
    postgres.restart().unwrap();
    assert_eq!(postgres.psql(&url, "select b from a").unwrap(), "1");
    postgres.restart().unwrap();
    assert_eq!(postgres.psql(&url, "select b from a").unwrap(), "1");
}

/// Seen to fail: without `Drop`'s `remove_dir_all` and the watchdog's.
#[test]
fn dropped_it_is_gone() {
    let postgres = Postgres::start(Options::default()).unwrap();
    let (folder, port) = (postgres.folder().to_owned(), postgres.port());
    assert!(folder.join("data").is_dir() && TcpStream::connect(("127.0.0.1", port)).is_ok());
    drop(postgres);
    assert!(!folder.exists() && TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn a_setting_that_is_wrong_is_told_in_the_words_of_the_server() {
    let error = Postgres::start(Options::default().setting("work_mem", "many")).err().unwrap().to_string();
    assert!(error.contains("work_mem"), "{error}");
}

/// Seen to fail: without the watchdog.
#[test]
fn nothing_is_left_of_it_when_the_process_is_killed() {
    if env::var_os(VICTIM).is_some() {
        let postgres = Postgres::shared();
        writeln!(io::stdout(), "\nvictim {} {}", postgres.port(), postgres.folder().display()).unwrap();
        io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    let mut victim = Command::new(env::current_exe().unwrap());
    victim.args(["--exact", "nothing_is_left_of_it_when_the_process_is_killed", "--nocapture"]);
    victim.env(VICTIM, "1").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut victim = victim.spawn().unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let line = lines.map(Result::unwrap).find(|line| line.starts_with("victim ")).unwrap();
    let [_, port, folder] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let mut client = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    victim.kill().unwrap();
    victim.wait().unwrap();
    // The server closes it when it ends, and then the folder goes.
    assert_eq!(client.read(&mut [0; 1]).unwrap_or(0), 0);
    wait_until_gone(Path::new(folder));
}

/// Nobody tells when a folder goes: a shell looks for it, for a minute at most.
fn wait_until_gone(folder: &Path) {
    let mut shell = Command::new("timeout");
    shell.args(["60", "sh", "-c", "while [ -e \"$1\" ]; do sleep 0.05; done", "sh"]).arg(folder);
    assert!(
        shell.status().is_ok_and(|status| status.success()),
        "{:?}",
        fs::read_dir(folder).map(Iterator::count)
    );
}
