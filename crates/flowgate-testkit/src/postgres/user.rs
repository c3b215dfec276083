//! Who runs PostgreSQL: ourselves, or `nobody` where we are root, which it refuses to be.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
    process::Command,
};

use super::error::Error;

const NOBODY: &str = "nobody";

/// The user that runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum User {
    Ourselves,
    Nobody { user: u32, group: u32, setpriv: PathBuf },
}

impl User {
    /// Whoever is not root.
    pub(super) fn unprivileged() -> Result<Self, Error> {
        // The owner of what the kernel tells of this process.
        let is_root = Path::new("/proc/self").metadata().is_ok_and(|metadata| metadata.uid() == 0);
        if !is_root {
            return Ok(User::Ourselves);
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let setpriv =
            ["/usr/bin/setpriv", "/bin/setpriv"].map(PathBuf::from).into_iter().find(|path| path.is_file());
        let (Some((user, group)), Some(setpriv)) = (ids(&users, NOBODY), setpriv) else {
            return Err(Error::NobodyElse);
        };
        Ok(User::Nobody { user, group, setpriv })
    }

    /// Gives the folder to the user.
    pub(super) fn own(&self, folder: &Path) -> Result<(), Error> {
        match *self {
            User::Ourselves => Ok(()),
            User::Nobody { user, group, .. } => chown(folder, Some(user), Some(group))
                .map_err(Error::system(format!("{} to `{NOBODY}`", folder.display()))),
        }
    }

    /// The program, run by the user, in the folder, with nothing of our own surroundings but the path.
    pub(super) fn command(&self, program: impl AsRef<OsStr>, folder: &Path) -> Command {
        let mut command = match self {
            User::Ourselves => Command::new(program),
            User::Nobody { user, group, setpriv } => {
                let mut command = Command::new(setpriv);
                command.args([format!("--reuid={user}"), format!("--regid={group}")]);
                command.arg("--clear-groups").arg("--").arg(program);
                command
            }
        };
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        command.env_clear().env("PATH", path).env("LC_ALL", "C").current_dir(folder);
        command
    }
}

/// The numbers of a user and its group.
fn ids(users: &str, name: &str) -> Option<(u32, u32)> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then_some(())?;
        Some((fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::ids;

    #[test]
    fn a_user_is_found_by_its_name() {
        let users = "root:x:0:0:root:/:/bin/sh\nnobody2:x:1:1::/:\nnobody:x:65534:65533:nobody:/nonexistent:/bin/false\n";
        assert_eq!(ids(users, "nobody"), Some((65_534, 65_533)));
        assert_eq!(ids(users, "no"), None);
    }
}
