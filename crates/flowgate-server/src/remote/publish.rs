//! `flowgate publish`: sends a message.

use http::Method;

use super::{
    client::{Server, text},
    failure::Failure,
    options::{PublishOptions, Settings},
};

pub(crate) fn publish(options: &PublishOptions) -> Result<(), Failure> {
    let server = Server::new(&options.server)?;
    let path = match &options.queue {
        Some(queue) => format!("/v2/enqueue/{}/{}", super::client::part(queue), options.destination),
        None => format!("/v2/publish/{}", options.destination),
    };
    let sent = server.send(Method::POST, &path, &headers(&options.settings)?, &options.settings.body)?;
    server.print(&sent, |sent| {
        let all = sent.as_array().cloned().unwrap_or_else(|| vec![sent.clone()]);
        all.iter().map(|sent| format!("{}\n", text(&sent["messageId"]))).collect()
    })
}

/// The settings as the protocol's headers.
pub(super) fn headers(settings: &Settings) -> Result<Vec<(String, String)>, Failure> {
    let mut headers = Vec::new();
    for header in &settings.header {
        let wrong =
            || Failure::Refused(format!("--header is {header:?}; accepted: a name, a colon and a value"));
        let (name, value) = header.split_once(':').ok_or_else(wrong)?;
        let name = name.trim();
        let is_type = name.eq_ignore_ascii_case("content-type");
        let name = if is_type { name.to_owned() } else { format!("Upstash-Forward-{name}") };
        headers.push((name, value.trim().to_owned()));
    }
    // Whoever sends JSON by hand means it as that; text, numbers and the like may be anything.
    let is_json = settings.body.trim_start().starts_with(['{', '['])
        && serde_json::from_str::<serde::de::IgnoredAny>(&settings.body).is_ok();
    if is_json && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
    }
    let limits = [
        settings.parallelism.map(|max| format!("parallelism={max}")),
        settings.rate.map(|rate| format!("rate={rate}")),
        settings.period.as_ref().map(|period| format!("period={period}")),
        settings.smooth.then(|| "smooth=true".to_owned()),
    ];
    let limits = limits.into_iter().flatten().collect::<Vec<_>>().join(",");
    let plain = [
        ("Upstash-Method", settings.method.clone()),
        ("Upstash-Flow-Control-Key", settings.key.clone()),
        ("Upstash-Flow-Control-Value", Some(limits).filter(|limits| !limits.is_empty())),
        ("Upstash-Retries", settings.retries.map(|retries| retries.to_string())),
        ("Upstash-Delay", settings.delay.clone()),
        ("Upstash-Timeout", settings.timeout.clone()),
        ("Upstash-Callback", settings.callback.clone()),
        ("Upstash-Label", settings.label.clone()),
    ];
    headers.extend(plain.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    Ok(headers)
}
