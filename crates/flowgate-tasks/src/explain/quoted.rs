//! Names in commands that are suggested.
//!
//! A name is somebody else's, and a suggested command is there to be pasted: a shell must take the name for one word, whatever is
//! in it.

/// A name as one word of a shell's command line.
pub fn quoted(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+=,".contains(&byte);
    if !name.is_empty() && name.bytes().all(is_plain) {
        return name.to_owned();
    }
    format!("'{}'", name.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::quoted;

    #[test]
    fn s3_a_shell_takes_a_name_for_one_word_whatever_is_in_it() {
        // Seen to fail: with names left as they are, `$(…)` is run.
        assert_eq!(quoted("user-42/a.b"), "user-42/a.b");
        for name in [
            "plain",
            "",
            "two words",
            "$(echo ran)",
            "`echo ran`",
            "a;echo ran",
            "it's",
            "''",
            "\\",
            "a\nb",
            "!1",
            "~",
            "*",
            "日本",
            "\"",
        ] {
            let line = format!("printf '%s|' {} end", quoted(name));
            let said = Command::new("sh").args(["-c", &line]).output().expect("there is a shell");
            assert_eq!(String::from_utf8_lossy(&said.stdout), format!("{name}|end|"), "{line}");
        }
    }
}
