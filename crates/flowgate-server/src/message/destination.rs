//! Where a message goes, taken from the raw target of the request.
//!
//! The destination follows the path's prefix as it is, its query included: `/v2/publish/https://host/path?a=b`. Nothing is
//! decoded, collapsed or sorted on the way.

use http::Uri;

use super::{Fault, name};

const ACCEPTED: &str = "a URL that begins with http:// or https://, or the name of a URL group";
const FORM: &str = "a URL with a host, like https://example.com/path";
const LONGEST: usize = 16 * 1024;

/// Where a message goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// One endpoint.
    Url(String),
    /// All endpoints of a URL group.
    Group(String),
}

/// A destination, and the settings that stood in its query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) destination: Destination,
    /// Keys like `upstash-retries`, in lower case, with their values.
    pub(crate) settings: Vec<(String, String)>,
}

impl Destination {
    /// The destination that this text names.
    pub(crate) fn read(text: &str) -> Result<Self, Fault> {
        if let Some(url) = url(text)? {
            return Ok(Destination::Url(url));
        }
        name("the destination", text).map_err(|_| Fault::new("the destination", text, ACCEPTED))?;
        Ok(Destination::Group(text.to_owned()))
    }
}

impl Target {
    /// From what follows the prefix in the request's target, query included.
    pub(crate) fn read(raw: &str) -> Result<Self, Fault> {
        let (path, query) = match raw.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (raw, None),
        };
        let decoded;
        let path = if has_scheme(path) {
            path
        } else {
            decoded = decode(path).filter(|text| has_scheme(text)).unwrap_or_else(|| path.to_owned());
            &decoded
        };
        let mut settings = Vec::new();
        let mut kept = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let key = key.to_ascii_lowercase();
            if key == "qstash_token" {
                continue;
            }
            if key.starts_with("upstash-") {
                let value = decode(&value.replace('+', " ")).unwrap_or_else(|| value.to_owned());
                settings.push((key, value));
                continue;
            }
            kept.push(pair);
        }
        let text = match (query, kept.is_empty()) {
            (Some(""), true) => format!("{path}?"),
            (_, true) => path.to_owned(),
            (_, false) => format!("{path}?{}", kept.join("&")),
        };
        Ok(Target { destination: Destination::read(&text)?, settings })
    }
}

fn has_scheme(text: &str) -> bool {
    let starts =
        |scheme: &str| text.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme));
    starts("http://") || starts("https://")
}

/// The URL, if it is meant to be one.
fn url(text: &str) -> Result<Option<String>, Fault> {
    if !has_scheme(text) {
        return Ok(None);
    }
    let wrong = |accepted| Err(Fault::new("the destination", text, accepted));
    if text.len() > LONGEST {
        return wrong("a URL of up to 16 KiB, and the rest in the body");
    }
    let text = text.split('#').next().unwrap_or_default();
    let Ok(uri) = text.parse::<Uri>() else { return wrong(FORM) };
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    let has_port = uri.authority().is_some_and(|authority| {
        let after = authority.as_str().rsplit_once(']').map_or(authority.as_str(), |(_, port)| port);
        after.split_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0))
    });
    if uri.host().is_none_or(str::is_empty) {
        return wrong(FORM);
    }
    if has_user {
        // What was said is not told again: it may be a password.
        return Err(Fault::text(
            "the destination has a user before its host; send https://host/path, and the credentials as \
             Upstash-Forward-Authorization",
        ));
    }
    if !has_port {
        return wrong("a port from 1 to 65535, or none");
    }
    Ok(Some(text.to_owned()))
}

/// Percent-decoded, if that is text.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn url_of(raw: &str) -> String {
        match Target::read(raw).unwrap_or_else(|fault| panic!("{fault}")).destination {
            Destination::Url(url) => url,
            Destination::Group(name) => panic!("{name} is a group"),
        }
    }

    #[test]
    fn a_destination_is_taken_as_it_stands() {
        for raw in [
            "https://example.com",
            "http://127.0.0.1:3000/a//b/?x=1&y=%2F&x=2",
            "https://example.com/p?",
            "https://[::1]:8080/a%20b",
            "HTTPS://Example.com/UPPER",
        ] {
            assert_eq!(url_of(raw), raw);
        }
        assert_eq!(url_of("https%3A%2F%2Fexample.com%2Fa%3Fb"), "https://example.com/a?b");
        assert_eq!(url_of("https://example.com/a#part"), "https://example.com/a");
        let group = Target::read("my-group").expect("a group").destination;
        assert_eq!(group, Destination::Group("my-group".into()));
    }

    #[test]
    fn settings_leave_the_query() {
        let target =
            Target::read("https://e.com/p?a=1&Upstash-Retries=3&qstash_token=secret&upstash-delay=1%6D&b=2");
        let target = target.expect("a target");
        assert_eq!(target.destination, Destination::Url("https://e.com/p?a=1&b=2".into()));
        let settings = [("upstash-retries".into(), "3".into()), ("upstash-delay".into(), "1m".into())];
        assert_eq!(target.settings, settings);
        assert_eq!(url_of("https://e.com/p?qstash_token=secret"), "https://e.com/p");
    }

    #[test]
    fn what_is_no_destination_is_named_with_what_is() {
        for raw in [
            "",
            "ftp://example.com",
            "https://",
            "http:///path",
            "https://user:pw@host/",
            "a/b",
            "https://host:99999/",
            "https://ho st/",
            "example.com/path",
        ] {
            let fault = Target::read(raw).expect_err(raw).to_string();
            assert!(fault.contains("http"), "{fault}");
        }
        let long = format!("https://host/{}", "x".repeat(LONGEST));
        for (raw, told) in [
            (long.as_str(), "up to 16 KiB"),
            ("http://host:0/", "a port from 1 to 65535"),
            ("http://u:word@host/", "a user before its host"),
        ] {
            let fault = Target::read(raw).expect_err(raw).to_string();
            assert!(fault.contains(told) && !fault.contains("word"), "{fault}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_target_or_a_fault(raw in "\\PC{0,40}") {
            let _ = Target::read(&raw);
        }

        #[test]
        fn any_url_is_one_that_can_be_asked(tail in "[a-z0-9:/?&=%@.#\\[\\]-]{0,40}") {
            if let Ok(Target { destination: Destination::Url(url), .. }) = Target::read(&format!("https://{tail}")) {
                prop_assert!(url.parse::<Uri>().is_ok_and(|uri| uri.host().is_some()));
            }
        }
    }
}
