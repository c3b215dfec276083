//! What the command line says, and what it accepts.

use std::{net::TcpListener, process::Command};

use crate::server::{Server, flowgate, run};

#[test]
fn the_help_reads_as_written() {
    // Seen to fail: with any word of an option changed.
    let help = run(&mut flowgate(&["demo", "--help"]));
    assert_eq!(help.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&help.stdout), include_str!("help.txt"));
    let version = run(&mut flowgate(&["--version"]));
    assert_eq!(
        String::from_utf8_lossy(&version.stdout),
        concat!("flowgate ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[test]
fn shells_complete_commands_and_options() {
    // Seen to fail: with the script of another shell, bash completes nothing.
    let program = env!("CARGO_BIN_EXE_flowgate");
    let completed = |words: &str| {
        let last = words.split(' ').count() - 1;
        let script = format!(
            "source <({program} completions bash); COMP_WORDS=({words}); COMP_CWORD={last}; \
             _flowgate flowgate \"${{COMP_WORDS[{last}]}}\" \"\"; echo \"${{COMPREPLY[@]}}\""
        );
        let said = Command::new("bash").args(["-c", &script]).output().expect("bash is there");
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    };
    assert_eq!(completed("flowgate pub"), "publish");
    assert_eq!(completed("flowgate publish --retr"), "--retries");
    for shell in ["zsh", "fish"] {
        let said = run(&mut flowgate(&["completions", shell]));
        let script = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.status.success() && script.contains("publish") && script.contains("retries"), "{shell}");
    }
}

#[test]
fn the_greeting_has_lines_that_work_as_pasted() {
    // Seen to fail: with the port that was asked for (0) instead of the real one.
    let server = Server::start(&[]);
    let address = server.address;
    for line in [
        format!("  curl -i 'http://{address}/work?ms=500'\n"),
        format!(
            "  (for i in $(seq 20); do curl -s -o /dev/null -w '%{{http_code}}\\n' 'http://{address}/work?ms=500' & done; wait)\n"
        ),
        format!("  curl -i 'http://{address}/tenant/acme?ms=500'\n"),
        "  work      max 4, queue 8, timeout 2s\n".to_owned(),
        "  tenants   max 4, rate 600 per 1m, reject; for each key\n".to_owned(),
    ] {
        assert!(server.greeting.contains(&line), "{line}{}", server.greeting);
    }
    assert_ne!(address.port(), 0);
}

#[test]
fn every_option_may_come_from_the_environment_and_an_argument_goes_first() {
    // Seen to fail: with a slip in the name of any variable.
    let mut command = flowgate(&["demo", "--max", "7"]);
    let variables = [
        ("FLOWGATE_DEMO_LISTEN", "127.0.0.1:0"),
        ("FLOWGATE_MAX", "3"),
        ("FLOWGATE_QUEUE", "5"),
        ("FLOWGATE_TIMEOUT", "1m30s"),
        ("FLOWGATE_RATE", "9"),
        ("FLOWGATE_PERIOD", "2h"),
    ];
    let figures = Server::launch(command.envs(variables)).figures();
    assert_eq!(figures["work"]["limits"], "max 7, queue 5, timeout 90s");
    assert_eq!(figures["tenants"]["limits"], "max 7, rate 9 per 2h, reject");
}

#[test]
fn an_option_that_is_not_accepted_is_named_with_what_is() {
    // Seen to fail: with the number's own error, which says "invalid digit found in string".
    let whole = "accepted: a whole number from 1 to 1000000000";
    let time = "accepted: a time from 1ms to 366d, like 250ms, 10s, 1m or 1h30m";
    let table = [
        ("--max", "0", format!("invalid value '0' for '--max <N>': {whole}")),
        ("--max", "4k", format!("invalid value '4k' for '--max <N>': {whole}")),
        ("--rate", "0", format!("invalid value '0' for '--rate <N>': {whole}")),
        ("--queue", "-", "invalid value '-' for '--queue <N>': accepted: a whole number from 0 to 1000000000".into()),
        ("--timeout", "2", format!("invalid value '2' for '--timeout <TIME>': {time}")),
        ("--period", "1w", format!("invalid value '1w' for '--period <TIME>': {time}")),
        ("--rate", "1000000000", "RC5003: option `rate` is 1000000000 per 1m; accepted: ".into()),
        (
            "--listen",
            "here",
            "invalid value 'here' for '--listen <ADDRESS:PORT>': accepted: an address and a port, like 127.0.0.1:8080 or [::1]:0"
                .into(),
        ),
    ];
    for (option, value, message) in table {
        let output = run(&mut flowgate(&["demo", option, value]));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.starts_with(&format!("error: {message}")), "{said}");
    }
}

#[test]
fn a_port_in_use_is_one_clear_line() {
    // Seen to fail: with the error of the system alone, which names no address.
    let taken = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = taken.local_addr().expect("it is bound").to_string();
    let output = run(&mut flowgate(&["demo", "--listen", &address]));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.starts_with(&format!("error: cannot listen on {address}: ")), "{said}");
    assert!(said.contains("--listen"), "{said}");
}
