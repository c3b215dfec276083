//! What `flowgate check` prints when all is well.

use std::fs;

use serde_json::json;

use crate::program::Folder;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/flowgate.toml");

fn example(name: &str) -> Folder {
    let folder = Folder::new(name);
    folder.write("flowgate.toml", fs::read(EXAMPLE).expect("there is an example"));
    folder
}

#[test]
fn the_example_is_valid_and_its_effective_limits_are_a_table() {
    // Seen to fail: with any limit of the example changed, or an override that loses the rate of its route.
    let ran = example("example").flowgate(&["check"], &[]);
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
    assert_eq!(ran.stdout, include_str!("check.txt"));
}

#[test]
fn programs_are_told_the_same_as_json() {
    // Seen to fail: with `max_queue` left out for those where nobody waits.
    let checked = example("json").flowgate(&["check", "--json"], &[]).json();
    assert_eq!(checked["valid"], true);
    assert_eq!(checked["gateway"]["unlisted"], json!(["http://127.0.0.1:9000", "http://127.0.0.1:9001"]));
    let routes = &checked["gateway"]["routes"];
    assert_eq!(
        routes[0]["limit"],
        json!({
            "key": "header x-integration-id, required",
            "max": 30,
            "max_queue": 0,
            "queue_timeout": null,
            "rate": "1000 per 1m",
            "line": "fifo",
            "max_keys": 10_000,
            "overrides": [
                { "key": "reverse-engineered", "max": 3, "max_queue": 0, "queue_timeout": null,
                  "rate": "1000 per 1m", "line": "fifo" },
                { "key": "partner", "max": 60, "max_queue": 20, "queue_timeout": null,
                  "rate": "100 per 1s (bucket, burst 200)", "line": "fifo" },
            ],
        })
    );
    assert_eq!(routes[1]["limit"], json!(null));
    assert_eq!(routes[2]["upstreams"], json!(["http://127.0.0.1:9002"]));
}

#[test]
fn programs_are_told_each_error_with_its_place() {
    // Seen to fail: with the JSON on stderr, where the text is.
    let folder = Folder::new("json-errors");
    let ran = folder
        .write("flowgate.toml", "[server]\nlisten = 1")
        .flowgate(&["check", "--json"], &[("FLOWGATE_GATEWAY_WORKERS", "2")]);
    assert_eq!(ran.errors().len(), 2);
    assert_eq!(
        ran.json(),
        json!({
            "valid": false,
            "code": "RC5003",
            "errors": [
                {
                    "from": "flowgate.toml", "file": "flowgate.toml", "line": 2, "column": 10,
                    "message": "server.listen is 1; accepted: an address and a port, like \"127.0.0.1:8080\" or \"[::1]:0\"",
                },
                {
                    "from": "environment variable FLOWGATE_GATEWAY_WORKERS", "file": null, "line": null, "column": null,
                    "message": "gateway.workers is given, but the file has no [gateway]: add the section",
                },
            ],
        })
    );
}

#[test]
fn without_a_file_the_defaults_hold() {
    // Seen to fail: with a file that is not there taken for an error.
    let ran = Folder::new("none").flowgate(&["check"], &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let processes = std::thread::available_parallelism().map_or(1, usize::from);
    let told = format!(
        "no flowgate.toml here, and none given: the defaults apply\n\nserver   listens on 127.0.0.1:8080\n         \
         at most 1000 deliveries at once, lease 15s\n\
         store    sqlite:flowgate.db\ntasks    queue mode default, cluster_wide_cap none, hard caps\n\
         worker   {processes} processes for all queues, lease 15s, drain 30s\n"
    );
    assert_eq!(ran.stdout, told);
}

#[test]
fn s2_what_only_the_environment_says_to_the_server_is_checked_too() {
    // Seen to fail: with the config file's own options alone, all was well and the server did not start.
    let folder = Folder::new("variables");
    let wrong = [
        ("FLOWGATE_DELIVERIES", "abc"),
        ("FLOWGATE_LEASE", "9x"),
        ("FLOWGATE_DENY_PRIVATE", "maybe"),
        ("FLOWGATE_TRACES", "http://127.0.0.1:4318"),
        ("FLOWGATE_TRACES_HEADER", "secret"),
        ("FLOWGATE_GATEWAY_WORKERS", "2"),
    ];
    let ran = folder.flowgate(&["check"], &wrong);
    let of = |name: &str| {
        let line = ran.errors().into_iter().find(|line| line.contains(name)).unwrap_or_default().to_owned();
        line.trim_start_matches("environment variable ").to_owned()
    };
    assert_eq!(ran.errors().len(), wrong.len() - 1, "{ran:?}");
    assert_eq!(
        [of("DELIVERIES"), of("LEASE"), of("DENY_PRIVATE"), of("HEADER")],
        [
            "FLOWGATE_DELIVERIES: --deliveries is \"abc\"; accepted: a whole number from 1 to 100000",
            "FLOWGATE_LEASE: --lease is \"9x\"; accepted: a time from 1s to 1h, like 15s",
            "FLOWGATE_DENY_PRIVATE: --deny-private is \"maybe\"; accepted: true or false, also as yes or no, on or off, 1 or 0",
            "FLOWGATE_TRACES_HEADER: --traces-header is not shown; accepted: a name and a value with a colon between them",
        ]
    );
    let right = [
        ("FLOWGATE_DELIVERIES", "7"),
        ("FLOWGATE_LEASE", "1m"),
        ("FLOWGATE_DENY_PRIVATE", "yes"),
        ("FLOWGATE_TRACES_HEADER", "a: b"),
    ];
    let ran = folder.flowgate(&["check"], &right[..3]);
    assert!(
        ran.stdout.contains("at most 7 deliveries at once, none to private addresses, lease 1m\n"),
        "{ran:?}"
    );
    let alone = folder.flowgate(&["check"], &right[3..]);
    assert!(
        alone.errors()[0].ends_with("--traces-header is given without --traces, or FLOWGATE_TRACES"),
        "{alone:?}"
    );
    assert_eq!(folder.flowgate(&["check", "--json"], &right[..3]).json()["server"]["deliveries"], 7);
}

#[test]
fn a_route_with_very_many_overrides_shows_the_first() {
    // Seen to fail: with a row for each.
    let folder = Folder::new("overrides");
    let mut text =
        "[gateway]\nupstreams = [\"http://a\"]\n[[gateway.route]]\nname = \"r\"\npath = \"/\"\n".to_owned();
    text += "key = { header = \"x\" }\n";
    text.extend((0..50).map(|key| format!("[[gateway.route.override]]\nkey = \"{key}\"\nmax = 3\n")));
    let ran = folder.write("flowgate.toml", text).flowgate(&["check"], &[]);
    assert!(ran.stdout.contains("\n                \"19\"         3  "), "{}", ran.stdout);
    assert!(!ran.stdout.contains("\"20\""), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("  and 30 more\n"), "{}", ran.stdout);
}
