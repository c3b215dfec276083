//! Patterns: which hosts, paths and methods a route takes.
//!
//! Owns their text forms and what each part means. It matches nothing itself: that is the gateway's router.

use std::{fmt, str::FromStr};

use http::Method;

// As the domain name system has them.
const LONGEST_HOST: usize = 253;
const LONGEST_LABEL: usize = 63;

/// A host, in lower case and without a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum HostPattern {
    /// Exactly this one.
    Exact(String),
    /// `*.example.com`, kept as `example.com`: any host with at least one more label before it.
    Under(String),
}

/// A path: `/v1/{tenant}/actions/{*rest}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PathPattern {
    segments: Vec<Segment>,
}

/// What stands between two slashes of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Segment {
    /// Exactly this text, as sent on the wire. May be empty: `/v1/` is not `/v1`.
    Literal(String),
    /// `{tenant}`: any one segment that is not empty.
    Param(String),
    /// `{*rest}`, always the last one: all that is left, slashes and all; may be empty (`/v1/{*rest}` takes `/v1/`, and
    /// `/{*rest}` takes every path).
    Rest(String),
}

/// Which methods a route takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Methods {
    /// Any.
    All,
    /// These. Not empty, no two the same.
    These(Vec<Method>),
}

/// What is wrong with the text of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct PatternError(String);

impl PathPattern {
    /// What stands between its slashes, in order; one empty literal for `/`.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The names of its parameters, in order.
    pub(crate) fn params(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Literal(_) => None,
            Segment::Param(name) | Segment::Rest(name) => Some(name.as_str()),
        })
    }

    /// The path without the names of its parameters: two of the same shape take exactly the same paths.
    pub(crate) fn shape(&self) -> String {
        let part = |segment: &Segment| match segment {
            Segment::Literal(text) => format!("/{text}"),
            Segment::Param(_) => "/{}".to_owned(),
            Segment::Rest(_) => "/{*}".to_owned(),
        };
        self.segments.iter().map(part).collect()
    }
}

impl Methods {
    /// Whether it takes this one.
    pub(crate) fn contains(&self, method: &Method) -> bool {
        match self {
            Methods::All => true,
            Methods::These(these) => these.contains(method),
        }
    }

    /// Whether there is a method that both take.
    pub(crate) fn overlaps(&self, other: &Methods) -> bool {
        match (self, other) {
            (Methods::All, _) | (_, Methods::All) => true,
            (Methods::These(these), Methods::These(_)) => these.iter().any(|method| other.contains(method)),
        }
    }
}

impl FromStr for PathPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let wrong = |accepted: &str| Err(PatternError(accepted.to_owned()));
        let Some(inner) = text.strip_prefix('/') else {
            return wrong("a path that begins with `/`, like /v1/{tenant}/actions/{*rest}");
        };
        let segments = inner.split('/').map(segment).collect::<Result<Vec<_>, _>>()?;
        let pattern = PathPattern { segments };
        if pattern.segments.iter().rev().skip(1).any(|segment| matches!(segment, Segment::Rest(_))) {
            return wrong("a path with nothing after `{*…}`, which matches everything that is left");
        }
        let names: Vec<_> = pattern.params().collect();
        for (at, name) in names.iter().enumerate() {
            if names[..at].contains(name) {
                return Err(PatternError(format!(
                    "a path in which each parameter has a different name, unlike `{name}`"
                )));
            }
        }
        Ok(pattern)
    }
}

fn segment(text: &str) -> Result<Segment, PatternError> {
    let wrong = |accepted: &str| Err(PatternError(accepted.to_owned()));
    if let Some(inner) = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
        let name = inner.strip_prefix('*').unwrap_or(inner);
        let is_name =
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_name {
            return wrong("parameters like {tenant} or {*rest}, named by letters, digits and `_`");
        }
        let name = name.to_owned();
        return Ok(if inner.starts_with('*') { Segment::Rest(name) } else { Segment::Param(name) });
    }
    if text.contains(['{', '}']) {
        return wrong("parameters that are a whole segment, like /v1/{tenant}/actions");
    }
    if matches!(text, "." | "..") {
        return wrong("a path without `.` and `..` as segments");
    }
    // RFC 3986, `pchar`.
    let is_sent = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@%".contains(&byte);
    if !text.bytes().all(is_sent) {
        return wrong(
            "a path as it is sent: letters, digits and -._~!$&'()*+,;=:@, the rest percent-encoded, and no query",
        );
    }
    if !text.match_indices('%').all(|(at, _)| is_normal(&text[at + 1..])) {
        return wrong(
            "a path in its normal form: percent-encoding has two uppercase hex digits, like %2F, and does not encode \
             letters, digits or -._~",
        );
    }
    Ok(Segment::Literal(text.to_owned()))
}

/// Whether what begins with two digits is percent-encoded for a reason: so that one path has one pattern.
fn is_normal(digits: &str) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'A'..=b'F');
    let pair = digits.get(..2).filter(|pair| pair.as_bytes().iter().all(is_digit));
    let byte = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
    byte.is_some_and(|byte| !byte.is_ascii_alphanumeric() && !b"-._~".contains(&byte))
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Literal(text) => write!(f, "/{text}")?,
                Segment::Param(name) => write!(f, "/{{{name}}}")?,
                Segment::Rest(name) => write!(f, "/{{*{name}}}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for HostPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let (under, host) = match text.strip_prefix("*.") {
            Some(host) => (true, host),
            None => (false, text),
        };
        let is_label = |label: &str| {
            let is_sent = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            (1..=LONGEST_LABEL).contains(&label.len()) && label.bytes().all(is_sent)
        };
        let is_ipv6 = || {
            let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            inner.is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok()) && !under
        };
        let is_name = host.len() <= LONGEST_HOST && host.split('.').all(is_label);
        if !is_name && !is_ipv6() {
            return Err(PatternError(
                "a host without a port, like api.example.com or *.example.com".to_owned(),
            ));
        }
        let host = host.to_ascii_lowercase();
        Ok(if under { HostPattern::Under(host) } else { HostPattern::Exact(host) })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPattern::Exact(host) => write!(f, "{host}"),
            HostPattern::Under(host) => write!(f, "*.{host}"),
        }
    }
}

impl fmt::Display for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Methods::All => write!(f, "*"),
            Methods::These(these) => {
                for (at, method) in these.iter().enumerate() {
                    write!(f, "{}{method}", if at == 0 { "" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_its_segments() {
        // Seen to fail: with empty segments left out, `/v1/` is `/v1`.
        let literal = |text: &str| Segment::Literal(text.to_owned());
        for (text, segments) in [
            ("/", vec![literal("")]),
            ("/v1/", vec![literal("v1"), literal("")]),
            ("/{*rest}", vec![Segment::Rest("rest".to_owned())]),
            (
                "/v1/{tenant}/a%20b",
                vec![literal("v1"), Segment::Param("tenant".to_owned()), literal("a%20b")],
            ),
        ] {
            let pattern: PathPattern = text.parse().unwrap();
            assert_eq!((pattern.segments(), pattern.to_string().as_str()), (segments.as_slice(), text));
        }
    }

    #[test]
    fn paths_of_the_same_shape_take_the_same() {
        // Seen to fail: with the names of parameters in the shape.
        let shape = |text: &str| text.parse::<PathPattern>().unwrap().shape();
        assert_eq!(shape("/a/{x}/{*y}"), shape("/a/{y}/{*x}"));
        for other in ["/a/{x}/y", "/a/{x}", "/a/x/{*y}", "/a/{x}/{y}", "/b/{x}/{*y}"] {
            assert_ne!(shape("/a/{x}/{*y}"), shape(other), "{other}");
        }
    }

    #[test]
    fn hosts_are_exact_or_all_below_one() {
        // Seen to fail: with the case of a host kept.
        for (text, host) in [
            ("API.Example.com", HostPattern::Exact("api.example.com".to_owned())),
            ("*.example.com", HostPattern::Under("example.com".to_owned())),
            ("[::1]", HostPattern::Exact("[::1]".to_owned())),
            ("10.0.0.1", HostPattern::Exact("10.0.0.1".to_owned())),
        ] {
            assert_eq!(text.parse(), Ok(host));
        }
        for text in
            ["", "*", "*.", "a..b", ".a", "a:80", "*.*.a", "*.[::1]", "::1", "a b", "ä.de", &"a".repeat(64)]
        {
            assert!(text.parse::<HostPattern>().is_err(), "{text}");
        }
    }

    #[test]
    fn methods_overlap_where_one_is_in_both() {
        // Seen to fail: with `All` overlapping only itself.
        let these = |methods: &[Method]| Methods::These(methods.to_vec());
        assert!(
            Methods::All.overlaps(&these(&[Method::GET])) && these(&[Method::GET]).overlaps(&Methods::All)
        );
        assert!(these(&[Method::GET, Method::PUT]).overlaps(&these(&[Method::PUT])));
        assert!(!these(&[Method::GET]).overlaps(&these(&[Method::PUT])));
    }
}
