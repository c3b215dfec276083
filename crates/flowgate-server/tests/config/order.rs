//! Who goes before whom: default < file < environment < flag; and where a bad value came from.

use crate::program::{Folder, Ran};

const FILE: &str = "[server]\nlisten = \"127.0.0.1:1001\"\n[gateway]\nlisten = \"127.0.0.1:1002\"\nupstreams = [\"http://a\"]\n";
const ADDRESS: &str = "an address and a port, like \"127.0.0.1:8080\" or \"[::1]:0\"";

fn listens(ran: &Ran) -> (String, String) {
    let checked = ran.json();
    let listen = |section: &str| checked[section]["listen"].as_str().unwrap_or_default().to_owned();
    (listen("server"), listen("gateway"))
}

#[test]
fn a_flag_goes_before_the_environment_that_before_the_file_and_that_before_the_default() {
    // Seen to fail: with the first of what was given winning, which is the environment's.
    let folder = Folder::new("order");
    let check = |flags: &[&str], variables| {
        let arguments: Vec<_> = ["check", "--json"].iter().chain(flags).copied().collect();
        listens(&folder.flowgate(&arguments, variables))
    };
    let at = |server: u16, gateway: u16| (format!("127.0.0.1:{server}"), format!("127.0.0.1:{gateway}"));
    let variables =
        [("FLOWGATE_SERVER_LISTEN", "127.0.0.1:2001"), ("FLOWGATE_GATEWAY_LISTEN", "127.0.0.1:2002")];
    let flags = ["--listen", "127.0.0.1:3001", "--gateway-listen", "127.0.0.1:3002"];

    folder.write("flowgate.toml", "[gateway]\nupstreams = [\"http://a\"]");
    assert_eq!(check(&[], &[]), at(8080, 8081));
    folder.write("flowgate.toml", FILE);
    assert_eq!(check(&[], &[]), at(1001, 1002));
    assert_eq!(check(&[], &variables), at(2001, 2002));
    assert_eq!(check(&flags, &variables), at(3001, 3002));
    assert_eq!(check(&flags[..2], &variables[1..]), at(3001, 2002));
}

#[test]
fn what_the_file_does_not_decide_is_shown_with_where_it_came_from() {
    // Seen to fail: with a line for the environment although the flag won.
    let folder = Folder::new("origins");
    let variables = [
        ("FLOWGATE_GATEWAY_LISTEN", "127.0.0.1:2002"),
        ("FLOWGATE_GATEWAY_DRAIN", "3s"),
        ("FLOWGATE_GATEWAY_WORKERS", "7"),
    ];
    let ran =
        folder.write("flowgate.toml", FILE).flowgate(&["check", "--gateway-listen", "[::1]:0"], &variables);
    let told = "
not from the file  value    from
gateway.drain      3s       environment variable FLOWGATE_GATEWAY_DRAIN
gateway.workers    7        environment variable FLOWGATE_GATEWAY_WORKERS
gateway.listen     [::1]:0  --gateway-listen
";
    assert!(ran.stdout.ends_with(told), "{ran:?}");
}

#[test]
fn a_bad_value_says_where_it_came_from() {
    // Seen to fail: with the position of the file's value, or the file's name, for one of the environment.
    let folder = Folder::new("environment");
    folder.write("flowgate.toml", FILE);
    for (name, value, told) in [
        ("FLOWGATE_GATEWAY_LISTEN", "here", format!("gateway.listen is \"here\"; accepted: {ADDRESS}")),
        ("FLOWGATE_GATEWAY_WORKERS", "0", "gateway.workers is 0; accepted: an integer from 1 to 1024".into()),
        ("FLOWGATE_GATEWAY_WORKERS", "two", "gateway.workers is \"two\"; accepted: an integer from 1 to 1024".into()),
        ("FLOWGATE_GATEWAY_UNLISTED", "drop", "gateway.unlisted is \"drop\"; accepted: \"pass\" or \"not-found\"".into()),
        (
            "FLOWGATE_GATEWAY_IDLE_TIMEOUT",
            "60",
            "gateway.idle_timeout is \"60\"; accepted: a time from 1ms to 366d, like \"250ms\", \"10s\", \"1m\" \
                or \"1h30m\"".into(),
        ),
        ("FLOWGATE_GATEWAY_LISTN", "x", "unknown variable; did you mean FLOWGATE_GATEWAY_LISTEN?".into()),
        (
            "FLOWGATE_GATEWAY_UPSTREAMS",
            "http://b",
            "gateway.upstreams is a list or a table, which a variable cannot hold: set it in the file".into(),
        ),
    ] {
        let ran = folder.flowgate(&["check"], &[(name, value)]);
        assert_eq!(ran.errors(), [format!("environment variable {name}: {told}")]);
    }
    let ran = folder.flowgate(&["check", "--gateway-listen", "here"], &[]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.starts_with("error: invalid value 'here' for '--gateway-listen <ADDRESS:PORT>'"),
        "{ran:?}"
    );
}

#[test]
fn a_value_that_does_not_win_is_not_looked_at() {
    // Seen to fail: with the environment winning over the flag.
    let folder = Folder::new("beaten");
    let wrong = FILE.replace("127.0.0.1:1002", "nowhere");
    let ran = folder.write("flowgate.toml", wrong).flowgate(
        &["check", "--json", "--gateway-listen", "127.0.0.1:3"],
        &[("FLOWGATE_GATEWAY_LISTEN", "here")],
    );
    assert_eq!(listens(&ran).1, "127.0.0.1:3");
}

#[test]
fn variables_of_others_are_left_alone() {
    // Seen to fail: with each unknown variable taken for a slip, a cluster's own variables end the program.
    let variables = [
        ("FLOWGATE_GATEWAY_PORT", "tcp://10.0.0.1:80"),
        ("FLOWGATE_GATEWAY_SERVICE_HOST", "10.0.0.1"),
        ("FLOWGATE_SERVER_PORT_8080_TCP_PROTO", "tcp"),
        ("FLOWGATE_VERSION", "7"),
        ("FLOWGATE_PORT", "tcp://10.0.0.1:80"),
        ("FLOWGATE_SERVICE_HOST", "10.0.0.1"),
    ];
    let ran = Folder::new("others").write("flowgate.toml", FILE).flowgate(&["check"], &variables);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!ran.stdout.contains("not from the file"), "{ran:?}");
}

#[test]
fn nothing_can_be_said_of_a_section_that_is_not_there() {
    // Seen to fail: with the flag silently ignored.
    let folder = Folder::new("absent");
    let ran = folder.flowgate(&["check", "--gateway-listen", "127.0.0.1:1"], &[]);
    let told = "--gateway-listen: gateway.listen is given, but the file has no [gateway]: add the section";
    assert_eq!(ran.errors(), [told]);
}

#[test]
fn the_file_is_the_one_that_is_named_else_that_of_the_working_directory() {
    // Seen to fail: with the file that is named not passed on.
    let folder = Folder::new("named");
    for (name, port) in [("flowgate.toml", 1), ("variable.toml", 2), ("flag.toml", 3)] {
        folder.write(name, format!("[server]\nlisten = \"127.0.0.1:{port}\""));
    }
    let variable = [("FLOWGATE_CONFIG", "variable.toml")];
    let listen = |arguments: &[&str], variables| listens(&folder.flowgate(arguments, variables)).0;
    assert_eq!(listen(&["check", "--json"], &[]), "127.0.0.1:1");
    assert_eq!(listen(&["check", "--json"], &variable), "127.0.0.1:2");
    assert_eq!(listen(&["check", "--json", "--config", "flag.toml"], &variable), "127.0.0.1:3");
}

#[test]
fn paths_are_relative_to_the_file() {
    // Seen to fail: with paths relative to the working directory.
    let folder = Folder::new("relative");
    let inner = Folder::new("relative/inner");
    let text = format!("{FILE}tls = {{ cert = \"cert.pem\", key = \"key.pem\" }}\n");
    inner.write("flowgate.toml", text).write("cert.pem", "");
    let ran = folder.flowgate(&["check", "--config", "inner/flowgate.toml"], &[]);
    let told = "inner/flowgate.toml:6:34: gateway.tls.key is \"key.pem\"; accepted: a readable file, which \
        inner/key.pem is not: No such file or directory (os error 2)";
    assert_eq!(ran.errors(), [told]);
    inner.write("key.pem", "");
    let ran = folder.flowgate(&["check", "--config", "inner/flowgate.toml"], &[]);
    assert!(ran.stdout.contains("(TLS)"), "{ran:?}");
}

#[test]
fn the_store_and_the_worker_are_said_the_same_way() {
    // Seen to fail: with `FLOWGATE__STORE` as the name of the variable.
    let folder = Folder::new("work");
    folder.write("flowgate.toml", "store = \"sqlite:tasks/here.db\"\n[worker]\nprocesses = 3");
    let ran = folder.flowgate(&["check", "--json"], &[]);
    assert_eq!(ran.json()["store"], "sqlite:tasks/here.db");
    let variables = [
        ("FLOWGATE_STORE", "postgres://me:secret@db.example/work"),
        ("FLOWGATE_WORKER_PROCESSES", "5"),
        ("FLOWGATE_WORKER_QUEUES", "default"),
        ("FLOWGATE_TASKS_CLUSTER_WIDE_CAP", "20"),
    ];
    let checked = folder.flowgate(&["check", "--json"], &variables).json();
    assert_eq!(checked["store"], "postgres://…@db.example/work");
    assert_eq!(checked["worker"]["processes"], 5);
    assert_eq!(checked["worker"]["queues"][0], "default");
    assert_eq!(checked["tasks"]["cluster_wide_cap"], 20);
    let ran = folder.flowgate(&["check"], &variables);
    assert!(
        ran.stdout.contains("\nstore                   postgres://…@db.example/work  environment"),
        "{}",
        ran.stdout
    );
    for (slip, meant) in [
        ("FLOWGATE_STOER", "FLOWGATE_STORE"),
        ("FLOWGATE_DENY_PRIVAT", "FLOWGATE_DENY_PRIVATE"),
        ("FLOWGATE_TOKE", "FLOWGATE_TOKEN"),
    ] {
        let ran = folder.flowgate(&["check"], &[(slip, "x")]);
        let told = format!("environment variable {slip}: unknown variable; did you mean {meant}?");
        assert_eq!(ran.errors(), [told]);
    }
    let known = [
        ("FLOWGATE_TOKEN", "x"),
        ("FLOWGATE_LEASE", "5s"),
        ("FLOWGATE_RATE", "5"),
        ("FLOWGATE_DEMO_LISTEN", "x"),
    ];
    assert_eq!(folder.flowgate(&["check"], &known).code, Some(0));
}
