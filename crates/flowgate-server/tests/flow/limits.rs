//! Flow control: what the endpoint sees of it.

use std::time::Duration;

use http::Method;

use crate::{
    endpoint::Endpoint,
    kit::{Kit, Server},
};

const KEY: &str = "Upstash-Flow-Control-Key";
const VALUE: &str = "Upstash-Flow-Control-Value";
/// What a window may lose on its way through sockets and schedulers.
const SLACK: Duration = Duration::from_secs(3);

on_every_store! {
    #[test]
    async fn f1_never_more_than_parallelism_are_in_flight(kit: &Kit) {
        // Seen to fail: with the key left out of the task, all twelve were in flight at once.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let url = endpoint.url("/hold/p");
        for _ in 0..12 {
            server.publish(&url, &[(KEY, "p"), (VALUE, "parallelism=3")]).await;
        }
        endpoint.holds("p", 3).await;
        let found = server.key("p", 3, 9).await;
        assert_eq!((found["parallelismMax"].as_u64(), found["rateMax"].as_u64()), (Some(3), None));
        for _ in 0..12 {
            endpoint.release(1);
        }
        endpoint.came(12).await;
        server.key("p", 0, 0).await;
        assert_eq!(endpoint.most("p"), 3);
    }

    #[test]
    async fn f1_never_more_than_rate_start_in_a_window(kit: &Kit) {
        // Seen to fail: with the key left out of the task, all six came at once.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        for _ in 0..6 {
            server.publish(&endpoint.url("/ok/r"), &[(KEY, "r"), (VALUE, "rate=2, period=6s")]).await;
        }
        let calls = endpoint.came(6).await;
        for pair in [[0, 2], [2, 4]] {
            let apart = calls[pair[1]].at - calls[pair[0]].at;
            assert!(apart + SLACK >= Duration::from_secs(6), "window {pair:?} lasted {apart:?}");
        }
        assert!(calls[4].at - calls[0].at + SLACK >= Duration::from_secs(12), "two windows");
        assert!(calls[4].at - calls[0].at < Duration::from_secs(24), "nobody waits for more than their window");
    }

    #[test]
    async fn f1_a_smooth_rate_has_no_bursts(kit: &Kit) {
        // Seen to fail: with `smooth` read and left out of the limits, four came at once.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        for _ in 0..6 {
            server.publish(&endpoint.url("/ok/s"), &[(KEY, "s"), (VALUE, "rate=4,period=8s,smooth=true")]).await;
        }
        let calls = endpoint.came(6).await;
        for pair in calls.windows(3) {
            let apart = pair[2].at - pair[0].at;
            assert!(apart + SLACK >= Duration::from_secs(4), "three starts within {apart:?}");
        }
        let all = calls[5].at - calls[0].at;
        assert!(all + SLACK >= Duration::from_secs(10), "six starts within {all:?}");
        assert!(all < Duration::from_secs(30), "and no slower than its rate: {all:?}");
        for _ in 0..3 {
            server.publish(&endpoint.url("/ok/pinned"), &[(KEY, "t"), (VALUE, "rate=100,period=1s")]).await;
        }
        server.post("/v2/flowControl/t/pin?rate=1&period=3600&smooth=true&parallelism=9").await;
        let found = server.get("/v2/flowControl/t").await;
        assert_eq!((found["isSmooth"].as_bool(), found["rateMax"].as_u64()), (Some(true), Some(1)), "{found}");
        server.post("/v2/flowControl/t/unpin?parallelism=true").await;
        let found = server.get("/v2/flowControl/t").await;
        assert_eq!(found["isSmooth"], true, "what is left of a pin stays as it was: {found}");
        let wrong = server.ask(Method::POST, "/v2/flowControl/t/pin?parallelism=2&smooth=true", &[], "").await;
        assert!(wrong.status == 400 && wrong.error().contains("send rate=<number>"), "{wrong:?}");
    }

    #[test]
    async fn f1_rate_and_parallelism_hold_independently(kit: &Kit) {
        // Seen to fail: with the key left out of the task, all six were in flight at once.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        for _ in 0..6 {
            let limits = [(KEY, "b"), (VALUE, "parallelism=2,rate=3,period=6s")];
            server.publish(&endpoint.url("/hold/b"), &limits).await;
        }
        endpoint.holds("b", 2).await;
        let found = server.key("b", 2, 4).await;
        assert_eq!((found["rateCount"].as_u64(), found["ratePeriod"].as_u64()), (Some(2), Some(6)));
        endpoint.release(3);
        // One more of this window; then slots are free, and it is the rate that holds.
        endpoint.came(3).await;
        server.key("b", 0, 3).await;
        endpoint.release(3);
        let calls = endpoint.came(6).await;
        assert!(calls[3].at - calls[0].at + SLACK >= Duration::from_secs(6));
        assert_eq!(endpoint.most("b"), 2);
    }

    #[test]
    async fn f2_a_key_is_first_in_first_out(kit: &Kit) {
        // Seen to fail: with later messages put before earlier ones.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        server.post("/v2/flowControl/line/pause").await;
        for number in 0..10 {
            server.publish(&endpoint.url(&format!("/ok/{number}")), &[(KEY, "line"), (VALUE, "parallelism=1")]).await;
        }
        server.post("/v2/flowControl/line/resume").await;
        let calls = endpoint.came(10).await;
        let came: Vec<String> = calls.iter().map(|call| call.path.clone()).collect();
        let sent: Vec<String> = (0..10).map(|number| format!("/ok/{number}")).collect();
        assert_eq!(came, sent);
    }

    #[test]
    async fn f3_each_waits_under_the_limits_it_was_sent_with(kit: &Kit) {
        // Seen to fail: with the key left out of the task, the strict one started at once.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        server.publish(&endpoint.url("/hold/mixed"), &[(KEY, "m"), (VALUE, "parallelism=1")]).await;
        endpoint.holds("mixed", 1).await;
        server.publish(&endpoint.url("/ok/strict"), &[(KEY, "m"), (VALUE, "parallelism=1")]).await;
        for _ in 0..2 {
            server.publish(&endpoint.url("/hold/mixed"), &[(KEY, "m"), (VALUE, "parallelism=3")]).await;
        }
        endpoint.holds("mixed", 3).await;
        server.key("m", 3, 1).await;
        assert!(endpoint.calls().iter().all(|call| call.path != "/ok/strict"));
        endpoint.release(3);
        endpoint.came(4).await;
    }

    #[test]
    async fn f3_the_newest_limits_govern_where_a_key_says_so(kit: &Kit) {
        // Seen to fail: with `latest` asked for and each message's own limits kept.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let send = async |limits: &str| server.publish(&endpoint.url("/hold/n"), &[(KEY, "n"), (VALUE, limits)]).await;
        send("parallelism=1").await;
        send("parallelism=1").await;
        endpoint.holds("n", 1).await;
        assert_eq!(server.key("n", 1, 1).await["isLatest"], false);
        server.post("/v2/flowControl/n/mode?mode=latest").await;
        send("parallelism=3").await;
        // The strict one that waited, and the new one: both under the newest limits.
        endpoint.holds("n", 3).await;
        send("parallelism=2").await;
        let found = server.key("n", 3, 1).await;
        assert_eq!((found["isLatest"].as_bool(), found["parallelismMax"].as_u64()), (Some(true), Some(2)));
        // One place comes back, and two are still held: the newest limits are stricter, so nothing starts.
        endpoint.release(1);
        server.key("n", 2, 1).await;
        server.post("/v2/flowControl/n/mode?mode=own").await;
        send("parallelism=3").await;
        endpoint.holds("n", 3).await;
        server.key("n", 3, 1).await;
        endpoint.release(4);
        server.key("n", 0, 0).await;
        let wrong = server.ask(Method::POST, "/v2/flowControl/n/mode?mode=newest", &[], "").await;
        assert!(wrong.status == 400 && wrong.error().contains("latest, own or default"), "{wrong:?}");
    }

    #[test]
    async fn f3_a_server_can_have_the_newest_limits_govern_every_key(kit: &Kit) {
        // Seen to fail: with the mode of the configuration not told to the store.
        let endpoint = Endpoint::start().await;
        let server = kit.server_after("[server]\nflow_control_mode = \"latest\"\n");
        let send = async |server: &Server, key: &str, limits: &str| {
            server.publish(&endpoint.url(&format!("/hold/{key}")), &[(KEY, key), (VALUE, limits)]).await
        };
        for key in ["all", "one"] {
            server.post(&format!("/v2/flowControl/{key}/mode?mode={}", if key == "one" { "own" } else { "default" })).await;
            send(&server, key, "parallelism=1").await;
            endpoint.holds(key, 1).await;
            send(&server, key, "parallelism=1").await;
            send(&server, key, "parallelism=3").await;
        }
        endpoint.holds("all", 3).await;
        endpoint.holds("one", 2).await;
        assert_eq!((server.key("all", 3, 0).await["isLatest"].as_bool(), server.key("one", 2,
            1).await["isLatest"].as_bool()), (Some(true), Some(false)));
        assert_eq!(server.stop(), Some(0));
        // The store has it, for servers that say nothing; and another configuration changes it for what waits as well.
        let server = kit.server();
        assert_eq!(server.get("/v2/flowControl/all").await["isLatest"], true);
        drop(server);
        let server = kit.server_after("[server]\nflow_control_mode = \"own\"\n");
        assert_eq!(server.get("/v2/flowControl/all").await["isLatest"], false);
        endpoint.release(20);
        server.key("all", 0, 0).await;
    }

    #[test]
    async fn f3_pinned_limits_overrule_at_once_and_by_halves(kit: &Kit) {
        // Seen to fail: with the key left out of the task, four were in flight at once.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        for _ in 0..4 {
            let limits = [(KEY, "pin"), (VALUE, "parallelism=1,rate=3,period=1h")];
            server.publish(&endpoint.url("/hold/pin"), &limits).await;
        }
        endpoint.holds("pin", 1).await;
        server.post("/v2/flowControl/pin/pin?parallelism=4").await;
        endpoint.holds("pin", 3).await;
        let found = server.key("pin", 3, 1).await;
        assert_eq!((found["isPinnedParallelism"].as_bool(), found["isPinnedRate"].as_bool()), (Some(true), Some(false)));
        assert_eq!((found["parallelismMax"].as_u64(), found["rateCount"].as_u64()), (Some(4), Some(3)));
        server.post("/v2/flowControl/pin/pin?rate=9&period=60").await;
        endpoint.holds("pin", 4).await;
        server.post("/v2/flowControl/pin/unpin?parallelism=true").await;
        let found = server.key("pin", 4, 0).await;
        assert_eq!((found["parallelismMax"].as_u64(), found["isPinnedRate"].as_bool()), (Some(1), Some(true)));
        endpoint.release(4);
        server.key("pin", 0, 0).await;
    }

    #[test]
    async fn f4_a_cancelled_message_frees_its_slot_at_once(kit: &Kit) {
        // Seen to fail: with the key left out of the task, nothing waited.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let limits = [(KEY, "c"), (VALUE, "parallelism=1")];
        let running = server.publish(&endpoint.url("/hold/one"), &limits).await;
        endpoint.holds("one", 1).await;
        let waiting = server.publish(&endpoint.url("/ok/two"), &limits).await;
        server.publish(&endpoint.url("/ok/three"), &limits).await;
        server.key("c", 1, 2).await;
        for id in [&waiting, &running] {
            let answer = server.ask(Method::DELETE, &format!("/v2/messages/{id}"), &[], "").await.json();
            assert_eq!(answer["cancelled"], 1);
        }
        let calls = endpoint.came(2).await;
        assert_eq!(calls[1].path, "/ok/three");
        server.logged(&waiting, "CANCELED").await;
        let letters = server.get("/v2/dlq").await;
        assert_eq!(letters["messages"].as_array().unwrap().len(), 0, "what was cancelled is no dead letter");
        let again = server.ask(Method::DELETE, &format!("/v2/messages/{waiting}"), &[], "").await;
        assert_eq!(again.status, 404);
    }

    #[test]
    async fn f6_a_paused_key_holds_all_and_a_resumed_one_lets_go(kit: &Kit) {
        // Seen to fail: with the key left out of the task, the pause held nothing.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        server.post("/v2/flowControl/calm/pause").await;
        for _ in 0..3 {
            server.publish(&endpoint.url("/ok/calm"), &[(KEY, "calm"), (VALUE, "parallelism=2")]).await;
        }
        // One of another key gets by: the worker has looked, and left the paused ones alone.
        server.publish(&endpoint.url("/ok/other"), &[(KEY, "other"), (VALUE, "parallelism=2")]).await;
        endpoint.came(1).await;
        let found = server.key("calm", 0, 3).await;
        assert_eq!(found["isPaused"], true);
        let keys = server.get("/v2/flowControl").await;
        assert!(keys.as_array().unwrap().iter().any(|key| key["flowControlKey"] == "calm"), "{keys}");
        server.post("/v2/flowControl/calm/resume").await;
        assert_eq!(endpoint.came(4).await.len(), 4);
    }

    #[test]
    async fn f6_a_reset_opens_a_new_window(kit: &Kit) {
        // Seen to fail: with the key left out of the task, all four came in one window.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        for _ in 0..4 {
            server.publish(&endpoint.url("/ok/reset"), &[(KEY, "reset"), (VALUE, "rate=2,period=1h")]).await;
        }
        endpoint.came(2).await;
        server.key("reset", 0, 2).await;
        server.post("/v2/flowControl/reset/resetRate").await;
        endpoint.came(4).await;
        let global = server.get("/v2/globalParallelism").await;
        assert!(global["parallelismCount"].is_u64(), "{global}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f6_a_pin_that_cannot_be_read_is_told_on_the_terminal_and_ended_by_the_api() {
    // Seen to fail: with news of it for nobody; with `unpin` for what can be read alone.
    let (kit, endpoint) = (Kit::sqlite(), Endpoint::start().await);
    let server = kit.server();
    spoil(&kit, &server, &endpoint).await;
    server.says("the limits of key orders cannot be read: \"max=5;turbo=3\"").await;
    assert_eq!(server.get("/v2/flowControl/orders").await["unread"], "max=5;turbo=3");
    server.post("/v2/flowControl/orders/unpin?parallelism=true").await;
    assert_eq!(endpoint.came(2).await.len(), 2);
}

/// Two messages for a key whose pin only a newer version could read.
pub(crate) async fn spoil(kit: &Kit, server: &Server, endpoint: &Endpoint) {
    server.post("/v2/flowControl/orders/pin?parallelism=3").await;
    kit.alter("UPDATE keys SET pinned = 'max=5;turbo=3' WHERE name = 'orders'");
    let flow = [(KEY, "orders"), (VALUE, "parallelism=2")];
    for _ in 0..2 {
        server.publish(&endpoint.url("/ok/order"), &flow).await;
    }
}
