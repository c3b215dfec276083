//! `kill -9`: nothing accepted is lost, nothing stays stuck, and the bound holds.

use std::{collections::BTreeSet, process::Command};

use crate::{endpoint::Endpoint, kit::Kit};

on_every_store! {
    #[test]
    async fn s1_a_killed_server_loses_nothing_and_its_slots_come_back(kit: &Kit) {
        // Seen to fail: with one attempt allowed in all, what was in flight at the kill was dead afterwards.
        let endpoint = Endpoint::start().await;
        let server = kit.server();
        let mut sent = BTreeSet::new();
        for _ in 0..20 {
            let limits = [
                ("Upstash-Flow-Control-Key", "k"),
                ("Upstash-Flow-Control-Value", "parallelism=4"),
                ("Upstash-Retries", "0"),
            ];
            sent.insert(server.publish(&endpoint.url("/hold/k"), &limits).await);
        }
        endpoint.holds("k", 4).await;
        server.kill_nine();
        endpoint.holds("k", 0).await;
        let server = kit.server();
        server.key("k", 4, 16).await;
        endpoint.release(40);
        server.key("k", 0, 0).await;
        let came: BTreeSet<String> =
            endpoint.calls().iter().map(|call| call.header("upstash-message-id").to_owned()).collect();
        assert_eq!(came, sent);
        assert_eq!(endpoint.most("k"), 4);
    }

    #[test]
    async fn s1_a_worker_beside_a_server_that_is_gone_takes_none_of_its_messages(kit: &Kit) {
        // Seen to fail: with a worker of all queues serving the server's own too, it answered the message, which was never sent.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        server.publish(&endpoint.url("/ok/late"), &[("Upstash-Delay", "4s")]).await;
        server.kill_nine();
        let flowgate = |arguments: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
            command.args(arguments).env("FLOWGATE_STORE", &kit.store);
            command
        };
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/worker.py");
        let mut worker = flowgate(&["worker", "--processes=1", "--", "python3", script]).spawn().unwrap();
        // It is due after the message, and done before a server comes back.
        let done = flowgate(&["send", "--wait", "--delay=6s", "resize", r#"{"image": 7}"#]).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        assert_eq!(endpoint.calls().len(), 0);
        for arguments in [&["send", "--queue=flowgate:messages", "x"][..], &["worker", "--queue=flowgate:messages",
            "--", "cat"]] {
            let refused = flowgate(arguments).output().unwrap();
            assert_eq!(refused.status.code(), Some(2), "{refused:?}");
            assert!(String::from_utf8_lossy(&refused.stderr).contains("`flowgate serve`"), "{refused:?}");
        }
        let _server = kit.server();
        endpoint.came(1).await;
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
}
