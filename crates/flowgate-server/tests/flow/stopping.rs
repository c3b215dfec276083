//! How the server ends when it is asked to.

use std::{
    net::TcpListener,
    process::{Command, Stdio},
};

use crate::{endpoint::Endpoint, kit::Kit};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_it_at_once_and_says_what_was_cut_off() {
    // Seen to fail: with `Ok` for a second signal, it ended with 0, as if nothing had been left undone.
    let kit = Kit::sqlite();
    let endpoint = Endpoint::start().await;
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        endpoint.holds("a", 0).await;
        let server = kit.server();
        if signal == "INT" {
            server.publish(&endpoint.url("/hold/a"), &[]).await;
            server.publish(&endpoint.url("/hold/a"), &[]).await;
        }
        endpoint.holds("a", 2).await;
        server.signal(signal);
        server.says("stopping: ").await;
        server.signal(signal);
        let told =
            "stopped at once: 2 deliveries were cut off and will be made again when their lease ends\n";
        server.says(told).await;
        assert_eq!(server.end(), Some(code), "{signal}");
        kit.end_leases();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hang_up_does_not_end_a_server_that_has_no_gateway_to_reload() {
    // Seen to fail: with nobody to hear it, the signal ended the server on the spot; with any 404 told as it came, the command
    // said "there is nothing at this path".
    let kit = Kit::sqlite();
    let server = kit.server();
    server.signal("HUP");
    server.says("not reloaded: this server has no gateway").await;
    let asked = |token: &str| {
        let listen = server.url().replace("http://", "");
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        command.args(["reload", "--listen", &listen, "--token", token]);
        let output = tokio::task::block_in_place(|| command.output().unwrap());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(asked(&server.token).contains("has no gateway to reload; name another with --listen"));
    assert!(asked("another").contains("does not know this token"));
    server.signal("TERM");
    server.says("stopped: nothing was left under way").await;
    assert_eq!(server.end(), Some(0));
}

#[test]
fn g10_a_server_whose_store_does_not_answer_ends_before_it_has_started() {
    // Seen to fail: with signals looked at when all is open, it ended when the store was given up, and with 1.
    let store = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://nobody@{}/none", store.local_addr().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", &url]).stdout(Stdio::piped());
    let server = command.stdin(Stdio::null()).spawn().unwrap();
    // It asks, and nobody says anything.
    let _asking = store.accept().unwrap();
    let pid = server.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
    let ended = server.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "stopped: it had not started yet\n");
    assert_eq!(ended.status.code(), Some(0));
}
