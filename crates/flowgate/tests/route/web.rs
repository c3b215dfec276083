//! R7: HTTP in and out, over real sockets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{body::Body, response::IntoResponse};
use bytes::Bytes;
use flowgate::{
    http::client::ClientLayer,
    route::{Concurrency, Context, Error, HttpReply, Route, Throttle, direct, direct_to, http, http_in},
};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::{net::TcpListener, task::yield_now};
use tower::{Layer, ServiceExt};

use crate::kit::{Stage, Work, refused};

/// Serves the context's routes, and gives the address.
async fn serve(context: &Context) -> String {
    context.start().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = context.router();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

async fn post(url: String, body: &'static str) -> (StatusCode, http::HeaderMap, String) {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let request = Request::post(url).header("x-correlation-id", "abc").body(Full::from(body)).unwrap();
    let (head, body) = client.request(request).await.unwrap().into_parts();
    let text = body.collect().await.unwrap().to_bytes();
    (head.status, head.headers, String::from_utf8_lossy(&text).into_owned())
}

fn text(request: Request<Bytes>) -> Result<String, std::string::FromUtf8Error> {
    String::from_utf8(request.into_body().into())
}

#[tokio::test]
async fn r7_a_request_goes_through_a_route_which_asks_another_over_http() {
    // Seen to fail: with `answer` not handing on the correlation.
    let stock = Context::new();
    let reserve = Route::new("reserve")
        .input(|request: Request<Bytes>| {
            let correlation = request.headers().get("x-correlation-id").cloned();
            text(request).map(|body| format!("{body} for {:?}", correlation.unwrap()))
        })
        .from(http_in(Method::POST, "/reserve"))
        .transform(|body: String| body)
        .build()
        .unwrap();
    stock.add(&reserve).unwrap();
    let stock_url = serve(&stock).await;

    let shop = Context::new();
    let route = Route::new("reserve-inventory")
        .input(text)
        .from(http_in(Method::POST, "/orders"))
        .concurrency(Concurrency::max(5)) // at most 5 reservations in flight at once
        .to(http(&format!("{stock_url}/reserve"))) // bounded
        .transform(|reply: HttpReply| format!("receipt: {}", reply.text())) // NOT bounded
        .build()
        .unwrap();
    shop.add(&route).unwrap();
    let url = serve(&shop).await;
    let (status, _, body) = post(format!("{url}/orders"), "two apples").await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, "receipt: two apples for \"abc\""));
}

#[tokio::test]
async fn r7_what_a_route_fails_with_is_told_by_status_and_a_problem_document() {
    // Seen to fail: with `Throttled` asking no gate, nobody is told 429; with its message told for a 502 as well.
    let context = Context::new();
    let work = Work::default();
    let busy = Route::new("busy")
        .concurrency(Concurrency::max(1).reject())
        .from(http_in(Method::POST, "/busy"))
        .to(work.step::<Request<Bytes>>())
        .transform(|_| "done")
        .build()
        .unwrap();
    let paced = Route::new("paced")
        .throttle(Throttle::rate(1, "1h").reject())
        .from(http_in(Method::POST, "/paced"))
        .filter(|_| false)
        .transform(|_| ())
        .build()
        .unwrap();
    let strict = Route::new("strict")
        .input(|request: Request<Bytes>| {
            text(request)?.parse::<u32>().map_err(flowgate::route::BoxError::from)
        })
        .from(http_in(Method::POST, "/strict").max_body(4))
        .to(|number: u32| async move {
            Err::<String, _>(match number {
                2 => Error::new(flowgate::Code::Unreachable, "a secret host could not be reached"),
                _ => Error::of("a secret of the house"),
            })
        })
        .build()
        .unwrap();
    context.add(&busy).unwrap();
    context.add(&paced).unwrap();
    context.add(&strict).unwrap();
    let url = serve(&context).await;

    let hanging = tokio::spawn(post(format!("{url}/busy"), ""));
    while work.running() == 0 {
        yield_now().await;
    }
    let (status, headers, body) = post(format!("{url}/busy"), "").await;
    assert_eq!((status, &headers["retry-after"]), (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap()));
    assert_eq!(headers["content-type"], "application/problem+json");
    let problem: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&problem["code"], &problem["status"]), (&"RC5026".into(), &503.into()));
    // A client that hangs up cancels the exchange.
    hanging.abort();
    while work.running() > 0 {
        yield_now().await;
    }
    assert_eq!(context.gates()[0].gate.look().in_use, 0);

    assert_eq!(post(format!("{url}/paced"), "").await.0, StatusCode::NO_CONTENT, "dropped by the filter");
    let (status, headers, _) = post(format!("{url}/paced"), "").await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert!(headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() > 3_000);
    assert_eq!(post(format!("{url}/strict"), "four").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(post(format!("{url}/strict"), "12345").await.0, StatusCode::PAYLOAD_TOO_LARGE);
    for (number, expected) in [("1", StatusCode::INTERNAL_SERVER_ERROR), ("2", StatusCode::BAD_GATEWAY)] {
        let (status, _, body) = post(format!("{url}/strict"), number).await;
        assert!(status == expected && !body.contains("secret"), "{status} {body}");
    }

    context.shutdown(Duration::ZERO).await;
    assert_eq!(post(format!("{url}/busy"), "").await.0, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn r7_what_a_route_ran_in_part_is_not_sent_again_by_our_client() {
    // Seen to fail: with a code believed that stands without a reason, the card was charged six times by one request.
    // The clock stands still, so a rate that is spent stays spent.
    let (stage, work) = (Stage::new(), Work::default());
    let charged = Arc::new(AtomicUsize::new(0));
    let charge = || {
        let charged = Arc::clone(&charged);
        move |request: Request<Bytes>| {
            charged.fetch_add(1, Ordering::SeqCst);
            request
        }
    };
    let busy = Route::new("busy")
        .from(http_in(Method::POST, "/busy"))
        .transform(charge())
        .concurrency(Concurrency::max(1).reject())
        .to(work.step::<Request<Bytes>>())
        .transform(|_| "done");
    let paced = Route::new("paced")
        .from(http_in(Method::POST, "/paced"))
        .transform(charge())
        .throttle(Throttle::rate(1, "1s").reject())
        .to(Work::instant().step::<Request<Bytes>>())
        .transform(|_| "done");
    stage.context.add(&busy.build().unwrap()).unwrap();
    stage.context.add(&paced.build().unwrap()).unwrap();
    let url = serve(&stage.context).await;
    let _hanging = tokio::spawn(post(format!("{url}/busy"), ""));
    while work.running() == 0 {
        yield_now().await;
    }
    assert_eq!(post(format!("{url}/paced"), "").await.0, StatusCode::OK);

    let layer = ClientLayer::builder().first_delay(Duration::from_millis(1)).build().unwrap();
    for (path, status, code) in [("busy", 503, "RC5026"), ("paced", 429, "RC5013")] {
        charged.store(0, Ordering::SeqCst);
        let client = layer.layer(Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>());
        let request = Request::post(format!("{url}/{path}")).body(Full::default()).unwrap();
        let (head, body) = client.oneshot(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((head.status.as_u16(), &problem["code"]), (status, &code.into()));
        assert_eq!(charged.load(Ordering::SeqCst), 1, "{path}");
    }
}

#[tokio::test]
async fn r7_http_out_tells_what_may_pass_from_what_will_not() {
    // Seen to fail: with every status taken for an answer.
    let upstream = Context::new();
    let answers = Route::new("answers")
        .from(http_in(Method::POST, "/{status}"))
        .transform(|request: Request<Bytes>| request.uri().path()[1..].parse::<u16>().unwrap())
        .transform(|status| StatusCode::from_u16(status).unwrap())
        .build()
        .unwrap();
    upstream.add(&answers).unwrap();
    let url = serve(&upstream).await;
    let context = Context::new();
    let ask = |id: &str, to: &str| {
        let asks = Route::new(id)
            .from(direct::<&'static str>())
            .to(http(to))
            .transform(|reply: HttpReply| reply.status.as_u16());
        context.add(&asks.build().unwrap()).unwrap();
    };
    for status in ["204", "404", "503", "429"] {
        ask(status, &format!("{url}/{status}"));
    }
    let gone = flowgate_testkit::free_port().unwrap();
    ask("gone", &format!("http://127.0.0.1:{gone}/"));
    let any = Route::new("any").from(direct::<&'static str>()).to(http(&format!("{url}/404")).any_status());
    context.add(&any.transform(|reply: HttpReply| reply.status.as_u16()).build().unwrap()).unwrap();
    context.start().unwrap();
    for (id, expected) in [
        ("204", Ok(204)),
        ("any", Ok(404)),
        ("404", Err(("RC5001", false))),
        ("503", Err(("RC5001", true))),
        ("429", Err(("RC5001", true))),
        ("gone", Err(("RC5010", true))),
    ] {
        let answer = context.direct::<&'static str, u16>(id).unwrap().call("").await;
        let told = answer.map_err(|halt| {
            let error = halt.error().unwrap();
            (error.code().as_str(), error.is_retryable())
        });
        assert_eq!(told, expected, "{id}");
    }
    for url in ["https://inventory.internal/reserve", "inventory", "ftp://a/b"] {
        let bad = Route::new("bad").from(direct::<String>()).to(http(url)).transform(|_| ());
        assert!(refused(bad.build()).starts_with(&format!("RC5003: option `url` is \"{url}\"")));
    }
}

#[test]
fn s3_an_address_with_a_password_in_it_is_refused_and_not_repeated() {
    // Seen to fail: with the address taken as it was, errors said `user:secret@inventory answered 401`.
    for url in ["http://user:secret@inventory/", "https://user:secret@inventory", "user:secret@inventory"] {
        let bad = Route::new("bad").from(direct::<String>()).to(http(url)).transform(|_| ());
        assert_eq!(
            refused(bad.build()),
            "RC5003: option `url` is an address with a user's name or password before its host; \
             accepted: an address without them; set an `authorization` header"
        );
    }
    let fine = Route::new("fine").from(direct::<String>()).to(http("http://inventory/@me?to=a@b"));
    assert!(fine.transform(|_| ()).build().is_ok());
}

#[tokio::test]
async fn r7_a_body_that_breaks_off_is_not_told_to_be_too_large() {
    // Seen to fail: with every error of a body answered with 413; with only the outermost error looked at, a limit further out
    // was told as a body that broke off.
    let route = Route::new("orders").input(text).from(http_in(Method::POST, "/").max_body(4));
    let router = started(&route.transform(|body: String| body).build().unwrap());
    let answer = async |body: Body| {
        let request = Request::post("/").body(body).unwrap();
        let (head, body) = router.clone().oneshot(request).await.unwrap().into_parts();
        (head.status.as_u16(), String::from_utf8(body.collect().await.unwrap().to_bytes().into()).unwrap())
    };
    assert_eq!(answer(Body::from("four")).await, (200, "four".to_owned()));
    assert_eq!(answer(Body::from("fives")).await.0, 413);
    // As a layer around the router does.
    let limited = Body::new(Limited::new(Body::from("four"), 3));
    assert_eq!(answer(limited).await.0, 413, "too large for somebody further out");
    let broken = futures_util::stream::iter([Ok("fo"), Err(std::io::Error::other("reset by peer"))]);
    let (status, told) = answer(Body::from_stream(broken)).await;
    assert_eq!(status, 400);
    assert!(told.contains(r#""code":"RC5016","detail":"the body broke off: reset by peer""#), "{told}");
}

/// The router of a context that is gone when this returns, with this route and one that it may send to.
fn started<O: IntoResponse + Send + 'static>(route: &Route<Request<Bytes>, O>) -> axum::Router {
    let context = Context::new();
    let shout = Route::new("shout").from(direct()).transform(|body: String| body.to_uppercase());
    context.add(&shout.build().unwrap()).unwrap();
    context.add(route).unwrap();
    context.start().unwrap();
    context.router()
}

#[tokio::test]
async fn r7_a_router_that_outlives_its_context_still_sends_to_other_routes() {
    // Seen to fail: with a router that holds nothing of its context, 500.
    let route = Route::new("orders").input(text).from(http_in(Method::POST, "/"));
    let router = started(&route.to(direct_to::<String, String>("shout")).build().unwrap());
    let response = router.oneshot(Request::post("/").body(Body::from("hello")).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "HELLO");
}
