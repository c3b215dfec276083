//! Where the programs of PostgreSQL are.
//!
//! Debian keeps them off the path, one folder for each major version. The newest is taken.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use super::error::Error;

const DEBIAN: &str = "/usr/lib/postgresql";
const WANTED: [&str; 3] = ["initdb", "postgres", "psql"];

/// The folder with all the programs that are needed.
#[derive(Clone, Debug)]
pub(super) struct Binaries(PathBuf);

impl Binaries {
    pub(super) fn find() -> Result<Self, Error> {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = newest_first(Path::new(DEBIAN)).into_iter().chain(env::split_paths(&path));
        first_complete(folders).map(Binaries).ok_or(Error::Missing)
    }

    pub(super) fn path(&self, program: &str) -> PathBuf {
        self.0.join(program)
    }
}

fn newest_first(versions: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(versions).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = folders
        .filter_map(|folder| Some((folder.file_name().to_str()?.parse().ok()?, folder.path().join("bin"))))
        .collect();
    found.sort_by_key(|&(version, _)| std::cmp::Reverse(version));
    found.into_iter().map(|(_, path)| path).collect()
}

fn first_complete(mut folders: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    folders.find(|folder| WANTED.iter().all(|program| folder.join(program).is_file()))
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use super::{WANTED, first_complete, newest_first};

    #[test]
    fn the_newest_complete_version_is_taken() {
        let root = env::temp_dir().join(format!("flowgate-binaries-{}", process::id()));
        for (version, programs) in
            [("9", &WANTED[..]), ("15", &WANTED), ("16", &WANTED[..1]), ("old", &WANTED)]
        {
            let bin = root.join(version).join("bin");
            fs::create_dir_all(&bin).unwrap();
            programs.iter().for_each(|program| fs::write(bin.join(program), "").unwrap());
        }
        let newest = newest_first(&root);
        assert_eq!(newest, ["16", "15", "9"].map(|version| root.join(version).join("bin")));
        assert_eq!(first_complete(newest.into_iter()), Some(root.join("15/bin")));
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(first_complete(newest_first(&root).into_iter()), None);
    }
}
