//! The reference page of the metrics, made from the table.

use std::fmt::Write;

use super::names::METRICS;

/// `docs/reference/metrics.md`.
pub(crate) fn reference() -> String {
    let mut page = "# Metrics\n\n\
        What `GET /metrics` of `flowgate serve` returns. Made from the program's own table by `cargo xtask docs`. How to \
        scrape it:\n\
        [the guide](../guide/metrics.md). Names are stable. Keys are not labels, so the number of series does not depend \
        on how many keys\n\
        there are.\n\n\
        | name | kind | labels | meaning |\n|---|---|---|---|\n"
        .to_owned();
    for metric in METRICS {
        let labels: Vec<String> =
            metric.labels.iter().map(|(name, bound)| format!("`{name}`: {bound}")).collect();
        let labels = labels.join("; ");
        let _ =
            writeln!(page, "| `{}` | {} | {labels} | {} |", metric.name, metric.kind.as_str(), metric.help);
    }
    page
}
