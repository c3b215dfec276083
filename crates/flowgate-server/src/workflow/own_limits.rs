//! A step with a key and limits of its own, asked for where the run is started.
//!
//! `Flowgate-Step-3: key=payments, parallelism=2, rate=10, period=1s` among the headers of the trigger: the delivery that runs
//! step number 3 waits under these limits, and not under those of the run.

use crate::message::{Fault, Flow, Spec};

const PREFIX: &str = "Flowgate-Step-";
const FORM: &str = "key=<name>, and parallelism=<number>, rate=<number> and period=<span> as for a run";

/// The key and limits of this step of a run, if it has its own.
pub(crate) fn own_limits(run: &Spec, step: u64) -> Option<Flow> {
    let named = run.headers.iter().find(|(name, _)| number(name) == Some(Ok(step)));
    named.and_then(|(_, value)| read(value).ok())
}

/// The first of a run's headers that should give a step its own limits, and cannot.
pub(crate) fn check_own_limits(run: &Spec) -> Result<(), Fault> {
    for (name, value) in &run.headers {
        match number(name) {
            None => {}
            Some(Err(text)) => {
                return Err(Fault::new(&format!("{PREFIX}<number>"), text, "the number of a step, from 1"));
            }
            Some(Ok(_)) => {
                read(value).map_err(|fault| Fault::text(format!("{name}: {fault}")))?;
            }
        }
    }
    Ok(())
}

/// The number of the step that a header is about, if it is about one.
fn number(name: &str) -> Option<Result<u64, &str>> {
    let text = name
        .get(..PREFIX.len())
        .filter(|head| head.eq_ignore_ascii_case(PREFIX))
        .map(|_| &name[PREFIX.len()..])?;
    Some(text.parse().ok().filter(|number| *number > 0).ok_or(text))
}

fn read(value: &str) -> Result<Flow, Fault> {
    let parts: Vec<&str> = value.split(',').map(str::trim).collect();
    let key = parts.iter().find_map(|part| part.strip_prefix("key=")).map(str::trim);
    let key = key.ok_or_else(|| Fault::new("the value", value, FORM))?;
    let rest: Vec<&str> = parts.iter().filter(|part| !part.starts_with("key=")).copied().collect();
    Flow::read(key, Some(&rest.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::read as read_spec;

    fn run(name: &str, value: &str) -> Spec {
        read_spec(&[(format!("Upstash-Forward-{name}"), value)].into_iter().collect()).expect("headers")
    }

    #[test]
    fn a_step_has_its_own_key_by_its_number() {
        let run = run("flowgate-step-3", "key=payments, parallelism=2, rate=10, period=1m");
        let flow = own_limits(&run, 3).expect("it has its own");
        assert_eq!(
            (flow.key.as_str(), flow.parallelism, flow.rate, flow.period),
            ("payments", Some(2), Some(10), 60_000)
        );
        assert_eq!(own_limits(&run, 2), None);
        assert_eq!(check_own_limits(&run), Ok(()));
    }

    #[test]
    fn what_is_no_limit_of_a_step_is_named_with_what_is() {
        for (name, value, said) in [
            ("Flowgate-Step-Charge", "key=a, rate=1", "the number of a step"),
            ("Flowgate-Step-0", "key=a, rate=1", "the number of a step"),
            ("Flowgate-Step-1", "parallelism=1", "key=<name>"),
            ("Flowgate-Step-1", "key=a", "rate=X or parallelism=Y"),
            ("Flowgate-Step-1", "key=a b, rate=1", "letters, digits"),
        ] {
            let fault = check_own_limits(&run(name, value)).expect_err(value).to_string();
            assert!(fault.contains(said), "{fault}");
        }
        assert_eq!(check_own_limits(&run("Flowgate-Other", "x")), Ok(()));
    }
}
