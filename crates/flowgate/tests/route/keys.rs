//! R3 and G6: whose keys an exchange has, and how often it is asked for them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use flowgate::route::{
    Concurrency, Cx, Direct, Error, Exchange, Failure, Outcome, Retry, Route, Step, direct,
};
use flowgate_testkit::Driven;

use crate::kit::{MS, Stage, Work, tenant};

/// A bound for each tenant, which counts how often it asks.
fn by_tenant(asked: &Arc<AtomicUsize>) -> Concurrency<String> {
    let asked = Arc::clone(asked);
    Concurrency::max(1).key(move |exchange: &Exchange<String>| {
        asked.fetch_add(1, Ordering::SeqCst);
        tenant(exchange)
    })
}

/// The keys of those who acquired a slot.
fn keys(stage: &Stage) -> Vec<String> {
    let lines = stage.diary.take_of("route:concurrency:acquired");
    let key = |line: &String| line.split("key=").nth(1)?.split(' ').next().map(str::to_owned);
    lines.iter().filter_map(key).collect()
}

/// A step that hands its whole exchange on to another route.
struct HandsOn(Direct<String, String>);

impl Step<String> for HandsOn {
    type Out = String;

    async fn run<'a>(&'a self, exchange: Exchange<String>, _: Cx<'a>) -> Outcome<String> {
        self.0.send(exchange).await
    }
}

#[test]
fn r3_an_exchange_that_comes_back_from_another_route_has_none_of_its_keys() {
    // Seen to fail: with `Flight::poll` handing on an exchange with its keys, the bound for each tenant is one for each number.
    let stage = Stage::new();
    let number =
        |exchange: &Exchange<String>| exchange.body.rsplit(':').next().unwrap_or_default().to_owned();
    let other = Route::new("by-number").concurrency(Concurrency::max(1).key(number)).from(direct());
    let other = Stage::new().direct(&other.transform(|body: String| body).build().unwrap());
    let asked = Arc::default();
    let route = Route::new("by-tenant")
        .from(direct())
        .step(HandsOn(other))
        .concurrency(by_tenant(&asked))
        .to(Work::instant().step::<String>());
    let handle = stage.direct(&route.build().unwrap());
    Driven::new(handle.call("acme:7".to_owned())).poll().unwrap().unwrap();
    assert_eq!((keys(&stage), asked.load(Ordering::SeqCst)), (vec!["acme".to_owned()], 1));
}

#[test]
fn r3_an_exchange_is_asked_for_its_key_once_in_branches_and_after_an_error_was_recovered() {
    // Seen to fail: with `Exchange::envelope` without the keys, each attempt asks again after the error; with branches as parts
    // of their own, each asks again there.
    let stage = Stage::new();
    let work = Work::instant().fail(1);
    let (recovered, branched) = (Arc::default(), Arc::default());
    let route = Route::new("asks")
        .retry(Retry::new().backoff(MS))
        .from(direct())
        .error(|_: Failure| async { Ok::<_, Error>("acme:8".to_owned()) })
        .validate(|_: &String| Err("not this one"))
        .concurrency(by_tenant(&recovered))
        .transform(|body: String| body)
        .multicast(|fan| fan.branch(|way| way.concurrency(by_tenant(&branched)).to(work.step::<String>())))
        .transform(|bodies: Vec<String>| bodies.concat());
    let handle = stage.direct(&route.build().unwrap());
    let mut call = Driven::pending(handle.call("acme:7".to_owned()));
    stage.advance(MS);
    assert_eq!(call.ready().unwrap(), "acme:8");
    assert_eq!(keys(&stage), ["acme"; 4], "two attempts, each through both bounds");
    assert_eq!([&recovered, &branched].map(|asked| asked.load(Ordering::SeqCst)), [1, 1]);
}

#[test]
fn r3_each_part_of_a_split_has_a_key_of_its_own_whatever_the_attempts() {
    // Seen to fail: with parts that know the keys of the whole, the second part was in the lane of the first.
    let stage = Stage::new();
    let (work, asked) = (Work::instant().fail(1), Arc::default());
    let route = Route::new("parts")
        .retry(Retry::new().backoff(MS))
        .from(direct())
        .split(
            |body: String| body.split(' ').map(str::to_owned).collect(),
            |part| part.concurrency(by_tenant(&asked)).to(work.step::<String>()),
        )
        .aggregate(|parts: Vec<String>| parts.join("+"));
    let handle = stage.direct(&route.build().unwrap());
    let mut call = Driven::pending(handle.call("acme:1 globex:1".to_owned()));
    stage.advance(MS);
    assert_eq!(call.ready().unwrap(), "acme:1+globex:1");
    assert_eq!(keys(&stage), ["acme", "acme", "globex"]);
}
