//! What the guide to production says, done as it says.

use std::{fs, path::Path};

use crate::{endpoint::Endpoint, kit::Kit};

/// What the guide has between quotes on the line with these words.
fn shown(words: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/production.md");
    let guide = fs::read_to_string(path).unwrap();
    let line =
        guide.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("no line with {words}"));
    line.split('"').nth(1).unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_the_copy_of_a_live_file_has_all_that_waits() {
    // Seen to fail: with the file alone copied, as by `cp`, there was no message in it.
    let (kit, restored) = (Kit::sqlite(), Kit::sqlite());
    let endpoint = Endpoint::start().await;
    let server = kit.server();
    server.post("/v2/flowControl/held/pause").await;
    let limits = [("Upstash-Flow-Control-Key", "held"), ("Upstash-Flow-Control-Value", "parallelism=1")];
    for _ in 0..3 {
        server.publish(&endpoint.url("/ok"), &limits).await;
    }
    let copy = restored.store.strip_prefix("sqlite:").unwrap();
    kit.alter(&shown("VACUUM INTO").replace("/var/backups/flowgate.db", copy));
    server.kill_nine();
    let server = restored.server();
    server.key("held", 0, 3).await;
    server.post("/v2/flowControl/held/resume").await;
    endpoint.came(3).await;
}
