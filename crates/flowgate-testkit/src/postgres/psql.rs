//! Statements without a client library: `psql` runs them.

use std::process::{Command, Stdio};

use super::{binaries::Binaries, error::Error};

/// Runs the statements in the database of the URL; gives what they answer, one line for each row, columns apart by `|`.
pub(super) fn run(binaries: &Binaries, url: &str, sql: &str) -> Result<String, Error> {
    let mut psql = Command::new(binaries.path("psql"));
    psql.args([
        "--no-psqlrc",
        "--no-align",
        "--tuples-only",
        "--quiet",
        "--set=ON_ERROR_STOP=1",
        "--command",
        sql,
    ]);
    let path = std::env::var_os("PATH").unwrap_or_default();
    psql.arg(url).stdin(Stdio::null()).env_clear().env("PATH", path).env("LC_ALL", "C");
    let output = psql.output().map_err(Error::system("psql"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
    Err(Error::Failed { what: sql.to_owned(), said })
}
