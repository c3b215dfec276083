//! `egress_proxy`: the HTTP proxy that deliveries go by.
//!
//! Owns the text form, `http://user:password@host:port`, and keeps the password out of sight. It connects to nothing.

use std::{fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, Uri, uri::Scheme};

use crate::message::decode;

/// A proxy that is spoken to in plain HTTP.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    /// Host and port, without who asks.
    uri: Uri,
    /// What `Proxy-Authorization` says.
    credentials: Option<HeaderValue>,
}

/// What is wrong with the text of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a URL like http://10.0.0.1:3128, with a user and a password if the proxy requires them: \
     http://user:password@10.0.0.1:3128"
)]
pub(crate) struct ProxyError;

impl Proxy {
    /// Where it is.
    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// What it wants to be told, by whoever asks it for something.
    pub(crate) fn credentials(&self) -> Option<&HeaderValue> {
        self.credentials.as_ref()
    }
}

impl FromStr for Proxy {
    type Err = ProxyError;

    fn from_str(text: &str) -> Result<Self, ProxyError> {
        let uri: Uri = text.parse().map_err(|_| ProxyError)?;
        let is_plain = uri.scheme() == Some(&Scheme::HTTP);
        if !is_plain || uri.path() != "/" || uri.query().is_some() || text.contains('#') {
            return Err(ProxyError);
        }
        let authority = uri.authority().ok_or(ProxyError)?;
        let (user, place) = match authority.as_str().rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority.as_str()),
        };
        let has_port = place.len() > authority.host().len();
        if authority.host().is_empty() || has_port && matches!(authority.port_u16(), None | Some(0)) {
            return Err(ProxyError);
        }
        let credentials = user.map(credentials).transpose()?;
        let uri = format!("http://{place}").parse().map_err(|_| ProxyError)?;
        Ok(Proxy { uri, credentials })
    }
}

/// Who asks, in the form that the header has.
fn credentials(user: &str) -> Result<HeaderValue, ProxyError> {
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let (name, password) = (decode(name).ok_or(ProxyError)?, decode(password).ok_or(ProxyError)?);
    if name.is_empty() || name.contains(':') {
        return Err(ProxyError);
    }
    let text = format!("Basic {}", STANDARD.encode(format!("{name}:{password}")));
    let mut value = HeaderValue::from_str(&text).map_err(|_| ProxyError)?;
    value.set_sensitive(true);
    Ok(value)
}

/// As it may be shown.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = if self.credentials.is_some() { "…@" } else { "" };
        write!(f, "http://{who}{}", self.uri.authority().map_or("", |authority| authority.as_str()))
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_read_whole_and_its_password_is_never_shown() {
        let plain: Proxy = "http://10.0.0.1:3128".parse().expect("a proxy");
        assert_eq!((plain.to_string().as_str(), plain.credentials()), ("http://10.0.0.1:3128", None));
        let known: Proxy = "http://me:p%40ss%3Aword@proxy.test:3128/".parse().expect("a proxy");
        assert_eq!(known.uri(), "http://proxy.test:3128/");
        let told = known.credentials().expect("it has some");
        assert_eq!(told, format!("Basic {}", STANDARD.encode("me:p@ss:word")).as_str());
        for shown in [known.to_string(), format!("{known:?}"), format!("{told:?}")] {
            assert!(!shown.contains("me:") && !shown.contains("bWU6"), "{shown}");
        }
        assert!("http://[::1]".parse::<Proxy>().is_ok());
        for text in [
            "",
            "10.0.0.1:3128",
            "https://10.0.0.1:3128",
            "socks5://10.0.0.1",
            "http://10.0.0.1:0",
            "http://10.0.0.1:3128/path",
            "http://10.0.0.1:3128?q",
            "http://:secret@10.0.0.1",
        ] {
            assert_eq!(text.parse::<Proxy>(), Err(ProxyError), "{text}");
        }
    }
}
