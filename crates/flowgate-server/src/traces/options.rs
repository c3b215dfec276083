//! Where traces go, as the command line says it.

use clap::Args;
use http::{HeaderName, HeaderValue, Uri};

/// Whether traces are sent, and where.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TraceOptions {
    /// Send traces to this collector, by OTLP over HTTP: http://127.0.0.1:4318 [default: none are sent]
    #[arg(long = "traces", env = "FLOWGATE_TRACES", value_name = "URL", value_parser = collector)]
    pub(super) collector: Option<Uri>,

    /// A header to send to the collector, like 'authorization: Bearer …'
    #[arg(long = "traces-header", env = "FLOWGATE_TRACES_HEADER", value_name = "NAME: \
        VALUE", hide_env_values = true, value_parser = header, requires = "collector")]
    pub(super) header: Option<(HeaderName, HeaderValue)>,
}

/// An address alone stands for its usual path.
fn collector(text: &str) -> Result<Uri, &'static str> {
    let wrong = "accepted: an address like http://127.0.0.1:4318, or a whole URL like https://collector.example/v1/traces";
    let uri: Uri = text.parse().map_err(|_| wrong)?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    if !is_web || uri.host().is_none_or(str::is_empty) {
        return Err(wrong);
    }
    if uri.path().trim_matches('/').is_empty() {
        let text = format!("{}/v1/traces", text.trim_end_matches('/'));
        return text.parse().map_err(|_| wrong);
    }
    Ok(uri)
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    let wrong = "accepted: a name and a value with a colon between them";
    let (name, value) = text.split_once(':').ok_or(wrong)?;
    let mut value = HeaderValue::from_str(value.trim()).map_err(|_| wrong)?;
    value.set_sensitive(true);
    Ok((name.trim().parse().map_err(|_| wrong)?, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_alone_stands_for_its_usual_path() {
        let read = |text| collector(text).map(|uri| uri.to_string());
        assert_eq!(read("http://127.0.0.1:4318").as_deref(), Ok("http://127.0.0.1:4318/v1/traces"));
        assert_eq!(read("https://c.example/").as_deref(), Ok("https://c.example/v1/traces"));
        assert_eq!(read("https://c.example/mine").as_deref(), Ok("https://c.example/mine"));
        for text in ["", "127.0.0.1:4318", "ftp://c.example", "/v1/traces"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(header("authorization: Bearer x").is_ok());
        assert!(header("nothing").is_err());
    }
}
