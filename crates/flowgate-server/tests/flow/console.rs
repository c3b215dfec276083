//! The console from outside, without a browser: who gets in, what a change has to bring along, and that it all has an end.

use std::time::Instant;

use flowgate_tasks::NewTask;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::{
    endpoint::Endpoint,
    kit::{Answer, DEADLINE, Kit, Server},
};

/// A browser's page, as far as the server can tell.
pub(crate) struct Page<'s> {
    server: &'s Server,
    cookie: String,
    csrf: String,
}

impl Page<'_> {
    async fn ask(&self, method: Method, path: &str, body: &str) -> Answer {
        let origin = self.server.url();
        let headers = [("cookie", &*self.cookie), ("x-flowgate-csrf", &*self.csrf), ("origin", &*origin)];
        self.server.ask_plainly(method, path, &headers, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.ask(Method::GET, path, "").await.json()
    }
}

/// Logs in with the server's token.
pub(crate) async fn log_in(server: &Server) -> Page<'_> {
    let origin = server.url();
    let body = json!({ "token": server.token }).to_string();
    let answer = server.ask_plainly(Method::POST, "/console/session", &[("origin", &origin)], &body).await;
    let told = answer.json();
    let cookie = answer.header("set-cookie").split(';').next().unwrap().to_owned();
    Page { server, cookie, csrf: told["csrf"].as_str().unwrap().to_owned() }
}

/// Returns when the store knows nothing of a key any more.
async fn until_forgotten(kit: &Kit, key: &str) {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < DEADLINE, "{key} is forgotten");
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_flowgate"))
            .args(["explain", &format!("key:{key}"), "--store", &kit.store])
            .output()
            .unwrap();
        if String::from_utf8_lossy(&output.stderr).contains("in this store") {
            return;
        }
        flowgate_testkit::between_looks().await;
    }
}

on_every_store! {
    #[test]
    async fn s3_the_console_is_for_whoever_is_logged_in_and_its_changes_for_its_own_page(kit: &Kit) {
        // Seen to fail: with the header of the session's token not asked for, and with the origin not looked at; with
        // what is sent to no path answered by the page, without a word.
        let server = kit.server_with(&[]);
        for path in ["/console/data/keys", "/console/data/queues", "/console/data/gates", "/console/live",
            "/console/api/v2/keys"] {
            let answer = server.ask_plainly(Method::GET, path, &[], "").await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
            let bearer = server.ask(Method::GET, path, &[], "").await;
            assert_eq!(bearer.status, StatusCode::UNAUTHORIZED, "{path}: a session, and nothing else");
        }
        let page = log_in(&server).await;
        assert_eq!(page.get("/console/data/keys").await["keys"], json!([]));
        let pause = "/console/api/v2/flowControl/k/pause";
        let (cookie, csrf, origin) = (page.cookie.as_str(), page.csrf.as_str(), server.url());
        let own = [("cookie", cookie), ("x-flowgate-csrf", csrf), ("origin", origin.as_str())];
        let refused: [&[(&str, &str)]; 5] = [
            &own[..1],
            &own[..2],
            &[own[0], own[2]],
            &[own[0], ("x-flowgate-csrf", "guess"), own[2]],
            &[own[0], own[1], ("origin", "http://evil.example")],
        ];
        for headers in refused {
            let answer = server.ask_plainly(Method::POST, pause, headers, "").await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{headers:?}");
        }
        assert_eq!(server.ask(Method::GET, "/v2/flowControl/k", &[], "").await.status, StatusCode::NOT_FOUND, "nothing \
            was changed");
        assert_eq!(page.ask(Method::POST, pause, "").await.status, StatusCode::OK);
        assert_eq!(server.get("/v2/flowControl/k").await["isPaused"], true);
        let nowhere = page.ask(Method::POST, "/console/api/v2/publish/", "").await;
        assert_eq!((nowhere.status, &*nowhere.error()), (StatusCode::NOT_FOUND, "there is nothing at this path"));
    }

    #[test]
    async fn s3_a_session_ends_with_its_token_and_with_a_log_out(kit: &Kit) {
        // Seen to fail: with the session's token not looked up again; and with the stream looked at only when it
        // begins, it goes on telling for as long as the page stays open.
        let server = kit.server_with(&[]);
        let (first, second) = (log_in(&server).await, log_in(&server).await);
        assert_ne!(first.cookie, second.cookie);
        let (status, stream) = server.stream("/console/live", &[("cookie", &second.cookie)]).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(first.ask(Method::DELETE, "/console/session", "").await.status, StatusCode::OK);
        assert_eq!(first.ask(Method::GET, "/console/data/keys", "").await.status, StatusCode::UNAUTHORIZED);
        assert_eq!(second.ask(Method::GET, "/console/data/keys", "").await.status, StatusCode::OK);
        // A new token, so that the old one can go.
        let run = |args: &[&str]| {
            let output = std::process::Command::new(env!("CARGO_BIN_EXE_flowgate"))
                .args(args).args(["--store", &kit.store]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let listed = run(&["token", "list"]);
        let id = listed.lines().find(|line| line.contains("first")).and_then(|line| line.split_whitespace()
            .find(|word| word.len() >= 12)).unwrap().to_owned();
        run(&["token", "revoke", &id]);
        let started = Instant::now();
        loop {
            assert!(started.elapsed() < DEADLINE, "the server hears of it within two seconds");
            if second.ask(Method::GET, "/console/data/keys", "").await.status == StatusCode::UNAUTHORIZED {
                break;
            }
            flowgate_testkit::between_looks().await;
        }
        let told = tokio::time::timeout(DEADLINE, stream.collect()).await.expect("the stream ends, too").unwrap();
        assert!(String::from_utf8_lossy(&told.to_bytes()).contains("event: sample"));
    }

    #[test]
    async fn f6_a_key_is_seen_for_a_while_after_its_last_delivery(kit: &Kit) {
        // Seen to fail: with the store's keys alone, it is gone from every list a moment after it was used.
        let (server, endpoint) = (kit.server_with(&[]), Endpoint::start().await);
        let page = log_in(&server).await;
        for key in ["seen", "seen-too"] {
            let limits = [("Upstash-Flow-Control-Key", key), ("Upstash-Flow-Control-Value", "parallelism=7")];
            let id = server.publish(&endpoint.url("/ok/x"), &limits).await;
            server.logged(&id, "DELIVERED").await;
        }
        until_forgotten(kit, "seen").await;
        until_forgotten(kit, "seen-too").await;
        let names = |found: &Value| -> Vec<(String, Value)> {
            let keys = found.as_array().unwrap().iter();
            keys.map(|key| (key["flowControlKey"].as_str().unwrap().to_owned(), key["parallelismMax"].clone())).collect()
        };
        let both = vec![("seen".to_owned(), json!(7)), ("seen-too".to_owned(), json!(7))];
        for show in ["busiest", "all"] {
            assert_eq!(names(&page.get(&format!("/console/data/keys?show={show}")).await["keys"]), both, "{show}");
        }
        assert_eq!(names(&page.get("/console/data/keys?search=TOO").await["keys"]), both[1..]);
        assert_eq!(names(&page.get("/console/data/keys?show=busy").await["keys"]), []);
        assert_eq!(page.get("/console/data/key?key=seen").await["key"]["parallelismCount"], 0);
        assert_eq!(names(&server.get("/v2/flowControl").await), both);
        assert_eq!(names(&server.get("/v2/flowControl?search=too").await), both[1..]);
        assert_eq!(server.get("/v2/flowControl/seen").await["waitListSize"], 0);
        assert_eq!(server.get("/top").await["store"]["keys"][1]["key"], "seen-too");
        for (query, status) in [
            ("key=a/..%20b&do=pause", 200),
            ("key=a/..%20b&do=pin&parallelism=3", 200),
            ("key=a&do=pin", 400),
            ("key=a&do=forget", 400),
            ("do=pause", 400),
            ("key=a&do=pause&name=b", 400),
        ] {
            let answer = page.ask(Method::POST, &format!("/console/data/key?{query}"), "").await;
            assert_eq!(answer.status, status, "{query}: {answer:?}");
        }
        let changed = page.get("/console/data/key?key=a/..%20b").await;
        assert_eq!((&changed["key"]["isPaused"], &changed["key"]["pinnedMax"]), (&json!(true), &json!(3)));
    }

    #[test]
    async fn f6_the_figure_of_keys_counts_those_that_are_listed(kit: &Kit) {
        // Seen to fail: with the store's keys counted, those of queues did and those that are idle did not; with those
        // of namespaces not left out, there were five.
        let (server, endpoint) = (kit.server_with(&[]), Endpoint::start().await);
        let page = log_in(&server).await;
        for key in ["idle", "idle-too"] {
            let limits = [("Upstash-Flow-Control-Key", key), ("Upstash-Flow-Control-Value", "parallelism=7")];
            let id = server.publish(&endpoint.url("/ok/x"), &limits).await;
            server.logged(&id, "DELIVERED").await;
            until_forgotten(kit, key).await;
        }
        server.post("/v2/flowControl/paused/pause").await;
        let queue = json!({ "queueName": "orders", "parallelism": 2 }).to_string();
        assert_eq!(server.ask(Method::POST, "/v2/queues", &[], &queue).await.status, StatusCode::OK);
        // As the store has the keys of a namespace.
        kit.send_all(["@preview/mine", "@preview/queue/orders"].map(|key| NewTask::new("x", Vec::new()).key(key)).into()).await;
        let listed = page.get("/console/data/keys?show=all").await;
        assert_eq!(listed["keys"].as_array().unwrap().len(), 3);
        let (_, mut stream) = server.stream("/console/live", &[("cookie", &page.cookie)]).await;
        // What is counted over everything is not counted with every look.
        let mut told = String::new();
        let counted = async {
            while !told.contains(r#""keys":3,"pausedKeys""#) {
                told = String::from_utf8_lossy(stream.frame().await.unwrap().unwrap().data_ref().unwrap()).into_owned();
            }
        };
        let counted = tokio::time::timeout(DEADLINE, counted).await;
        assert!(counted.is_ok(), "{told}");
    }

    #[test]
    async fn f6_the_list_of_keys_begins_with_the_busiest(kit: &Kit) {
        // Seen to fail: with the keys in the order of their names, `alpha` was first.
        let (server, endpoint) = (kit.server_with(&[]), Endpoint::start().await);
        let page = log_in(&server).await;
        for (key, count) in [("alpha", 0), ("beta", 1), ("gamma", 3)] {
            server.post(&format!("/v2/flowControl/{key}/pause")).await;
            let limits = [("Upstash-Flow-Control-Key", key), ("Upstash-Flow-Control-Value", "parallelism=1")];
            for _ in 0..count {
                server.publish(&endpoint.url("/ok/x"), &limits).await;
            }
        }
        let names = |found: &Value| -> Vec<String> {
            found["keys"].as_array().unwrap().iter().map(|key| key["flowControlKey"].as_str().unwrap().to_owned()).collect()
        };
        let all = page.get("/console/data/keys?show=busiest").await;
        assert_eq!((names(&all), &all["next"]), (["gamma", "beta", "alpha"].map(str::to_owned).to_vec(), &Value::Null));
        let first = page.get("/console/data/keys?show=busiest&count=2").await;
        assert_eq!(names(&first), ["gamma", "beta"]);
        // What follows has the order of the names, from the first on; so has what is searched.
        let next = page.get(&format!("/console/data/keys?show=busiest&count=2&after={}",
            first["next"].as_str().unwrap().replace(' ', "%20"))).await;
        assert_eq!((names(&next), &next["next"]), (["alpha", "beta"].map(str::to_owned).to_vec(), &json!("beta")));
        let last = page.get("/console/data/keys?show=busiest&count=2&after=beta").await;
        assert_eq!((names(&last), &last["next"]), (vec!["gamma".to_owned()], &Value::Null));
        assert_eq!(names(&page.get("/console/data/keys?show=busiest&search=a").await), ["alpha", "beta", "gamma"]);
    }

    #[test]
    async fn t8_when_it_should_start_is_told_from_how_long_deliveries_took(kit: &Kit) {
        // Seen to fail: with those in flight asked instead of the log, it was told from how long the one that is held has run.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let limits = [("Upstash-Flow-Control-Key", "k"), ("Upstash-Flow-Control-Value", "parallelism=1")];
        for _ in 0..3 {
            let id = server.publish(&endpoint.url("/ok/done"), &limits).await;
            server.logged(&id, "DELIVERED").await;
        }
        let other = [("Upstash-Flow-Control-Key", "other"), limits[1]];
        let id = server.publish(&endpoint.url("/ok/other"), &other).await;
        server.logged(&id, "DELIVERED").await;
        server.publish(&endpoint.url("/hold/k"), &limits).await;
        endpoint.holds("k", 1).await;
        let waiting = server.publish(&endpoint.url("/ok/late"), &limits).await;
        let told = server.get(&format!("/v2/messages/{waiting}/explain")).await;
        let because = told["estimate"]["because"].as_str().unwrap();
        assert!(because.starts_with("the last 3 took ") && because.ends_with("1 run at once, and 0 are ahead of it"), "{told}");
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_flowgate"))
            .args(["explain", "key:k", "--json", "--store", &kit.store]).output().unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(said["first"]["estimate"]["because"], told["estimate"]["because"]);
        endpoint.release(1);
    }

    #[test]
    async fn t8_the_api_and_the_command_line_explain_in_the_same_words(kit: &Kit) {
        // Seen to fail: with the names of messages left out of the API's answer.
        let (server, endpoint) = (kit.server(), Endpoint::start().await);
        let limits = [("Upstash-Flow-Control-Key", "k"), ("Upstash-Flow-Control-Value", "parallelism=1")];
        let first = server.publish(&endpoint.url("/hold/k"), &limits).await;
        endpoint.holds("k", 1).await;
        let second = server.publish(&endpoint.url("/hold/k"), &limits).await;
        let told = server.get(&format!("/v2/messages/{second}/explain")).await;
        assert_eq!(told["held_by"], json!([{ "limit": "key-max", "key": "k", "in_use": 1, "max": 1, "weight": 1 }]));
        assert_eq!(told["holders"][0]["messageId"], json!(first));
        assert_eq!(told["messageId"], json!(second));
        let key = server.get("/v2/flowControl/k/explain").await;
        assert_eq!(key["first"]["subject"], told["subject"]);
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_flowgate"))
            .args(["explain", "key:k", "--json", "--store", &kit.store]).output().unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        for part in ["subject", "held_by", "facts", "help", "place"] {
            assert_eq!(said[part], key[part], "{part}");
        }
        assert_eq!(said["help"], json!(["`flowgate keys pin k --parallelism 2` gives the key more slots, at once"]));
        // In words it has the names that were given: no command of the server takes the number of a task.
        let explain = |what: &str| {
            let output = std::process::Command::new(env!("CARGO_BIN_EXE_flowgate"))
                .args(["explain", what, "--store", &kit.store]).output().unwrap();
            String::from_utf8_lossy(if output.stdout.is_empty() { &output.stderr } else { &output.stdout }).into_owned()
        };
        let (of_key, of_message) = (explain("key:k"), explain(&second));
        assert!(of_key.starts_with(&format!("key `k`: 1 wait; {second}: ")), "{of_key}");
        assert!(of_message.starts_with(&format!("{second}: key `k` has no free slot")), "{of_message}");
        for told in [of_key, of_message] {
            assert!(told.contains(&format!("\n{first}  deliver  ")) && !told.contains("task "), "{told}");
        }
        for (what, status) in [("key:k", 200), ("queue:flowgate:messages", 200), (&*second, 200), ("key:none", 404),
            ("nonsense", 400)] {
            let answer = server.ask(Method::GET, &format!("/v2/explain?what={what}"), &[], "").await;
            assert_eq!(answer.status, status, "{what}: {answer:?}");
        }
        assert_eq!(server.ask(Method::GET, "/v2/messages/msg_none/explain", &[], "").await.status, StatusCode::NOT_FOUND);
        endpoint.release(2);
        server.until(&format!("/v2/logs?messageId={second}&state=DELIVERED"), "its end", |log| log["logs"][0].is_object()).await;
        let gone = format!("error: message `{second}` does not wait here: it was delivered or removed; its log: \
            GET /v2/logs?messageId={second}\n");
        until_forgotten(kit, "k").await;
        assert_eq!(explain(&second), gone);
    }

    #[test]
    async fn f6_caps_of_queues_and_of_the_cluster_are_changed_from_the_console(kit: &Kit) {
        // Seen to fail: with a cap of 0 let through to the store.
        let (server, endpoint) = (kit.server_with(&[]), Endpoint::start().await);
        let page = log_in(&server).await;
        server.publish(&endpoint.url("/ok/x"), &[]).await;
        endpoint.came(1).await;
        assert_eq!(page.ask(Method::POST, "/console/data/queues/flowgate:messages", r#"{"max": 7, "paused": true}"#).await.status, 200);
        assert_eq!(page.ask(Method::POST, "/console/data/cluster", r#"{"max": 9}"#).await.status, 200);
        let told = page.get("/console/data/queues").await;
        assert_eq!((&told["queues"][0]["max"], &told["queues"][0]["isPaused"], &told["cluster"]["cap"]), (&json!(7),
            &json!(true), &json!(9)));
        let name = told["workers"][0]["name"].as_str().unwrap();
        assert!(name.starts_with("flowgate serve on ") && name.ends_with(&format!(", {}", server.address)), "{name}");
        assert_eq!(page.ask(Method::POST, "/console/data/queues/flowgate:messages", r#"{"max": null, "paused": false}"#).await.status, 200);
        let told = page.get("/console/data/queues").await;
        assert_eq!((&told["queues"][0]["max"], &told["queues"][0]["isPaused"]), (&Value::Null, &json!(false)));
        for (path, body, status) in [
            ("/console/data/queues/flowgate:messages", r#"{"max": 0}"#, 400),
            ("/console/data/queues/flowgate:messages", r#"{"mux": 1}"#, 400),
            ("/console/data/queues/none", r#"{"max": 1}"#, 404),
            ("/console/data/cluster", "7", 400),
        ] {
            assert_eq!(page.ask(Method::POST, path, body).await.status, status, "{path} {body}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_the_page_runs_nothing_from_elsewhere_and_development_needs_no_token() {
    // Seen to fail: with the open door of development for whatever name the server is asked by.
    let kit = Kit::sqlite();
    let server = kit.server();
    let page = server.ask_plainly(Method::GET, "/console/keys/some%2Fkey", &[], "").await;
    assert_eq!(page.status, StatusCode::OK);
    let policy = page.header("content-security-policy");
    assert!(policy.contains("script-src 'self'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    assert!(
        !page.text.contains("<script>") && !page.text.contains("onclick") && !page.text.contains("style="),
        "{}",
        page.text
    );
    let mark = page.header("etag").to_owned();
    let again = server.ask_plainly(Method::GET, "/console", &[("if-none-match", &mark)], "").await;
    assert_eq!((again.status, again.text.as_str()), (StatusCode::NOT_MODIFIED, ""));
    assert_eq!(server.ask_plainly(Method::GET, "/console/assets/none.js", &[], "").await.status, 404);
    for name in page.text.split("/console/assets/").skip(1).filter_map(|rest| rest.split('"').next()) {
        let asset = server.ask_plainly(Method::GET, &format!("/console/assets/{name}"), &[], "").await;
        assert!(asset.status == 200 && !asset.text.contains("innerHTML"), "{name}");
    }
    let open = |host: &'static str| {
        let origin = format!("http://{host}");
        let server = &server;
        async move {
            let headers = [("host", host), ("origin", &*origin)];
            server.ask_plainly(Method::POST, "/console/session", &headers, "{}").await
        }
    };
    assert_eq!(open("127.0.0.1:8080").await.status, StatusCode::OK);
    assert_eq!(
        open("led.here.example").await.status,
        StatusCode::BAD_REQUEST,
        "a foreign name that leads to this machine"
    );
    let root = server.ask_plainly(Method::GET, "/", &[], "").await;
    assert_eq!((root.status, root.header("location")), (StatusCode::SEE_OTHER, "/console"));
    assert!(server.greeting.contains(&format!("console   {}/console", server.url())), "{}", server.greeting);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s4_tries_to_log_in_and_pages_that_watch_have_a_bound() {
    // Seen to fail: with each try let through.
    let kit = Kit::sqlite();
    let server = kit.server_with(&[]);
    let page = log_in(&server).await;
    let mut streams = Vec::new();
    for _ in 0..64 {
        streams.push(server.stream("/console/live?key=a", &[("cookie", &page.cookie)]).await);
    }
    assert!(streams.iter().all(|(status, _)| *status == 200));
    // Its body is not waited for: one that is let in has no end.
    let (status, _) = server.stream("/console/live", &[("cookie", &page.cookie)]).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    drop(streams);
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < DEADLINE, "what the streams held is free again");
        let (status, _) = server.stream("/console/live", &[("cookie", &page.cookie)]).await;
        if status == 200 {
            break;
        }
        flowgate_testkit::between_looks().await;
    }
    let origin = server.url();
    let mut refused = 0;
    for _ in 0..40 {
        let body = r#"{"token": "guess"}"#;
        let answer = server.ask_plainly(Method::POST, "/console/session", &[("origin", &origin)], body).await;
        refused += usize::from(answer.status == StatusCode::TOO_MANY_REQUESTS);
        assert!(answer.status == 401 || !answer.header("retry-after").is_empty(), "{answer:?}");
    }
    assert_eq!(refused, 11, "thirty tries a minute, one of which was right");
    assert_eq!(server.stop(), Some(0), "streams end with the server");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f6_what_is_live_is_not_kept_by_a_proxy_in_between() {
    // Seen to fail: without the header. By nginx with its defaults a page heard nothing at all for six seconds.
    let kit = Kit::sqlite();
    let server = kit.server();
    let page = log_in(&server).await;
    let told = server.ask_plainly(Method::HEAD, "/console/live", &[("cookie", &page.cookie)], "").await;
    assert_eq!((told.status, told.header("x-accel-buffering")), (StatusCode::OK, "no"));
}
