//! How a private PostgreSQL is set up.

use std::num::NonZeroU32;

/// The settings of a private PostgreSQL.
///
/// By default it answers commits as a real one does, and does not wait for the disk: what was committed outlives a crash of
/// the server, but not of the machine. That is right for tests; a benchmark wants [`durable`](Self::durable).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    fsync: bool,
    synchronous_commit: bool,
    shared_buffers: NonZeroU32,
    max_connections: NonZeroU32,
    settings: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            fsync: false,
            synchronous_commit: true,
            // As shipped.
            shared_buffers: const { NonZeroU32::new(128).expect("128 is not 0") },
            // Many tests run at once, and each may have a pool or two.
            max_connections: const { NonZeroU32::new(300).expect("300 is not 0") },
            settings: Vec::new(),
        }
    }
}

impl Options {
    /// As one that keeps what it commits: waits for the disk at each commit.
    pub fn durable() -> Self {
        Options::default().fsync(true).synchronous_commit(true)
    }

    /// Whether it waits for the disk at all. Default: no.
    #[must_use]
    pub fn fsync(self, fsync: bool) -> Self {
        Options { fsync, ..self }
    }

    /// Whether a commit is written before it is answered. Default: yes.
    #[must_use]
    pub fn synchronous_commit(self, synchronous_commit: bool) -> Self {
        Options { synchronous_commit, ..self }
    }

    /// Its cache, in megabytes. Default: 128, as shipped.
    #[must_use]
    pub fn shared_buffers(self, megabytes: NonZeroU32) -> Self {
        Options { shared_buffers: megabytes, ..self }
    }

    /// How many may be connected at once. Default: 300.
    #[must_use]
    pub fn max_connections(self, connections: NonZeroU32) -> Self {
        Options { max_connections: connections, ..self }
    }

    /// Any other setting, by its name in `postgresql.conf`; the last of a name wins.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// The words for the command line of `postgres`.
    pub(super) fn words(&self) -> Vec<String> {
        let on_off = |is_on: bool| if is_on { "on" } else { "off" };
        let own = [
            format!("fsync={}", on_off(self.fsync)),
            format!("synchronous_commit={}", on_off(self.synchronous_commit)),
            format!("shared_buffers={}MB", self.shared_buffers),
            format!("max_connections={}", self.max_connections),
        ];
        let others = self.settings.iter().map(|(name, value)| format!("{name}={value}"));
        own.into_iter().chain(others).flat_map(|setting| ["-c".to_owned(), setting]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn settings_become_words() {
        let options = Options::durable().setting("work_mem", "8MB");
        assert_eq!(
            options.words().join(" "),
            "-c fsync=on -c synchronous_commit=on -c shared_buffers=128MB -c max_connections=300 -c work_mem=8MB"
        );
    }
}
