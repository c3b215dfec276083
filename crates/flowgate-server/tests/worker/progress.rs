//! What a command shows while it takes its time: on a terminal, and nowhere else.
//!
//! The terminal is a real one, made by `script`, which every Debian has.

use std::{
    io::Read,
    process::{Command, Stdio},
};

use crate::{kit::on_both, program::Said};

/// The same command on a terminal of its own: all that it writes comes out as one.
fn on_terminal(command: &Command, before: &str, words: &str) -> Command {
    let program = command.get_program().to_str().expect("a path in UTF-8");
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &format!("{before}{program} {words}"), "/dev/null"]);
    script.current_dir(command.get_current_dir().expect("a folder of its own"));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    script.stdin(Stdio::null());
    script
}

// Seen to fail: with the line drawn whether or not it is a terminal, the pipe got it, too.
#[test]
fn many_lines_are_sent_and_counted_where_somebody_watches() {
    on_both("lines", |place| {
        let command = place.flowgate(&[]);
        let said = Said::by(&mut on_terminal(&command, "seq 2500 | ", "send number --lines"));
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.stdout.contains("1000 sent"), "{said:?}");
        assert!(said.stdout.ends_with("\u{1b}[K2500 sent\r\n"), "gone before the answer: {said:?}");

        let mut piped = place.flowgate(&["send", "number", "--lines", "--json"]);
        let mut child =
            piped.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines: String = (0..1200).map(|number| format!("{number}\n\n")).collect();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), lines.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "{\"sent\":1200}\n");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        let queues = Said::by(&mut place.flowgate(&["queues", "--json"])).json();
        assert!(queues.to_string().contains("\"waiting\":3700"), "{queues}");
        let last = Said::by(&mut place.flowgate(&["tasks", "3700", "--json"])).json();
        assert_eq!(last["body"], 1199);
    });
}

#[test]
fn whoever_waits_at_a_terminal_sees_where_the_task_stands() {
    on_both("waits", |place| {
        place.told(&["send", "first"]);
        let command = place.flowgate(&[]);
        let mut waits = on_terminal(&command, "", "send second --wait");
        let mut child = waits.stdout(Stdio::piped()).spawn().unwrap();
        let mut shown = child.stdout.take().unwrap();
        let (mut seen, mut bytes) = (String::new(), [0; 256]);
        while !seen.contains("task 2: waiting, 1 ahead in its lane") {
            let count = shown.read(&mut bytes).unwrap();
            assert!(count > 0, "it ended: {seen}");
            seen += &String::from_utf8_lossy(&bytes[..count]);
        }
        // Nobody runs it: it would wait for ever.
        child.kill().unwrap();
        child.wait().unwrap();
    });
}
