//! The text that Prometheus reads, version 0.0.4.
//!
//! Owns its form: a help and a type for each metric, then its samples; labels escaped.

use std::fmt::Write;

use super::{
    meter::{BOUNDS, Histogram},
    names::Metric,
};

/// A page as it grows.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
}

impl Exposition {
    /// A metric with one sample.
    pub(super) fn one(&mut self, metric: &Metric, value: f64) {
        self.many(metric, [(Vec::new(), value)]);
    }

    /// A metric and its samples, each with the values of its labels. One without samples is left out.
    pub(super) fn many<'a>(
        &mut self,
        metric: &Metric,
        samples: impl IntoIterator<Item = (Vec<&'a str>, f64)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        self.head(metric);
        for (values, value) in samples {
            let labels = metric.labels.iter().zip(values);
            let labels: Vec<String> =
                labels.map(|((name, _), value)| format!("{name}=\"{}\"", escaped(value))).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            let _ = writeln!(self.text, "{}{labels} {value}", metric.name);
        }
    }

    /// A histogram.
    pub(super) fn histogram(&mut self, metric: &Metric, histogram: &Histogram) {
        self.head(metric);
        let name = metric.name;
        let (counts, sum) = histogram.read();
        let mut seen = 0;
        for (bound, count) in BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]).zip(counts) {
            seen += count;
            let _ = writeln!(self.text, "{name}_bucket{{le=\"{bound}\"}} {seen}");
        }
        let _ = writeln!(self.text, "{name}_sum {sum}\n{name}_count {seen}");
    }

    fn head(&mut self, metric: &Metric) {
        let Metric { name, kind, help, .. } = metric;
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {}", kind.as_str());
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::names::{QUEUE_WAITING, STORE_UP};

    #[test]
    fn what_is_odd_in_a_label_is_escaped() {
        let mut page = Exposition::default();
        page.many(&QUEUE_WAITING, [(vec!["a\"b\\c\nd"], 3.0)]);
        page.many(&STORE_UP, []);
        assert_eq!(
            page.finish(),
            "# HELP flowgate_queue_waiting Tasks in line; up to 100,000 per queue are counted, including delayed ones.\n# \
             TYPE flowgate_queue_waiting gauge\n\
             flowgate_queue_waiting{queue=\"a\\\"b\\\\c\\nd\"} 3\n"
        );
    }
}
