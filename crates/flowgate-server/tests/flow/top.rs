//! `flowgate top`: on paper, and under a pseudo-terminal.

use std::{
    io::Write,
    process::{Command, Stdio},
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::{
    endpoint::Endpoint,
    kit::{Kit, Server},
};

const KEY: &str = "Upstash-Flow-Control-Key";
const VALUE: &str = "Upstash-Flow-Control-Value";

/// A server with work in flight and in line under two keys.
async fn busy(kit: &Kit) -> (Server, Endpoint) {
    let (server, endpoint) = (kit.server(), Endpoint::start().await);
    for (key, count) in [("alpha", 3), ("zulu", 6)] {
        for _ in 0..count {
            let limits = [(KEY, key), (VALUE, "parallelism=2,rate=100,period=1m")];
            server.publish(&endpoint.url(&format!("/hold/{key}")), &limits).await;
        }
    }
    endpoint.holds("alpha", 2).await;
    endpoint.holds("zulu", 2).await;
    server.key("zulu", 2, 4).await;
    (server, endpoint)
}

fn flowgate(server: &Server, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    command.arg("top").args(options).env("QSTASH_URL", server.url()).env("QSTASH_TOKEN", &server.token);
    command
}

on_every_store! {
    #[test]
    async fn on_paper_it_is_one_snapshot_that_ends(kit: &Kit) {
        // Seen to fail: with keys in the order of their names whatever was asked for, alpha is first.
        let (server, _endpoint) = busy(kit).await;
        let ran = flowgate(&server, &[]).output().unwrap();
        let text = String::from_utf8(ran.stdout).unwrap();
        assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
        let row = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(row("zulu"), ["zulu", "2", "2", "4", "0", "98", "of", "100"]);
        assert_eq!(row("alpha")[1..5], ["2", "2", "1", "0"]);
        assert_eq!(row("messages  9")[..2], ["messages", "9"], "{text}");
        assert!(text.find("\nzulu").unwrap() < text.find("\nalpha").unwrap(), "the longest line first: {text}");
        assert!(text.contains("\nKEYS, BY WAITING\n") && text.contains("\nGATES\n") && text.contains("\nQUEUES\n"), "{text}");
        assert!(!text.contains('\u{1b}'), "no commands for a terminal on paper");

        let ran = flowgate(&server, &["--json"]).output().unwrap();
        let told: Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(told["store"]["keys"][0]["key"], "zulu");
        assert_eq!(told["counters"]["in_flight"], 4);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_terminal_it_is_live_sorts_resizes_and_gives_the_terminal_back() {
    // Seen to fail: with the screen not left at the end, the terminal stays as it was taken.
    let kit = Kit::sqlite();
    let (server, endpoint) = busy(&kit).await;
    endpoint.release(1);
    let first = format!("flowgate {} at {}", env!("CARGO_PKG_VERSION"), server.url());
    let narrow: String = first.chars().take(30).collect();
    let steps = [
        json!({ "wait": "KEYS, BY WAITING" }),
        json!({ "wait": "/s delivered" }),
        json!({ "press": "n" }),
        json!({ "wait": "KEYS, BY NAME" }),
        json!({ "press": "f" }),
        json!({ "wait": "KEYS, BY IN FLIGHT" }),
        json!({ "resize": [8, 30] }),
        json!({ "wait": format!("{narrow}\u{1b}[K") }),
        json!({ "press": "q" }),
    ];
    let steps: String = steps.iter().map(|step| format!("{step}\n")).collect();
    let seen = under_a_terminal(&server.url(), &server.token, &steps);
    assert_eq!(seen["status"], 0, "{seen}");
    let text = seen["seen"].as_str().unwrap();
    assert!(text.starts_with("\u{1b}[?1049h\u{1b}[?25l"), "another screen: {text:?}");
    assert!(text.ends_with("\u{1b}[?25h\u{1b}[?1049l"), "and back: {text:?}");
    let last = text.rsplit("\u{1b}[H").next().unwrap();
    let lines: Vec<&str> = last.split("\u{1b}[K").map(|line| line.trim_start_matches(['\r', '\n'])).collect();
    let (_, lines) = lines.split_last().unwrap();
    assert!(lines.len() <= 8 && lines.iter().all(|line| line.chars().count() <= 30), "{lines:?}");
    assert_eq!(
        seen["echo"],
        json!([false, false, false, true]),
        "keys are not shown while it lasts, and are again after"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_that_ends_it_gives_the_terminal_back() {
    // Seen to fail: with SIGTERM left to the system, the screen stayed and nothing that was typed was shown.
    let kit = Kit::sqlite();
    let (server, _endpoint) = busy(&kit).await;
    for signal in [15, 2] {
        let steps = format!("{}\n{}\n", json!({ "wait": "KEYS, BY WAITING" }), json!({ "signal": signal }));
        let seen = under_a_terminal(&server.url(), &server.token, &steps);
        assert_eq!(seen["status"], 0, "{seen}");
        assert!(seen["seen"].as_str().unwrap().ends_with("\u{1b}[?25h\u{1b}[?1049l"), "{seen}");
        assert_eq!(seen["echo"], json!([false, true]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_answer_keeps_nobody_from_sorting_or_leaving() {
    // Seen to fail: with the answer waited for in the loop that draws, a key was heard when the request had been given up.
    let kit = Kit::sqlite();
    let (server, _endpoint) = busy(&kit).await;
    let (way, asks) =
        (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let (url, port) = (format!("http://{}", way.local_addr().unwrap()), asks.local_addr().unwrap().port());
    let address = server.address;
    // The first request is answered, so that there is something to see; the next one is heard, and no more.
    let between = tokio::spawn(async move {
        let (mut client, _) = way.accept().await.unwrap();
        let first = tokio::spawn(async move {
            let mut server = TcpStream::connect(address).await.unwrap();
            let _ = copy_bidirectional(&mut client, &mut server).await;
        });
        let (mut hung, _) = way.accept().await.unwrap();
        let mut bytes = [0; 1024];
        assert!(hung.read(&mut bytes).await.unwrap() > 0, "a request");
        drop(asks.accept().await.unwrap());
        // Keys are pressed and heard meanwhile: is the request still under way?
        let (other, _) = asks.accept().await.unwrap();
        let is_pending = timeout(Duration::ZERO, hung.read(&mut bytes)).await.is_err();
        drop((other, first));
        let _ = hung.read(&mut bytes).await;
        is_pending
    });
    let steps = [
        json!({ "wait": "KEYS, BY WAITING" }),
        json!({ "until": port }),
        json!({ "press": "n" }),
        json!({ "wait": "KEYS, BY NAME" }),
        json!({ "until": port }),
        json!({ "press": "q" }),
    ];
    let steps: String = steps.iter().map(|step| format!("{step}\n")).collect();
    let token = server.token.clone();
    let seen = tokio::task::spawn_blocking(move || under_a_terminal(&url, &token, &steps)).await.unwrap();
    assert_eq!(seen["status"], 0, "{seen}");
    assert!(seen["seen"].as_str().unwrap().ends_with("\u{1b}[?25h\u{1b}[?1049l"), "{seen}");
    assert!(between.await.unwrap(), "keys were heard while the server did not answer");
}

fn under_a_terminal(url: &str, token: &str, steps: &str) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/flow/top.py");
    let mut child = Command::new("python3")
        .args([script, env!("CARGO_BIN_EXE_flowgate"), "top"])
        .env("QSTASH_URL", url)
        .env("QSTASH_TOKEN", token)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(steps.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_it_is_for_those_with_a_token_and_a_server_that_is_away_is_told_as_such() {
    // Seen to fail: with the layer that asks for a token left out, a stranger reads the names of keys.
    let kit = Kit::sqlite();
    let server = kit.server();
    let stranger = server.ask_plainly(Method::GET, "/top", &[], "").await;
    assert_eq!(stranger.status, http::StatusCode::UNAUTHORIZED);
    let wrong = flowgate(&server, &["--token", "no"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("this server does not know the token"));
    let away = flowgate(&server, &["--url", "http://127.0.0.1:1"]).output().unwrap();
    assert_eq!(away.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&away.stderr).contains("http://127.0.0.1:1"), "{away:?}");
}
