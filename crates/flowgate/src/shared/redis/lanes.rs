//! The store itself: what is kept under which key, and the scripts that change it.
//!
//! Owns three kinds of keys, all behind the gate's name: a hash of lanes, a key with an expiry for each
//! member, and a channel for each member and for all. What is kept of a lane is one text: its version, the
//! members it speaks of, when it may be removed, a line's end, and the document.
//!
//! **A member whose key is gone is dead**: Redis itself removes it when its time is over, and to renew is to
//! move the expiry of a key that is there. Scripts run one after the other and see one moment, so no member
//! is both.

use std::{
    future::{Future, pending},
    pin::Pin,
    time::Duration,
};

use flowgate_core::{OptionError, Tick};

use super::connection::{Address, Connection, Value};
use crate::shared::{
    document::Member,
    store::{Loaded, Reply, Seen, Store, StoreError, Swap, Wake},
};

/// KEYS: the lanes. ARGV: the beginning of members' keys, the one who asks, names. Answers the time, whether the one
/// who asks lives, and for each name what is kept, who is dead, and how soon the next of the others may be.
const LOAD: &str = r"
    local answer = redis.call('TIME')
    answer[3] = redis.call('EXISTS', ARGV[1] .. ARGV[2])
    for i = 3, #ARGV do
        local kept = redis.call('HGET', KEYS[1], ARGV[i])
        local dead, soonest = {}, -1
        for member in string.gmatch(kept and string.match(kept, '^%d+ ([%d,]*) ') or '', '%d+') do
            local left = redis.call('PTTL', ARGV[1] .. member)
            if left < 0 then
                dead[#dead + 1] = member
            elseif member ~= ARGV[2] and (soonest < 0 or left < soonest) then
                soonest = left
            end
        end
        answer[#answer + 1] = kept or ''
        answer[#answer + 1] = table.concat(dead, ',')
        answer[#answer + 1] = soonest
    end
    return answer";

/// KEYS: the lanes. ARGV: the beginning of members' channels, the version of the limits, until when any of it has to be
/// kept, then for each swap its name, what is expected, what to keep, whom to wake. All of it goes when nobody has
/// started the gate for so long.
const SWAP: &str = r"
    local function is_kept(name, version)
        local kept = redis.call('HGET', KEYS[1], name)
        return (kept and string.match(kept, '^%d+') or '0') == version
    end
    local answer = {}
    local is_under_them = is_kept('limits', ARGV[2])
    for i = 4, #ARGV, 4 do
        local is_as_expected = is_under_them and is_kept(ARGV[i], ARGV[i + 1])
        if is_as_expected then
            redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2])
            for member in string.gmatch(ARGV[i + 3], '%d+') do
                redis.call('PUBLISH', ARGV[1] .. member, ARGV[i])
            end
        end
        answer[#answer + 1] = is_as_expected and 1 or 0
    end
    local least = 43200000
    if ARGV[3] ~= '0' then
        local time = redis.call('TIME')
        least = math.max(least, ARGV[3] - time[1] * 1000 - math.floor(time[2] / 1000))
    end
    if redis.call('PTTL', KEYS[1]) < least then
        redis.call('PEXPIRE', KEYS[1], 2 * least)
    end
    return answer";

/// KEYS: the lanes. ARGV: the beginning of members' keys, where to go on. Answers where to go on next. The limits stay,
/// and so does all of it, for as long as somebody comes by.
const SWEEP: &str = r"
    local time = redis.call('TIME')
    local page = redis.call('HSCAN', KEYS[1], ARGV[2], 'COUNT', 1000)
    for i = 1, #page[2], 2 do
        local members, rests = string.match(page[2][i + 1], '^%d+ ([%d,]*) (%d+)\n')
        local is_over = members and page[2][i] ~= 'limits' and tonumber(rests) < time[1] * 1000000 + time[2]
        for member in string.gmatch(members or '', '%d+') do
            is_over = is_over and redis.call('EXISTS', ARGV[1] .. member) == 0
        end
        if is_over then
            redis.call('HDEL', KEYS[1], page[2][i])
        end
    end
    if redis.call('PTTL', KEYS[1]) < 43200000 then
        redis.call('PEXPIRE', KEYS[1], 86400000)
    end
    return page[1]";

pub(crate) struct Redis {
    address: Address,
    /// The keys of the gate begin with this.
    prefix: String,
    member: Option<Member>,
    session: Option<Session>,
    /// Whether a call was begun and not ended.
    is_calling: bool,
    /// Up to where was swept.
    swept: Vec<u8>,
}

struct Session {
    connection: Connection,
    load: Vec<u8>,
    swap: Vec<u8>,
    sweep: Vec<u8>,
    /// Nothing was heard before it was opened.
    is_new: bool,
}

impl Redis {
    pub(crate) fn new(url: &str, gate: &str) -> Result<Self, OptionError> {
        Ok(Redis {
            address: Address::parse(url)?,
            prefix: format!("flowgate:{{{gate}}}:"),
            member: None,
            session: None,
            is_calling: false,
            swept: b"0".to_vec(),
        })
    }

    /// The connection: a new one, if the last broke or a call on it was dropped.
    async fn session(&mut self) -> Result<&mut Session, StoreError> {
        if self.is_calling || self.session.is_none() {
            self.session = None;
            let mut connection = Connection::open(&self.address).await?;
            let own = self.member.map(|member| self.key(&format!("wake:{}", member.0)));
            for channel in own.into_iter().chain([self.key("wake:all")]) {
                connection.send(&[b"SUBSCRIBE", channel.as_bytes()]).await?;
            }
            let load = script(&mut connection, LOAD).await?;
            let swap = script(&mut connection, SWAP).await?;
            let sweep = script(&mut connection, SWEEP).await?;
            self.session = Some(Session { connection, load, swap, sweep, is_new: true });
        }
        self.is_calling = true;
        Ok(self.session.as_mut().expect("it was opened a moment ago"))
    }

    async fn call(&mut self, words: &[&[u8]]) -> Result<Value, StoreError> {
        let answer = self.session().await?.connection.call(words).await?;
        self.is_calling = false;
        Ok(answer)
    }

    /// A script by the name that the server gave it.
    async fn eval(
        &mut self,
        script: impl FnOnce(&Session) -> &[u8],
        words: &[&[u8]],
    ) -> Result<Vec<Value>, StoreError> {
        let lanes = self.key("lanes");
        let session = self.session().await?;
        let sha = script(session).to_vec();
        let all = [&[b"EVALSHA".as_slice(), &sha, b"1", lanes.as_bytes()], words].concat();
        let answer = session.connection.call(&all).await?;
        self.is_calling = false;
        Ok(match answer {
            Value::List(answer) => answer,
            other => vec![other],
        })
    }

    fn key(&self, rest: &str) -> String {
        format!("{}{rest}", self.prefix)
    }

    fn key_of(&self, member: Member) -> String {
        self.key(&format!("member:{}", member.0))
    }

    async fn joined(&mut self, member: Member, lease: Duration) -> Result<(), StoreError> {
        // Listened to first: nothing that is said to a member is missed.
        (self.member, self.session) = (Some(member), None);
        let (key, lease) = (self.key_of(member), millis(lease));
        self.call(&[b"SET", key.as_bytes(), b"1", b"PX", lease.as_bytes()]).await.map(|_| ())
    }

    async fn loaded(&mut self, names: &[String]) -> Result<Loaded, StoreError> {
        let (members, own) = (self.key("member:"), self.member.map_or(0, |member| member.0).to_string());
        let mut words = vec![members.as_bytes(), own.as_bytes()];
        words.extend(names.iter().map(String::as_bytes));
        let answer = self.eval(|session| &session.load, &words).await?;
        let [seconds, micros, is_alive, rest @ ..] = answer.as_slice() else { return Err(strange()) };
        let (Some(seconds), Some(micros)) = (parse(seconds), parse(micros)) else { return Err(strange()) };
        let now = Tick::from_nanos((seconds * 1_000_000 + micros) * 1000);
        let seen = rest.chunks_exact(3).map(|kept| read(kept, now)).collect::<Option<_>>();
        Ok(Loaded { is_alive: *is_alive == Value::Number(1), seen: seen.ok_or_else(strange)? })
    }

    async fn swapped(&mut self, swaps: &[Swap], limits: u64) -> Result<Vec<bool>, StoreError> {
        let (channels, limits) = (self.key("wake:"), limits.to_string());
        let parts: Vec<[Vec<u8>; 4]> = swaps.iter().map(parts).collect();
        let rests = swaps.iter().map(|swap| swap.rests_at.as_nanos().div_ceil(1_000_000)).max();
        let rests = rests.unwrap_or(0).to_string();
        let mut words = vec![channels.as_bytes(), limits.as_bytes(), rests.as_bytes()];
        words.extend(parts.iter().flatten().map(Vec::as_slice));
        let answer = self.eval(|session| &session.swap, &words).await?;
        Ok(answer.iter().map(|done| *done == Value::Number(1)).collect())
    }
}

impl Store for Redis {
    fn join(&mut self, member: Member, lease: Duration) -> Reply<'_, ()> {
        Box::pin(self.joined(member, lease))
    }

    fn renew(&mut self, member: Member, lease: Duration) -> Reply<'_, bool> {
        Box::pin(async move {
            let (key, lease) = (self.key_of(member), millis(lease));
            Ok(self.call(&[b"PEXPIRE", key.as_bytes(), lease.as_bytes()]).await? == Value::Number(1))
        })
    }

    fn leave(&mut self, member: Member) -> Reply<'_, ()> {
        Box::pin(async move {
            let key = self.key_of(member);
            self.call(&[b"DEL", key.as_bytes()]).await.map(|_| ())
        })
    }

    fn load<'a>(&'a mut self, names: &'a [String]) -> Reply<'a, Loaded> {
        Box::pin(self.loaded(names))
    }

    fn swap<'a>(&'a mut self, swaps: &'a [Swap], limits: u64) -> Reply<'a, Vec<bool>> {
        Box::pin(self.swapped(swaps, limits))
    }

    fn call_all(&mut self) -> Reply<'_, ()> {
        Box::pin(async move {
            let channel = self.key("wake:all");
            self.call(&[b"PUBLISH", channel.as_bytes(), b""]).await.map(|_| ())
        })
    }

    fn age(&mut self) -> Reply<'_, Option<Duration>> {
        Box::pin(async move {
            // One that writes down what it is told has it again when it is started again. Who may not ask goes by that.
            let said = match self.call(&[b"INFO"]).await {
                Ok(Value::Bytes(said)) => String::from_utf8_lossy(&said).into_owned(),
                Ok(_) => return Err(strange()),
                Err(StoreError::Refused(said)) if may_not_be_asked(&said) => return Ok(None),
                Err(error) => return Err(error),
            };
            let number = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
            let uptime = number("uptime_in_seconds:").filter(|_| number("aof_enabled:") != Some(1));
            // In whole seconds of the clock, it may have begun almost one later.
            Ok(uptime.map(|uptime: u64| Duration::from_secs(uptime.saturating_sub(1))))
        })
    }

    fn sweep(&mut self) -> Reply<'_, ()> {
        Box::pin(async move {
            let (members, swept) = (self.key("member:"), self.swept.clone());
            let mut answer = self.eval(|session| &session.sweep, &[members.as_bytes(), &swept]).await?;
            let Some(Value::Bytes(next)) = answer.pop() else { return Err(strange()) };
            self.swept = next;
            Ok(())
        })
    }

    fn sweeps_limits(&self) -> bool {
        false
    }

    fn wake(&mut self) -> Pin<Box<dyn Future<Output = Wake> + Send + '_>> {
        Box::pin(async move {
            loop {
                if let Some(wake) = self.heard() {
                    return wake;
                }
                let Some(session) = &mut self.session else { return pending().await };
                if session.connection.listen().await.is_err() {
                    self.session = None;
                    return Wake::Gone;
                }
            }
        })
    }

    fn heard(&mut self) -> Option<Wake> {
        let session = self.session.as_mut()?;
        if session.connection.has_missed() || std::mem::take(&mut session.is_new) {
            return Some(Wake::All);
        }
        while let Some(said) = session.connection.pushed() {
            if let [Value::Bytes(kind), _, Value::Bytes(name)] = said.as_slice()
                && kind == b"message"
            {
                let name = String::from_utf8_lossy(name).into_owned();
                return Some(if name.is_empty() { Wake::All } else { Wake::At(name) });
            }
        }
        None
    }
}

async fn script(connection: &mut Connection, text: &str) -> Result<Vec<u8>, StoreError> {
    match connection.call(&[b"SCRIPT", b"LOAD", text.as_bytes()]).await? {
        Value::Bytes(sha) => Ok(sha),
        _ => Err(strange()),
    }
}

/// What is sent of a swap.
fn parts(swap: &Swap) -> [Vec<u8>; 4] {
    let rests = swap.rests_at.as_nanos().div_ceil(1000);
    let mut kept = format!("{} {} {rests}\n", swap.version, list(&swap.members)).into_bytes();
    kept.extend_from_slice(&swap.document);
    [
        swap.name.as_bytes().to_vec(),
        swap.expected.to_string().into_bytes(),
        kept,
        list(&swap.woken).into_bytes(),
    ]
}

/// What is answered of a name.
fn read(kept: &[Value], now: Tick) -> Option<Seen> {
    let [Value::Bytes(text), Value::Bytes(dead), Value::Number(soonest)] = kept else { return None };
    let soonest = u64::try_from(*soonest).ok().map(Duration::from_millis);
    let mut seen = Seen { now, soonest, ..Seen::nothing() };
    if text.is_empty() {
        return Some(seen);
    }
    let end = text.iter().position(|byte| *byte == b'\n')?;
    seen.version = std::str::from_utf8(&text[..end]).ok()?.split(' ').next()?.parse().ok()?;
    seen.document = text[end + 1..].to_vec();
    let dead = std::str::from_utf8(dead).ok()?.split(',').filter(|id| !id.is_empty());
    seen.dead = dead.map(|id| id.parse().ok().map(Member)).collect::<Option<_>>()?;
    Some(seen)
}

fn list(members: &[Member]) -> String {
    members.iter().map(|member| member.0.to_string()).collect::<Vec<_>>().join(",")
}

fn parse(value: &Value) -> Option<u64> {
    let Value::Bytes(text) = value else { return None };
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn millis(span: Duration) -> String {
    // Never shorter than it is here.
    span.as_nanos().div_ceil(1_000_000).to_string()
}

/// Whether this refusal says that we may not ask, or that nobody can; not that it has no time for it now.
fn may_not_be_asked(said: &str) -> bool {
    ["NOPERM", "ERR unknown command"].iter().any(|refusal| said.starts_with(refusal))
}

fn strange() -> StoreError {
    StoreError::Refused("it sent an unexpected answer".into())
}

#[cfg(test)]
mod tests {
    use super::may_not_be_asked;

    // Seen to fail: with every refusal taken for that, one that was still loading was taken for one that never forgets.
    #[test]
    fn s1_only_a_redis_that_may_not_be_asked_how_long_it_runs_is_taken_for_one_that_never_forgets() {
        for said in [
            "NOPERM User app has no permissions to run the 'info' command",
            "NOPERM this user has no permissions to run the 'info' command or its subcommand",
            "ERR unknown command 'INFO', with args beginning with: ",
            "ERR unknown command `INFO`, with args beginning with: ",
        ] {
            assert!(may_not_be_asked(said), "{said}");
        }
        for said in ["LOADING Redis is loading the dataset in memory", "BUSY Redis is busy", "ERR no", ""] {
            assert!(!may_not_be_asked(said), "{said}");
        }
    }
}
