//! H8: plain layers, in whatever stack they stand.

use std::{convert::Infallible, future::poll_fn};

use axum::{Router, body::Body, routing::get};
use flowgate::http::{ConcurrencyLimit, GatedBody, Line, LoadShed, RateLimit, Scope};
use flowgate_testkit::Driven;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

use crate::kit::{Held, ask, begin, in_use, limit, serve, soon, until, waiting};

type Bytes = Full<bytes::Bytes>;

async fn hello(_: Request<()>) -> Result<Response<Bytes>, Infallible> {
    Ok(Response::new(Full::from("hello")))
}

#[tokio::test]
async fn h8_one_layer_mounted_twice_is_one_gate_and_counts_once() {
    // Seen to fail: with `counts` always true, one request takes both slots; with only the first layer that meets a request
    // marked, as well; with only the last one marked, once more if another layer stands between.
    let held = Held::new();
    let other = limit(9, |options| options);
    let limit = limit(2, |options| options);
    let inner = held.at("/inner").layer(limit.clone()).layer(other.clone());
    let server = serve(held.at("/outer").merge(inner).layer(limit.clone()).layer(other)).await;
    let mut inner = begin(server, "/inner").await;
    in_use(&limit, 1).await;
    let mut outer = begin(server, "/outer").await;
    in_use(&limit, 2).await;
    assert_eq!(ask(server, "/inner").await.status, 503);
    held.release(2);
    let answer = inner.answer().await;
    assert_eq!(answer.status, 200);
    let told =
        "\"concurrency\";q=2;qu=\"concurrent-requests\", \"concurrency\";q=9;qu=\"concurrent-requests\"";
    assert_eq!(answer.list("ratelimit-policy"), told, "each layer tells once");
    assert_eq!(outer.answer().await.status, 200);
    in_use(&limit, 0).await;
}

#[tokio::test]
async fn h8_a_request_that_outlives_its_layer_counts_at_the_next() {
    // Seen to fail: with layers told apart by their addresses, one that is made where another was takes a request of that one
    // for counted, and lets it through.
    let mut extensions = http::Extensions::new();
    for round in 0..100 {
        let service = limit(1, |options| options).layer(service_fn(|request: Request<()>| async move {
            let mut response = Response::new(Full::<bytes::Bytes>::default());
            *response.extensions_mut() = request.into_parts().0.extensions;
            Ok::<_, Infallible>(response)
        }));
        let mut request = Request::new(());
        *request.extensions_mut() = extensions;
        let (head, _) = soon(service.oneshot(request)).await.unwrap().into_parts();
        assert!(head.headers.contains_key("concurrency-limit"), "it was not counted in round {round}");
        extensions = head.extensions;
    }
}

#[tokio::test]
async fn h8_one_layer_on_many_routes_is_one_gate() {
    // Seen to fail: with a gate made in `Layer::layer`, each route has a budget of its own (the most reported bug of all) and
    // that of the layer stays empty.
    let held = Held::new();
    let limit = limit(1, |options| options);
    let routes = ["/a", "/b", "/c"].map(|path| held.at(path).route_layer(limit.clone()));
    let server = serve(routes.into_iter().fold(Router::new(), Router::merge)).await;
    let mut first = begin(server, "/a").await;
    in_use(&limit, 1).await;
    assert_eq!(ask(server, "/b").await.status, 503);
    assert_eq!(ask(server, "/c").await.status, 503);
    held.release(1);
    assert_eq!(first.answer().await.status, 200);
}

#[tokio::test]
async fn h8_one_who_is_ready_and_never_calls_holds_nothing() {
    // Seen to fail: with the slot reserved in `poll_ready`, it is taken before anybody has called.
    let limit = limit(1, |options| options);
    let mut first = limit.layer(service_fn(hello));
    let mut second = first.clone();
    poll_fn(|cx| Service::<Request<()>>::poll_ready(&mut first, cx)).await.unwrap();
    assert_eq!(limit.look().in_use, 0);
    let response = soon(soon(second.ready()).await.unwrap().call(Request::new(()))).await.unwrap();
    assert_eq!(response.status(), 200);
    drop(response);
    drop(first);
    assert_eq!(limit.look().in_use, 0);
}

#[tokio::test]
async fn h8_the_service_that_was_ready_is_the_one_called() {
    // Seen to fail: with the clone kept for later instead of the one that was found ready, it is called before it is ready.
    #[derive(Default)]
    struct MustBeReady(bool);
    impl Clone for MustBeReady {
        fn clone(&self) -> Self {
            MustBeReady(false)
        }
    }
    impl Service<Request<()>> for MustBeReady {
        type Response = Response<Bytes>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Response<Bytes>, Infallible>>;

        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
            self.0 = true;
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            assert!(std::mem::take(&mut self.0), "called before it was ready");
            std::future::ready(Ok(Response::new(Full::from("ok"))))
        }
    }
    let limit = limit(1, |options| options.max_queue(1));
    let mut service = limit.layer(MustBeReady::default());
    let first = soon(service.ready()).await.unwrap().call(Request::new(())).await.unwrap();
    let mut second = Driven::pending(soon(service.ready()).await.unwrap().call(Request::new(())));
    assert_eq!(limit.look().waiting, 1);
    drop(first);
    assert_eq!(second.poll().expect("it has the slot").unwrap().status(), 200);
}

#[tokio::test]
async fn h8_a_call_takes_its_place_in_line_at_once_and_gives_it_up_unpolled() {
    // Seen to fail: with the entry first polled by the future, nobody is in line yet, and its order is that of the polls.
    let limit = limit(1, |options| options.max_queue(5));
    let mut service = limit.layer(service_fn(hello));
    let held = soon(service.ready()).await.unwrap().call(Request::new(())).await.unwrap();
    let first = soon(service.ready()).await.unwrap().call(Request::new(()));
    let second = soon(service.ready()).await.unwrap().call(Request::new(()));
    let third = soon(service.ready()).await.unwrap().call(Request::new(()));
    assert_eq!(limit.look().waiting, 3);
    let mut third = Driven::pending(third);
    let mut first = Driven::pending(first);
    drop(second);
    assert_eq!(limit.look().waiting, 2);
    drop(held);
    assert!(third.poll().is_none(), "the first came first");
    let first = first.poll().expect("it has the slot").unwrap();
    assert!(third.poll().is_none());
    drop(first);
    assert!(third.poll().is_some());
}

#[tokio::test]
async fn h8_behind_a_buffer_nothing_starves() {
    // Seen to fail: with a slot reserved in `poll_ready`, the buffer's worker goes on asking for one for a request that is gone,
    // gets it, and holds it while it has nothing to do.
    let limit = limit(1, |options| options.max_queue(100));
    let buffered = ServiceBuilder::new().buffer(8).layer(limit.clone()).service(service_fn(hello));
    let mut direct = limit.layer(service_fn(hello));
    let held = soon(soon(direct.ready()).await.unwrap().call(Request::new(()))).await.unwrap();
    let mut gone = Box::pin(buffered.clone().oneshot(Request::new(())));
    until("it waits", || {
        assert!((&mut gone).now_or_never().is_none());
        limit.look().waiting == 1
    })
    .await;
    drop(gone);
    drop(held);
    in_use(&limit, 0).await;
    waiting(&limit, 0).await;
    let calls = (0..50).map(|_| {
        let service = buffered.clone();
        async move { service.oneshot(Request::new(())).await.unwrap().into_body().collect().await.unwrap() }
    });
    let bodies = soon(futures_util::future::join_all(calls)).await;
    assert!(bodies.into_iter().all(|body| body.to_bytes() == "hello"));
    assert_eq!(limit.look().in_use, 0);
}

#[tokio::test]
async fn h8_a_layer_is_as_ready_as_what_is_inside() {
    // Seen to fail: with `poll_ready` of any of the three always ready.
    #[derive(Clone)]
    struct NeverReady;
    impl Service<Request<()>> for NeverReady {
        type Response = Response<Bytes>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Response<Bytes>, Infallible>>;

        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
            std::task::Poll::Pending
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            unreachable!("it is never ready")
        }
    }
    let limit = limit(1, |options| options);
    let rate = RateLimit::builder().rate(1, "1h").build().unwrap();
    let shed = LoadShed::builder().health(|| 0.0).build().unwrap();
    drop(Driven::pending(limit.layer(NeverReady).oneshot(Request::new(()))));
    drop(Driven::pending(rate.layer(NeverReady).oneshot(Request::new(()))));
    drop(Driven::pending(shed.layer(NeverReady).oneshot(Request::new(()))));
    assert_eq!((limit.look().in_use, rate.look().lanes), (0, 0), "nothing was spent");
}

#[tokio::test]
async fn h8_on_plain_hyper() {
    // Seen to fail: without the layer around the handler, nothing is ever in use.
    let limit = limit(1, |options| options);
    let held = Held::new();
    let wait = held.clone();
    let handler = service_fn(move |_: Request<hyper::body::Incoming>| {
        let wait = wait.clone();
        async move { Ok::<_, Infallible>(Response::new(Bytes::from(wait.wait().await))) }
    });
    let service = hyper_util::service::TowerToHyperService::new(limit.layer(handler));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let serving = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service.clone());
            tokio::spawn(serving);
        }
    });
    let mut first = begin(server, "/").await;
    in_use(&limit, 1).await;
    assert_eq!(ask(server, "/").await.status, 503);
    held.release(1);
    assert_eq!(first.answer().await.body, "done");
    in_use(&limit, 0).await;
}

#[tokio::test]
async fn h8_in_front_of_tonic() {
    // Seen to fail: with a problem document for gRPC, the client's code is `Internal`.
    let limit = limit(1, |options| options);
    let (reporter, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let serving = tonic::transport::Server::builder()
        .layer(limit.clone())
        .add_service(health)
        .serve_with_incoming(tonic::transport::server::TcpIncoming::from(listener));
    tokio::spawn(serving);
    let channel =
        tonic::transport::Endpoint::from_shared(format!("http://{server}")).unwrap().connect().await.unwrap();
    let mut client = tonic_health::pb::health_client::HealthClient::new(channel);
    let request = || tonic_health::pb::HealthCheckRequest { service: String::new() };
    assert!(soon(client.check(request())).await.is_ok());
    in_use(&limit, 0).await;
    // A stream holds its slot for as long as it is watched.
    let mut watch = soon(client.watch(request())).await.unwrap().into_inner();
    assert!(soon(watch.message()).await.unwrap().is_some());
    assert_eq!(limit.look().in_use, 1);
    let refused = soon(client.check(request())).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    assert_eq!(refused.message(), "The service is at capacity. Please retry shortly.");
    drop(watch);
    in_use(&limit, 0).await;
    assert!(soon(client.check(request())).await.is_ok());
    drop(reporter);
}

#[tokio::test]
async fn h8_work_that_enters_its_own_layer_again_is_told_so() {
    // Seen to fail: without `holding` around the poll of the inner future, or around the call that makes it, the second entry
    // waits for itself for ever.
    let limit = limit(1, |options| options.max_queue(5).scope(Scope::by(|_| Some("same".into()))));
    let (again, at_once) = (limit.clone(), limit.clone());
    // A new request, not the one that was counted: a call of the service to itself, made when the work runs.
    let later = service_fn(move |_: Request<()>| {
        let service = again.layer(service_fn(hello));
        async move { service.oneshot(Request::new(())).await }
    });
    // And one that is made while the work is begun.
    let at_once = service_fn(move |_: Request<()>| at_once.layer(service_fn(hello)).call(Request::new(())));
    let later = soon(limit.layer(later).oneshot(Request::new(()))).await.unwrap();
    assert_eq!((later.status().as_u16(), &later.headers()["flowgate-refusal"]), (503, &re_entrant()));
    drop(later);
    let at_once = soon(limit.layer(at_once).oneshot(Request::new(()))).await.unwrap();
    assert_eq!((at_once.status().as_u16(), &at_once.headers()["flowgate-refusal"]), (503, &re_entrant()));
}

fn re_entrant() -> http::HeaderValue {
    http::HeaderValue::from_static("re-entrant")
}

#[tokio::test]
async fn h8_the_line_can_be_newest_first_under_long_overload() {
    // Seen to fail: with `line` ignored, the oldest stays in line and has no answer.
    let clock = flowgate_testkit::FakeClock::new();
    let ms = std::time::Duration::from_millis;
    let limit = limit(1, |options| {
        let line = Line::Codel { target: ms(5), interval: ms(100) };
        options.max_queue(10).line(line).clock(clock.clone())
    });
    let held = Held::new();
    let server = serve(held.at("/").layer(limit.clone())).await;
    let mut first = begin(server, "/").await;
    in_use(&limit, 1).await;
    let mut old = begin(server, "/").await;
    waiting(&limit, 1).await;
    clock.advance(ms(99));
    let mut newer = begin(server, "/").await;
    waiting(&limit, 2).await;
    clock.advance(ms(2));
    let mut newest = begin(server, "/").await;
    assert_eq!(old.answer().await.status, 503, "it has waited longer than the target in a backlog");
    waiting(&limit, 2).await;
    held.release(1);
    assert_eq!(first.answer().await.status, 200);
    waiting(&limit, 1).await;
    held.release(1);
    assert_eq!(newest.answer().await.status, 200, "the newest goes first");
    held.release(1);
    assert_eq!(newer.answer().await.status, 200);
}

#[test]
fn h8_layers_and_their_bodies_can_be_sent_and_shared() {
    // Seen to fail: with an `Rc` inside of `GatedBody`, this does not compile.
    fn is_send_and_sync<T: Send + Sync + Clone>(_: &T) {}
    fn is_send<T: Send>(_: &T) {}
    let limit: ConcurrencyLimit = limit(1, |options| options);
    is_send_and_sync(&limit);
    is_send(&GatedBody::new(Body::empty(), None));
    is_send(&GatedBody::<Empty<bytes::Bytes>>::refusal(bytes::Bytes::new()));
    let _: Router = Router::new().route("/", get(|| async { "" })).layer(limit);
}
