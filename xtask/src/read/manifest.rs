//! Reads the package name and the dependencies out of a `Cargo.toml`.
//!
//! Knows the TOML that manifests are written in, not all of TOML: tables, dotted keys, and values
//! that go over several lines. Never asks cargo, so that it works on any text.

/// What a `Cargo.toml` says about itself and others.
#[derive(Debug, Default)]
pub(crate) struct Manifest {
    pub(crate) path: String,
    /// `None` for a workspace without a package.
    pub(crate) package: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

/// One dependency as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) line: usize,
    /// Whether `package = ".."` gives it a name other than its own.
    pub(crate) renamed: bool,
}

/// Which table a dependency stands in; `[target.….*]` tables count as the table they end in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Build,
    Dev,
    Workspace,
}

/// The table that the reader is in.
enum Table {
    Package,
    /// `[dependencies]` and its like.
    Dependencies(Kind),
    /// `[dependencies.name]` and its like.
    OneDependency,
    Other,
}

impl Manifest {
    /// Reads `text`, the manifest at `path`.
    pub(crate) fn read(path: &str, text: &str) -> Self {
        let mut manifest = Self { path: path.to_owned(), ..Self::default() };
        let mut table = Table::Other;
        let mut depth = 0_i32;
        for (number, line) in text.lines().enumerate() {
            let line = without_comment(line);
            if depth > 0 {
                depth += brackets(line);
            } else if line.starts_with('[') {
                table = manifest.enter(line, number + 1);
            } else if let Some((key, value)) = line.split_once('=') {
                depth = brackets(value);
                manifest.entry(&table, &dotted(key), value, number + 1);
            }
        }
        manifest
    }

    fn enter(&mut self, header: &str, line: usize) -> Table {
        let parts = dotted(header.trim_matches(['[', ']']));
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (kind, rest) = match parts.as_slice() {
            ["package"] => return Table::Package,
            ["workspace", "dependencies", rest @ ..] => (Kind::Workspace, rest),
            ["target", _, name, rest @ ..] | [name, rest @ ..] => match *name {
                "dependencies" => (Kind::Normal, rest),
                "build-dependencies" => (Kind::Build, rest),
                "dev-dependencies" => (Kind::Dev, rest),
                _ => return Table::Other,
            },
            [] => return Table::Other,
        };
        let [name] = rest else { return Table::Dependencies(kind) };
        self.dependencies.push(Dependency { name: (*name).to_owned(), kind, line, renamed: false });
        Table::OneDependency
    }

    fn entry(&mut self, table: &Table, key: &[String], value: &str, line: usize) {
        let [name, rest @ ..] = key else { return };
        let sets_package = rest.first().is_some_and(|key| key == "package")
            || value.split(['{', ',']).any(|part| part.trim_start().starts_with("package"));
        match table {
            Table::Package if name == "name" => {
                self.package = Some(value.trim().trim_matches('"').to_owned());
            }
            Table::Dependencies(kind) => {
                // `tokio.workspace` and `tokio.features` are one dependency.
                let known =
                    self.dependencies.iter_mut().find(|known| known.name == *name && known.kind == *kind);
                match known {
                    Some(known) if !rest.is_empty() => known.renamed |= sets_package,
                    _ => self.dependencies.push(Dependency {
                        name: name.clone(),
                        kind: *kind,
                        line,
                        renamed: sets_package,
                    }),
                }
            }
            Table::OneDependency if name == "package" => {
                if let Some(dependency) = self.dependencies.last_mut() {
                    dependency.renamed = true;
                }
            }
            _ => {}
        }
    }
}

/// Splits `target.'cfg(a.b)'.dependencies` at the dots that are not quoted.
fn dotted(key: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quote = None;
    for character in key.trim().chars() {
        match (quote, character) {
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            (None, '.') => parts.push(String::new()),
            (None, ' ') => {}
            _ => parts.last_mut().expect("the list starts with one part").push(character),
        }
    }
    parts
}

/// The line up to a `#` that is not quoted, trimmed.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    for (at, character) in line.char_indices() {
        match (quote, character) {
            (None, '#') => return line[..at].trim(),
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            _ => {}
        }
    }
    line.trim()
}

/// How many more brackets a piece of a value opens than it closes.
fn brackets(value: &str) -> i32 {
    let step = |character| match character {
        '[' | '{' => 1,
        ']' | '}' => -1,
        _ => 0,
    };
    value.chars().map(step).sum()
}

#[cfg(test)]
mod tests {
    use super::{Kind, Manifest};

    fn read(text: &str) -> Vec<(String, Kind, usize)> {
        let manifest = Manifest::read("Cargo.toml", text);
        manifest.dependencies.into_iter().map(|it| (it.name, it.kind, it.line)).collect()
    }

    #[test]
    fn each_way_to_write_a_dependency_is_read() {
        let text = "\
[package]
name = \"x\" # not y
[dependencies]
a.workspace = true
b = { version = \"1\", features = [
    \"c = d\",
] }
e = \"1\"
[dependencies.f]
version = \"1\"
[target.'cfg(loom.x)'.dependencies]
g = \"1\"
[dev-dependencies]
h.workspace = true
h.features = []
[workspace.dependencies]
i = \"1\"
[profile.release]
lto = true
";
        let name = |name: &str, kind, line| (name.to_owned(), kind, line);
        assert_eq!(
            read(text),
            [
                name("a", Kind::Normal, 4),
                name("b", Kind::Normal, 5),
                name("e", Kind::Normal, 8),
                name("f", Kind::Normal, 9),
                name("g", Kind::Normal, 12),
                name("h", Kind::Dev, 14),
                name("i", Kind::Workspace, 17),
            ]
        );
        assert_eq!(Manifest::read("Cargo.toml", text).package.as_deref(), Some("x"));
    }

    #[test]
    fn a_rename_is_seen() {
        for text in [
            "[dependencies]\na = { version = \"1\", package = \"b\" }",
            "[dependencies]\na.package = \"b\"",
            "[dependencies]\na.version = \"1\"\na.package = \"b\"",
            "[dependencies.a]\npackage = \"b\"",
        ] {
            assert!(Manifest::read("Cargo.toml", text).dependencies[0].renamed, "{text}");
        }
        assert!(!Manifest::read("Cargo.toml", "[dependencies]\na = \"1\"").dependencies[0].renamed);
    }
}
