//! What a worker says when it starts, and when it does not.

use std::fs;

use flowgate_tasks::store::QueueLimits;

use crate::{
    kit::{Place, on_both},
    program::{Said, Worker, flowgate, folder, python},
    record::SCRIPT,
};

fn configured(place: &Place, text: &str) {
    fs::write(place.folder.join("flowgate.toml"), text).expect("a folder");
}

#[test]
fn s2_a_store_is_told_by_its_whole_path() {
    // Seen to fail: as it was given, `sqlite:flowgate.db` might have been anywhere.
    let folder = folder("whole-path");
    let mut command = flowgate(&folder, "sqlite:flowgate.db");
    command.args(["worker", "--processes=1", "--"]).arg(python()).args(["-S", "-E", "-c", SCRIPT]);
    let mut worker = Worker::launch(&mut command);
    let said = worker.until("Ctrl-C stops it");
    assert!(said.contains(&format!("sqlite:{}/flowgate.db;", folder.display())), "{said}");
    // A file that does not name a store has it beside itself, wherever one is.
    let beside = folder.join("conf");
    fs::create_dir(&beside).expect("a folder");
    fs::write(beside.join("flowgate.toml"), "[server]\nlisten = \"127.0.0.1:0\"\n").expect("a file");
    let mut command = flowgate(&folder, "");
    command.env_remove("FLOWGATE_STORE").args(["check", "--config", "conf/flowgate.toml"]);
    let said = Said::by(&mut command);
    assert!(said.stdout.contains("store    sqlite:conf/flowgate.db\n"), "{said:?}");
}

#[test]
fn t7_the_first_line_has_the_effective_limits() {
    // Seen to fail: with `max_claim_per_worker` printed as it was given, 0.
    let place = Place::sqlite("line");
    configured(&place, "[tasks]\ncluster_wide_cap = 20\n[worker]\nprocesses = 4\nmax_claim_batch = 2\n");
    let worker = place.worker(&[], SCRIPT);
    let line =
        "Concurrency config: processes=4, cluster_wide_cap=20, max_claim_per_worker=4, max_claim_batch=2";
    assert_eq!(worker.said[0], line);
    drop(worker);
    let worker = place.worker(&["--processes=8", "--max-claim-per-worker=3", "--max-claim-batch=0"], SCRIPT);
    let line =
        "Concurrency config: processes=8, cluster_wide_cap=20, max_claim_per_worker=3, max_claim_batch=none";
    assert_eq!(worker.said[0], line);
}

#[test]
fn t1_the_caps_of_the_store_hold_and_a_worker_that_disagrees_says_so() {
    // Seen to fail: with the configuration's caps written over those of the store.
    let config = "\
[tasks]
queue_mode = \"custom\"
cluster_wide_cap = 50
[[queue]]
name = \"stripe\"
priority = 1
max_concurrency = 3
[[queue]]
name = \"email\"
priority = 50
";
    on_both("disagree", |place| {
        configured(place, config);
        let limits = |name: &str, priority, max| QueueLimits { name: name.to_owned(), priority, max };
        place.wait(place.store.set_cluster_cap(Some(20))).expect("it is set");
        place.wait(place.store.set_queue(limits("stripe", 2, Some(5)))).expect("it is set");
        let worker = place.worker(&["--processes=1"], SCRIPT);
        assert_eq!(
            worker.said[..3],
            [
                "the store has cluster_wide_cap=20, this configuration says 50: the store's holds; \
                 `flowgate queues set --cluster-wide-cap 50` changes it",
                "the store has priority=2, max_concurrency=5 for queue `stripe`, this configuration says priority=1, \
                 max_concurrency=3: the store's holds; `flowgate queues set stripe --priority 1 --max-concurrency 3` changes it",
                "Concurrency config: processes=1, cluster_wide_cap=20, max_claim_per_worker=1, max_claim_batch=none",
            ]
        );
        let queues = place.wait(place.store.queues()).expect("it answers");
        let held: Vec<_> = queues.into_iter().map(|look| look.limits).collect();
        assert_eq!(held, [limits("stripe", 2, Some(5)), limits("email", 50, None)]);
        drop(worker);

        let told = place.told(&["queues", "set", "--cluster-wide-cap", "50"]);
        assert_eq!(told, "cluster_wide_cap=50, from now on\n");
        let told = place.told(&["queues", "set", "stripe", "--priority", "1", "--max-concurrency", "3"]);
        assert_eq!(told, "queue `stripe`: priority=1, max_concurrency=3, from now on\n");
        let worker = place.worker(&["--processes=1"], SCRIPT);
        let line = "Concurrency config: processes=1, cluster_wide_cap=50, max_claim_per_worker=1, max_claim_batch=none";
        assert_eq!(worker.said[0], line, "nothing to say but this");
    });
}

#[test]
fn t2_what_cannot_be_is_told_before_anything_starts() {
    // Seen to fail: with any of these words changed.
    let place = Place::sqlite("refused");
    let custom =
        "[tasks]\nqueue_mode = \"custom\"\n[[queue]]\nname = \"stripe\"\n[[queue]]\nname = \"email\"\n";
    let config =
        |count: &str, told: &str| format!("error: RC5003: the configuration has {count}\n  {told}\n");
    let true_ = ["--", "true"];
    for (file, arguments, told) in [
        (
            "",
            &["--processes=0"][..],
            config("1 error", "--processes: worker.processes is 0; accepted: an integer from 1 to 10000"),
        ),
        (
            "",
            &["--lease=1"],
            config("1 error", "--lease: worker.lease is \"1\"; accepted: a time from 100ms to 1d, like \"15s\""),
        ),
        (
            "",
            &["--store=here.db"],
            config("1 error", "--store: store is \"here.db\"; accepted: \"sqlite:flowgate.db\" \
                or \"postgres://user@host/database\""),
        ),
        (
            custom,
            &["--queue=stripe", "--queue=mail"],
            config("1 error", "--queue: worker.queues names \"mail\", which is not a [[queue]]; accepted: \"stripe\", \"email\""),
        ),
        (
            "",
            &["--queue=mail"],
            "error: queue `mail` is unknown; known queues: default; to create it, add a [[queue]] to the configuration or \
             run \
             `flowgate queues set mail`\n"
                .to_owned(),
        ),
    ] {
        configured(&place, file);
        let arguments: Vec<&str> = ["worker"].iter().chain(arguments).chain(&true_).copied().collect();
        let said = place.run(&arguments);
        assert_eq!((said.code, said.stderr), (Some(2), told), "{file}{arguments:?}");
    }
    // A cap that another worker's configuration put into the store is no less of a cap.
    assert_eq!(place.run(&["queues", "set", "--cluster-wide-cap=5"]).code, Some(0));
    configured(&place, "[tasks]\nprefetch_buffer = 4\nclaim_lease_ms = 5000\n");
    let arguments: Vec<&str> = ["worker"].iter().chain(&true_).copied().collect();
    let said = place.run(&arguments);
    let told = "error: tasks.prefetch_buffer is 4: the store has cluster_wide_cap=5, which counts what is claimed, so \
        nothing can be \
                claimed ahead; set it to 0 and drop `claim_lease_ms`\n";
    assert_eq!((said.code, &*said.stderr), (Some(2), told));
    configured(&place, "");
    let said = place.run(&["worker", "--", "no-such-program", "x"]);
    let told = "error: cannot run `no-such-program x`: it is not in PATH\n";
    assert_eq!((said.code, &*said.stderr), (Some(2), told));
    let said = place.run(&["worker"]);
    assert!(
        said.stderr.starts_with("error: the following required arguments were not provided:"),
        "{said:?}"
    );
    let said = place.run(&["worker", "--store=postgres://nobody@127.0.0.1:1/none", "--", "true"]);
    assert_eq!(said.code, Some(1));
    assert!(
        said.stderr.starts_with("error: postgres://…@127.0.0.1:1/none: the store failed while "),
        "{said:?}"
    );
}

#[test]
fn t7_a_command_that_only_dies_is_started_less_and_less_often() {
    // Seen to fail: without a rest, it is started again thousands of times.
    let place = Place::sqlite("loop");
    let mut worker = Worker::launch(&mut place.flowgate(&["worker", "--processes=1", "--", "false"]));
    for rest in ["100ms", "200ms", "400ms", "800ms"] {
        worker.until(&format!("[1] its process ended (exit status: 1); restarting it in {rest}"));
    }
}
