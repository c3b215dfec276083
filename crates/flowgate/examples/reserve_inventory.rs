//! At most five reservations in flight at once, however many orders come: a route before a service that likes no more.
//!
//! `cargo run --package flowgate --features axum,route-http --example reserve_inventory` starts the service, sends twenty orders
//! through the route and prints what came of it.
#![allow(clippy::print_stdout, reason = "an example is for reading")]

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, routing::post};
use flowgate::route::{Concurrency, Context, HttpReply, Retry, Route, direct, http};
use tokio::net::TcpListener;

#[expect(clippy::needless_pass_by_value, reason = "a step is given the body")]
fn format_receipt(reply: HttpReply) -> String {
    format!("receipt: {}", reply.text())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let most = Arc::new(AtomicUsize::new(0));
    let inventory = inventory(Arc::clone(&most)).await?;

    let route = Route::new("reserve-inventory")
        .from(direct::<String>())
        .retry(Retry::new().max_attempts(4).backoff(Duration::from_millis(50)).factor(2.0))
        .concurrency(Concurrency::max(5)) // at most 5 reservations in flight at once
        .to(http(&format!("{inventory}/reserve"))) // bounded
        .transform(format_receipt) // NOT bounded
        .build()?;

    let context = Context::new();
    context.add(&route)?;
    context.start()?;

    let reserve = context.direct::<String, String>("reserve-inventory")?;
    let orders: Vec<_> = (1..=20)
        .map(|order| {
            let reserve = reserve.clone();
            tokio::spawn(async move { reserve.call(format!("order {order}")).await })
        })
        .collect();
    let mut last = String::new();
    let count = orders.len();
    for order in orders {
        last = order.await??;
    }
    println!("{count} orders reserved, the last one: {last}");
    println!("at most {} in flight at once", most.load(Ordering::SeqCst));
    println!("shut down cleanly: {}", context.shutdown(Duration::from_secs(1)).await.is_clean());
    Ok(())
}

/// The service: it notes how many it had to do with at once.
async fn inventory(most: Arc<AtomicUsize>) -> Result<String, Box<dyn Error + Send + Sync>> {
    let now = Arc::new(AtomicUsize::new(0));
    let reserve = move |order: String| {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            format!("{order}, reserved")
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let service = Router::new().route("/reserve", post(reserve));
    tokio::spawn(async move { axum::serve(listener, service).await });
    Ok(format!("http://{address}"))
}
