//! G12 where layers nest: requests that ask for their own layer again.

use std::{
    convert::Infallible,
    future::ready,
    sync::{Arc, OnceLock},
};

use axum::{body::Body, extract::Request, response::Response};
use flowgate_testkit::Driven;
use tower::{Layer, Service, ServiceExt, service_fn, util::BoxCloneSyncService};

use crate::kit::limit;

type Door = BoxCloneSyncService<Request, Response, Infallible>;

fn request(path: &str) -> Request {
    Request::builder().uri(path).body(Body::empty()).unwrap()
}

#[test]
fn g12_two_that_ask_for_their_own_layer_before_they_are_polled_are_told_apart() {
    // Seen to fail: with `Pass::hold` going by where the pass is, both begin from the same place of the stack, count as one, and
    // wait for each other for good.
    let limit = limit(2, |options| options.max_queue(9));
    let door = Arc::new(OnceLock::<Door>::new());
    let again = Arc::clone(&door);
    let service = service_fn(move |asked: Request| {
        // Called at once, as tower's services do, and not only when this one's future is polled.
        let answer =
            (asked.uri().path() == "/").then(|| again.get().unwrap().clone().call(request("/inner")));
        async move {
            match answer {
                Some(answer) => answer.await,
                None => ready(Ok(Response::new(Body::empty()))).await,
            }
        }
    });
    let limited = limit.layer(service).map_response(|response| response.map(Body::new));
    assert!(door.set(BoxCloneSyncService::new(limited)).is_ok());
    let mut call = |path: &str| Driven::new(door.get().unwrap().clone().call(request(path)));

    let fillers = ["/inner", "/inner"].map(&mut call);
    let [mut one, mut two] = ["/", "/"].map(&mut call);
    assert_eq!((limit.look().in_use, limit.look().waiting), (2, 2));
    drop(fillers);
    // Both have a slot by now. Each asks for another, which only the other could give.
    let status = |answer: Result<Response, Infallible>| answer.unwrap().status().as_u16();
    assert_eq!(one.poll().map(status), None);
    assert_eq!(two.poll().map(status), Some(503), "they wait for each other: {:?}", limit.look());
    assert_eq!((status(one.ready()), limit.look().in_use), (200, 0));
}
