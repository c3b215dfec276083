//! This program as a process of a fleet: `flowgate-bench member <who> <url> <callers> <milliseconds>`.
//!
//! Owns the words for it, and that the processes of a fleet begin together. Each says `ready`, begins when it is told
//! to, and says how many entries its callers had.

use std::{
    env,
    io::{self, BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use tokio::{runtime::Builder, task::JoinSet};

use super::{
    recipe::{self, Door, Who, told},
    stage::Store,
};

/// The word that stands where a suite would.
pub(crate) const MEMBER: &str = "member";

/// Who bounds the work, where, of how many callers, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(super) who: Who,
    pub(super) url: String,
    pub(super) callers: u32,
    pub(super) span: Duration,
}

impl Member {
    /// Reads the words behind [`MEMBER`].
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let [who, url, callers, millis] = *words else { return None };
        let who = match who {
            "ours" => Who::Ours,
            "recipe" => Who::Recipe,
            _ => return None,
        };
        let span = Duration::from_millis(millis.parse().ok()?);
        Some(Member { who, url: url.to_owned(), callers: callers.parse().ok()?, span })
    }

    fn words(&self) -> [String; 5] {
        let who = match self.who {
            Who::Ours => "ours",
            Who::Recipe => "recipe",
        };
        let (callers, millis) = (self.callers.to_string(), self.span.as_millis().to_string());
        [MEMBER.to_owned(), who.to_owned(), self.url.clone(), callers, millis]
    }

    /// Plays it, and ends.
    pub(crate) fn play(&self) -> ExitCode {
        match self.entries() {
            Ok(entries) => {
                println!("{entries}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        }
    }

    fn entries(&self) -> Result<u64, String> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(told)?;
        runtime.block_on(async {
            let store = if self.url.starts_with("redis") { Store::Redis } else { Store::Postgres };
            let mut doors = Vec::new();
            let gate = match self.who {
                Who::Ours => Some(recipe::gate(&self.url, "crowd").await?),
                Who::Recipe => None,
            };
            for number in 0..self.callers {
                doors.push(match &gate {
                    Some(gate) => Door::Ours(gate.clone()),
                    None => Door::recipe(store, &self.url, number).await?,
                });
            }
            println!("ready");
            io::stdout().flush().map_err(told)?;
            io::stdin().read_line(&mut String::new()).map_err(told)?;
            let end = Instant::now() + self.span;
            let mut callers = JoinSet::new();
            for door in doors {
                callers.spawn(call(door, end));
            }
            let counts = callers.join_all().await.into_iter().collect::<Result<Vec<u64>, _>>()?;
            if let Some(gate) = gate {
                // Else the last slots would be its own until its lease is over, and the next round would be short of them.
                gate.close(Duration::ZERO).await;
            }
            Ok(counts.iter().sum())
        })
    }
}

/// In, a millisecond of work, out again, until the end.
async fn call(mut door: Door, end: Instant) -> Result<u64, String> {
    let mut entries = 0;
    while Instant::now() < end {
        let held = door.enter("crowd").await?;
        tokio::time::sleep(Duration::from_millis(1)).await;
        door.leave("crowd", held).await?;
        entries += 1;
    }
    Ok(entries)
}

/// Plays two of them at once: entries in a second, of both together.
pub(super) fn play_two(member: &Member) -> Result<f64, String> {
    let mut fleet = (0..2).map(|_| Process::start(member)).collect::<Result<Vec<_>, _>>()?;
    for process in &mut fleet {
        process.hear()?;
    }
    for process in &mut fleet {
        process.input.write_all(b"go\n").map_err(told)?;
    }
    let mut entries = 0.0;
    for process in &mut fleet {
        entries += process.hear()?.parse::<f64>().map_err(told)?;
    }
    Ok(entries / member.span.as_secs_f64())
}

/// A process of the fleet. It is gone with this.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(member: &Member) -> Result<Self, String> {
        let mut command = Command::new(env::current_exe().map_err(told)?);
        command.args(member.words()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(told)?;
        let (input, output) = child.stdin.take().zip(child.stdout.take()).ok_or("a process without pipes")?;
        Ok(Process { child, input, output: BufReader::new(output) })
    }

    /// A line of what it says.
    fn hear(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(told)?;
        match line.trim_end() {
            "" => Err("a process of the fleet ended before its time".to_owned()),
            said => Ok(said.to_owned()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Member, Who};

    #[test]
    fn a_member_is_read_as_it_is_written() {
        for who in [Who::Ours, Who::Recipe] {
            let member = Member { who, url: "redis://a/0".into(), callers: 32, span: Duration::from_secs(3) };
            let words = member.words();
            let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
            assert_eq!(Member::parse(&words), Some(member));
        }
        for words in [&["ours"][..], &["theirs", "redis://a/0", "1", "1"], &["ours", "redis://a/0", "x", "1"]]
        {
            assert_eq!(Member::parse(words), None);
        }
    }
}
