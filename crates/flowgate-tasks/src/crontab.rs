//! Tasks by the calendar: sent once for each moment of a schedule, however many processes have it.
//!
//! Owns which moments are due. Every process of a fleet may keep the same crontab: the moment is the task's dedupe id, so the
//! first to send it is the only one, and nobody has to lead.

use std::{fmt, sync::Arc, time::Duration};

use flowgate_core::{Cron, OptionError, Tick};

use crate::{
    clock::Wall,
    store::{Store, StoreError},
    task::NewTask,
    worker::News,
};

/// For so long after it was sent, nobody sends the task of the same moment again: longer than clocks are ever apart.
const REMEMBERED: Duration = Duration::from_secs(24 * 60 * 60);
/// The wall clock may be set meanwhile: it is looked at again at least this often.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// How long to wait before a send is tried again that the store did not take.
const PAUSE: Duration = Duration::from_secs(1);

/// What is sent, and when.
///
/// ```
/// use flowgate_tasks::{Crontab, NewTask};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let crontab = Crontab::new()
///     .at("nightly", "0 3 * * *", NewTask::json("report", &"all")?)? // in UTC: minute, hour, day, month, weekday
///     .at("heartbeat", "*/30 * * * * *", NewTask::json("ping", &())?)?; // six fields: with seconds
/// # let _ = crontab;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Crontab {
    lines: Vec<Line>,
    backfill: Duration,
    listener: Listener,
}

/// Who is told that the store fails.
#[derive(Clone, Default)]
struct Listener(Option<Hears>);

type Hears = Arc<dyn Fn(&News) + Send + Sync>;

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "a listener" } else { "nobody" })
    }
}

impl Listener {
    fn tell(&self, news: &News) {
        if let Some(listener) = &self.0 {
            listener(news);
        }
    }
}

#[derive(Clone, Debug)]
struct Line {
    name: String,
    schedule: Cron,
    task: NewTask,
}

impl Crontab {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends this task at each moment of the schedule, in UTC. The name tells moments of different lines apart: keep it, and
    /// a process that starts anew sends nothing twice.
    pub fn at(mut self, name: impl Into<String>, schedule: &str, task: NewTask) -> Result<Self, OptionError> {
        let name = name.into();
        if name.is_empty() || name.len() > 128 || self.lines.iter().any(|line| line.name == name) {
            return Err(OptionError::new(
                "name",
                format_args!("{name:?}"),
                "1 to 128 bytes, and a different name for each line",
            ));
        }
        self.lines.push(Line { name, schedule: schedule.parse()?, task });
        Ok(self)
    }

    /// Makes up for the last moment of each line, if it passed no longer ago than this while no process was
    /// there to send it. At most a day; default: nothing is made up for.
    #[must_use]
    pub fn backfill(mut self, backfill: Duration) -> Self {
        self.backfill = backfill.min(REMEMBERED);
        self
    }

    /// Tells this function that the store does not take what is due, once until it does, and that it does again. What
    /// is due is sent then.
    #[must_use]
    pub fn listen(mut self, listener: impl Fn(&News) + Send + Sync + 'static) -> Self {
        self.listener = Listener(Some(Arc::new(listener)));
        self
    }

    /// Sends what is due, for as long as it is polled. Run it beside a worker, in as many processes as you like.
    ///
    /// # Cancel safety Dropped, a due task may be sent or not; a process that goes on sends it once.
    pub async fn run(self, store: Arc<dyn Store>, wall: Arc<dyn Wall>) -> Result<(), StoreError> {
        let mut after = wall.now().as_nanos().saturating_sub(nanos(self.backfill));
        let mut is_away = false;
        loop {
            let now = wall.now();
            let due = self.due(seconds(after), seconds(now.as_nanos()));
            if !due.is_empty() {
                match store.send(due).await {
                    Ok(_) if std::mem::take(&mut is_away) => self.listener.tell(&News::StoreAnswers),
                    Ok(_) => {}
                    Err(error @ StoreError::Option(_)) => return Err(error),
                    Err(error) => {
                        if !std::mem::replace(&mut is_away, true) {
                            self.listener.tell(&News::StoreFailed { error });
                        }
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                }
            }
            after = now.as_nanos();
            let Some(next) = self.next(seconds(after)) else { return Ok(()) };
            let wait = Tick::from_nanos(next).since(wall.now()).min(LONGEST_SLEEP);
            tokio::time::sleep(wait).await;
        }
    }

    /// The tasks of the moments after one and up to another. Of each line only the last: whoever missed more was away, asleep, or
    /// had its clock set.
    fn due(&self, after: i64, upto: i64) -> Vec<NewTask> {
        let after = after.max(upto - REMEMBERED.as_secs() as i64);
        let mut due: Vec<(i64, &Line)> = Vec::new();
        for line in &self.lines {
            let next = |moment: &i64| line.schedule.next_after(*moment);
            let moments = std::iter::successors(next(&after), next).take_while(|moment| *moment <= upto);
            due.extend(moments.last().map(|moment| (moment, line)));
        }
        due.sort_by_key(|(moment, _)| *moment);
        let task = |(moment, line): (i64, &Line)| {
            line.task.clone().dedupe(format!("cron/{}/{moment}", line.name), REMEMBERED)
        };
        due.into_iter().map(task).collect()
    }

    /// The first moment after this one, in nanoseconds.
    fn next(&self, after: i64) -> Option<u64> {
        let next = self.lines.iter().filter_map(|line| line.schedule.next_after(after)).min()?;
        Some(u64::try_from(next).unwrap_or_default().saturating_mul(1_000_000_000))
    }
}

fn seconds(nanos: u64) -> i64 {
    (nanos / 1_000_000_000) as i64
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
