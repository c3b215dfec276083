//! What a run was started with holds for its later messages, unless they bring their own.

use super::own_limits;
use crate::message::Spec;

/// Their own name space: what the run's first message forwarded there is not for the others.
const OWN: &str = "Upstash-Workflow-";

/// The settings of a later message of a run: its own, over the run's. When it starts, where it calls back and what makes it
/// one with another are its own alone, and the latter is none: a step whose message is another's would never be delivered.
/// `next` is the step that its delivery will run, which may have limits of its own.
pub(crate) fn inherit(mut own: Spec, run: &Spec, next: Option<u64>) -> Spec {
    own.dedupe = None;
    own.retries = own.retries.or(run.retries);
    own.retry_delay = own.retry_delay.or_else(|| run.retry_delay.clone());
    own.timeout = own.timeout.or(run.timeout);
    let of_step = || next.and_then(|step| own_limits(run, step));
    own.flow = own.flow.or_else(of_step).or_else(|| run.flow.clone());
    own.failure_callback = own.failure_callback.or_else(|| run.failure_callback.clone());
    if own.labels.is_empty() {
        own.labels.clone_from(&run.labels);
    }
    if own.redact.is_empty() {
        own.redact = run.redact.clone();
    }
    let more = run.headers.iter().filter(|(name, _)| {
        !name.starts_with(OWN) && !own.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
    });
    let more: Vec<_> = more.cloned().collect();
    own.headers.extend(more);
    own
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::read;

    fn spec(headers: &[(&str, &str)]) -> Spec {
        read(&headers.iter().copied().collect()).expect("headers")
    }

    #[test]
    fn f5_the_limits_of_a_run_hold_for_its_steps_unless_one_brings_its_own() {
        // Seen to fail: without the flow in what is inherited.
        let run = spec(&[
            ("Upstash-Flow-Control-Key", "runs"),
            ("Upstash-Flow-Control-Value", "parallelism=1"),
            ("Upstash-Retries", "7"),
            ("Upstash-Delay", "1h"),
            ("Upstash-Callback", "https://e.com/back"),
            ("Upstash-Failure-Callback", "https://e.com/failed"),
            ("Upstash-Label", "a"),
            ("Upstash-Forward-X-User", "u"),
            ("Upstash-Forward-Flowgate-Step-2", "key=second, rate=1"),
            ("Upstash-Forward-Upstash-Workflow-Sdk-Version", "1"),
        ]);
        let plain = inherit(spec(&[]), &run, None);
        assert_eq!(plain.flow.as_ref().expect("a key").key, "runs");
        assert_eq!((plain.retries, plain.labels.as_slice()), (Some(7), &["a".to_owned()][..]));
        let forwarded: Vec<&str> = plain.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(forwarded, ["X-User", "Flowgate-Step-2"]);
        let second = inherit(spec(&[]), &run, Some(2));
        assert_eq!(second.flow.expect("a key").key, "second", "a step may have limits of its own");
        assert!(plain.failure_callback.is_some() && plain.callback.is_none() && plain.start.is_none());
        let own = spec(&[
            ("Upstash-Flow-Control-Key", "step"),
            ("Upstash-Flow-Control-Value", "rate=1"),
            ("Upstash-Forward-X-User", "other"),
            ("Upstash-Retries", "0"),
        ]);
        let own = inherit(own, &run, None);
        assert_eq!((own.flow.expect("a key").key.as_str(), own.retries), ("step", Some(0)));
        assert_eq!(own.headers[0], ("X-User".to_owned(), "other".to_owned()));
    }
}
