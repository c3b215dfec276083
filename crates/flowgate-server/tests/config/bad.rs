//! Every way to get the file wrong, with every word of what is told.
//!
//! The cases are in `bad.txt`: `== file`, `== gateway` or `== route` begins one and says what stands before its lines, and
//! each line that begins with `-- ` is an error that is told, without the name of the file.

use std::net::TcpListener;

use crate::program::Folder;

const GATEWAY: &str = "[gateway]\nupstreams = [\"http://a\"]\n";
const ROUTE: &str = "[[gateway.route]]\nname = \"r\"\npath = \"/p/{id}\"\n";

struct Case {
    text: String,
    errors: Vec<String>,
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in include_str!("bad.txt").lines().filter(|line| !line.is_empty()) {
        if let Some(kind) = line.strip_prefix("== ") {
            let text = match kind {
                "file" => String::new(),
                "gateway" => GATEWAY.to_owned(),
                "route" => format!("{GATEWAY}{ROUTE}"),
                _ => panic!("{line}"),
            };
            cases.push(Case { text, errors: Vec::new() });
            continue;
        }
        let case = cases.last_mut().expect("a case begins with its kind");
        match line.strip_prefix("-- ") {
            Some(error) => case.errors.push(format!("flowgate.toml:{error}")),
            None => case.text.extend([line, "\n"]),
        }
    }
    cases
}

#[test]
fn each_mistake_is_told_with_its_place_its_value_and_what_is_accepted() {
    // Seen to fail: with any word of a message changed, with a column counted from 0, and with only the first error told.
    let folder = Folder::new("bad");
    let cases = cases();
    assert!(cases.len() >= 90, "{}", cases.len());
    for case in cases {
        let ran = folder.write("flowgate.toml", &case.text).flowgate(&["check"], &[]);
        let count = case.errors.len();
        let s = if count == 1 { "" } else { "s" };
        let lines = case.errors.iter().map(|error| format!("  {error}\n")).collect::<String>();
        let told = format!("error: RC5003: the configuration has {count} error{s}\n{lines}");
        assert_eq!((ran.code, &*ran.stderr, &*ran.stdout), (Some(2), &*told, ""), "\n{}", case.text);
    }
}

#[test]
fn a_server_does_not_start_with_a_wrong_file() {
    // Seen to fail: with `serve` loading nothing, it wants the port that is taken.
    let taken = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let folder = Folder::new("serve");
    let ran =
        folder.write("flowgate.toml", "[server]\nport = 1").flowgate(&["serve", "--listen", &address], &[]);
    assert_eq!(
        ran.errors(),
        [
            "flowgate.toml:2:1: server: unknown field `port`; accepted: listen, max_requests, max_connections, \
                idle_timeout, flow_control_mode, egress_proxy, egress_ca"
        ]
    );
}

#[test]
fn a_file_that_is_no_text_or_is_not_there_or_is_too_large_is_said_to_be() {
    // Seen to fail: without the bound, 17 MiB of comments are a fine file.
    let folder = Folder::new("unreadable");
    let large = "#\n".repeat(17 << 19);
    folder.write("bytes.toml", b"[server]\nlisten = \"\xff\"").write("large.toml", large);
    for (name, error) in [
        ("no.toml", "no.toml: cannot read the file: No such file or directory (os error 2)"),
        ("bytes.toml", "bytes.toml: cannot read the file: invalid utf-8 sequence of 1 bytes from index 19"),
        ("large.toml", "large.toml: the file has more than 16777216 bytes: that is not a config file"),
    ] {
        assert_eq!(folder.flowgate(&["check", "--config", name], &[]).errors(), [error]);
    }
}

#[test]
fn a_file_full_of_mistakes_is_told_the_first_hundred() {
    // Seen to fail: without the bound, all twenty thousand are told.
    let folder = Folder::new("many");
    let text: String = (0..20_000).map(|number| format!("unknown-{number} = 1\n")).collect();
    let ran = folder.write("flowgate.toml", text).flowgate(&["check"], &[]);
    assert_eq!(ran.errors().len(), 100);
    let head = "error: RC5003: the configuration has more than 100 errors, the first of them\n";
    assert!(ran.stderr.starts_with(head), "{}", ran.stderr);
    let list = "[gateway]\nupstreams = [".to_owned() + &"\"http://a\",".repeat(20_000) + "]";
    let ran = folder.write("flowgate.toml", list).flowgate(&["check"], &[]);
    assert_eq!(
        ran.errors(),
        ["flowgate.toml:2:13: gateway.upstreams is a list; accepted: a list of URLs, like \
                [\"http://127.0.0.1:9000\"], of up to 1000"]
    );
}
