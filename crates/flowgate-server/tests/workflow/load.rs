//! Many runs on one key, and the same while the server is killed again and again.

use std::{
    env,
    io::{BufRead, BufReader, Read},
    process::Stdio,
    time::{Duration, Instant},
};

use crate::{
    clients::{command, port, told},
    kit::Kit,
};

/// How long a server lives between two kills.
const LIFE: Duration = Duration::from_secs(1);

/// How many runs there are under kills: 200 with `FLOWGATE_TEST_RUNS=200`, which takes minutes.
fn runs() -> u32 {
    env::var("FLOWGATE_TEST_RUNS")
        .map_or(60, |text| text.parse().expect("FLOWGATE_TEST_RUNS is a whole number"))
}

#[expect(clippy::print_stdout, reason = "how it went, for whoever runs it by itself with --nocapture")]
fn tell(kills: u32, said: &str) {
    println!("{kills} kills; {said}");
}

on_every_store! {
    #[test]
    async fn f5_two_hundred_runs_share_the_limits_of_their_key(kit: &Kit) {
        // Seen to fail: without the flow in what later messages inherit, eleven steps were at work at once.
        tokio::task::block_in_place(|| {
            let server = kit.server();
            told(&command(&server, "node", &["load.mjs", "200", "5", "3", "50"]).output().unwrap());
        });
    }

    #[test]
    async fn s1_runs_end_and_limits_hold_while_the_server_is_killed_every_second(kit: &Kit) {
        // Seen to fail: with one attempt allowed in all, runs whose delivery a kill cut off never ended.
        tokio::task::block_in_place(|| {
            let (address, options) = (format!("127.0.0.1:{}", port()), ["--dev", "--lease", "20s"]);
            let mut server = Some(kit.server_on(&address, &options));
            let runs = runs().to_string();
            let mut script = command(server.as_ref().unwrap(), "node", &["load.mjs", &runs, "5", "3", "50"]);
            let mut script = script.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(script.stdout.take().unwrap()).lines();
            assert_eq!(lines.next().unwrap().unwrap(), "begun");
            let rest = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>().join("\n"));
            let mut kills = 0;
            let mut born = Instant::now();
            while script.try_wait().unwrap().is_none() {
                if born.elapsed() >= LIFE {
                    server.take().unwrap().kill_nine();
                    kit.end_leases();
                    server = Some(kit.server_on(&address, &options));
                    (kills, born) = (kills + 1, Instant::now());
                }
                std::thread::yield_now();
                std::thread::park_timeout(Duration::from_millis(20));
            }
            let (said, mut errors) = (rest.join().unwrap(), String::new());
            script.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            assert!(said.contains("all well"), "after {kills} kills: {said}\n{errors}");
            assert!(kills >= 3, "the server was killed {kills} times only");
            tell(kills, &said);
        });
    }
}
