//! A rest between two looks at another process.

use std::time::Duration;

/// Long enough that one who looks needs a small part of a processor, and shorter than anybody notices.
const REST: Duration = Duration::from_millis(2);

/// For loops that ask a server or a database whether something holds by now: the one place where a test may sleep, because
/// nobody there signals. Where what is waited for comes to the test's own process (a line that a server says, a
/// call of its endpoint), wait for that.
///
/// It is nothing to rely on for order: it leaves the processors to whoever is looked at. Two tests that asked their servers
/// without a rest kept a PostgreSQL beside them in the run queue of Linux 6.18 for 88 seconds (`/proc/<pid>/schedstat`), and so
/// what they waited for did not come.
pub async fn between_looks() {
    tokio::time::sleep(REST).await;
}
