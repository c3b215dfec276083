//! How the server ends when it is asked to.

use crate::{endpoint::Endpoint, kit::Kit};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_it_at_once_and_says_what_was_cut_off() {
    // Seen to fail: with `Ok` for a second signal, it ended with 0, as if nothing had been left undone.
    let kit = Kit::sqlite();
    let endpoint = Endpoint::start().await;
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let server = kit.server();
        if signal == "INT" {
            server.publish(&endpoint.url("/hold/a"), &[]).await;
            server.publish(&endpoint.url("/hold/a"), &[]).await;
        }
        endpoint.holds("a", 2).await;
        server.signal(signal);
        server.says("stopping: ").await;
        server.signal(signal);
        let told = "stopped at once: 2 deliveries were cut off and will be made again when their lease has run out\n";
        server.says(told).await;
        assert_eq!(server.end(), Some(code), "{signal}");
    }
}
