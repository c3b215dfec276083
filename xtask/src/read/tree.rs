//! The files of the project, read into memory, so that rules are plain functions of text.
//!
//! Never touches what git would not hold: its own folder and build folders are left out.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use super::manifest::Manifest;
use super::source::Source;

/// Every file by its path from the root, with forward slashes.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// `None` for a file that is not text.
    files: BTreeMap<String, Option<String>>,
    sources: Vec<Source>,
}

impl Tree {
    /// Reads everything under `root`.
    pub(crate) fn load(root: &Path) -> io::Result<Self> {
        let mut files = BTreeMap::new();
        walk(root, "", &mut files)?;
        Ok(Self::new(files))
    }

    fn new(files: BTreeMap<String, Option<String>>) -> Self {
        let rust = files.iter().filter(|(path, _)| path.ends_with(".rs"));
        let sources =
            rust.filter_map(|(path, text)| Some(Source::new(path, text.as_deref()?))).collect::<Vec<_>>();
        Self { files, sources }
    }

    /// A tree of these texts, for tests.
    #[cfg(test)]
    pub(crate) fn of<const N: usize>(files: [(&str, &str); N]) -> Self {
        Self::new(files.map(|(path, text)| (path.to_owned(), Some(text.to_owned()))).into())
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// Every text file, in order of path.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// Every Rust file, in order of path.
    pub(crate) fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Every `Cargo.toml`, in order of path.
    pub(crate) fn manifests(&self) -> impl Iterator<Item = Manifest> {
        let is_manifest = |path: &str| path == "Cargo.toml" || path.ends_with("/Cargo.toml");
        self.texts().filter(move |(path, _)| is_manifest(path)).map(|(path, text)| Manifest::read(path, text))
    }

    /// Every Markdown file, in order of path.
    pub(crate) fn markdown(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(path, _)| path.ends_with(".md"))
    }

    /// Whether there is a file, or a folder with a file in it, at `path`. The root is the empty path.
    pub(crate) fn holds(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        let first_in_folder = self.files.range(folder.clone()..).next();
        path.is_empty()
            || self.files.contains_key(path)
            || first_in_folder.is_some_and(|(file, _)| file.starts_with(&folder))
    }
}

/// Where `target`, written in the file `from`, leads: a path from the root, or `None` for outside of it.
pub(crate) fn resolve(from: &str, target: &str) -> Option<String> {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let start = if target.starts_with('/') { "" } else { folder };
    let mut parts: Vec<&str> = Vec::new();
    for part in start.split('/').chain(target.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn walk(folder: &Path, path: &str, files: &mut BTreeMap<String, Option<String>>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
        let kind = entry.file_type()?;
        if name == ".git" {
            continue;
        }
        if kind.is_dir() {
            // Cargo marks each of its build folders with this file, whatever their name.
            if !matches!(name.as_str(), "target" | "node_modules")
                && !entry.path().join("CACHEDIR.TAG").exists()
            {
                walk(&entry.path(), &path, files)?;
            }
        } else if kind.is_symlink() {
            files.insert(path, None);
        } else {
            match fs::read(entry.path()) {
                Ok(bytes) => drop(files.insert(path, String::from_utf8(bytes).ok())),
                // A file that a running test made and took away again.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Tree, resolve};

    #[test]
    fn files_and_their_folders_are_held() {
        let tree = Tree::of([("docs/errors/RC1.md", ""), ("docs.md", "")]);
        assert!(tree.holds("docs/errors/RC1.md") && tree.holds("docs/errors") && tree.holds(""));
        assert!(!tree.holds("docs/err") && !tree.holds("doc"));
    }

    #[test]
    fn a_path_is_resolved_from_its_file() {
        assert_eq!(resolve("docs/a/b.md", "../c.md").as_deref(), Some("docs/c.md"));
        assert_eq!(resolve("README.md", "./docs/").as_deref(), Some("docs"));
        assert_eq!(resolve("docs/a.md", "/LICENSE").as_deref(), Some("LICENSE"));
        assert_eq!(resolve("README.md", "../x"), None);
    }

    #[test]
    fn the_real_tree_is_read_without_its_build_folders() {
        let tree = Tree::load(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("xtask's own folder can be read");
        assert!(tree.text("Cargo.toml").is_some());
        assert!(tree.sources().iter().any(|source| source.path() == "src/read/tree.rs"));
    }
}
