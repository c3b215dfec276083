//! Where a URL is, as filters ask for it: by its host and by its path.

use http::Uri;

/// Whether a URL has one of these hosts, with or without its port, and one of these paths. An empty list asks for nothing.
pub(crate) fn is_at(url: &str, hosts: &[String], paths: &[String]) -> bool {
    if hosts.is_empty() && paths.is_empty() {
        return true;
    }
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let with_port =
        uri.authority().map(|authority| authority.as_str().rsplit('@').next().unwrap_or_default());
    let names = [uri.host(), with_port];
    let is_host = |wanted: &String| names.iter().flatten().any(|name| name.eq_ignore_ascii_case(wanted));
    (hosts.is_empty() || hosts.iter().any(is_host))
        && (paths.is_empty() || paths.iter().any(|wanted| wanted == uri.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f7_a_host_is_meant_with_or_without_its_port() {
        // Seen to fail: with the host alone compared, `e.com:8080` meant nothing.
        let is = |hosts: &[&str], paths: &[&str]| {
            let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            is_at("https://me:word@E.com:8080/a/b?c=d", &owned(hosts), &owned(paths))
        };
        assert!(is(&[], &[]));
        assert!(is(&["e.com"], &[]) && is(&["x", "e.com:8080"], &["/a/b"]));
        assert!(!is(&["e.com:80"], &[]) && !is(&["me:word@e.com:8080"], &[]) && !is(&["com"], &[]));
        assert!(!is(&["e.com"], &["/a"]) && !is(&[], &["/a/b?c=d"]) && !is(&["x"], &["/a/b"]));
    }
}
