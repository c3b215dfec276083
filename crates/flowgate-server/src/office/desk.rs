//! The one way in for messages: checked, made tasks, stored, and noted.

use std::sync::Arc;

use bytes::Bytes;
use flowgate_tasks::{
    Client, NewTask, TaskId,
    store::{Document, KeySpent, Sent, Shelf, StoreError, TaskLook},
};
use tokio::task::JoinHandle;

use super::{
    Gather, Group, Journal, Queue, Recent, Secrets, Stage, posting,
    scoped::Scoped,
    secrets::{self, random_text},
    traced::above,
};
use crate::{
    clock,
    delivery::{Signer, SigningKeys},
    message::{Destination, Fault, Given, Head, Message, Numbers, Space, Spec, read},
    metrics::Meter,
    traces::Tracer,
};

/// More of a body is not taken.
pub(crate) const MOST_OF_A_BODY: usize = 10 * 1024 * 1024;

/// How many deliveries a server has at once where nobody says it, and which part of them callbacks to one host may be.
const DELIVERIES: u32 = 1000;
const SHARE: u32 = 4;

/// What the API and the deliveries share. One for each server.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) store: Arc<dyn Shelf>,
    pub(crate) client: Client,
    pub(crate) numbers: Numbers,
    pub(crate) journal: Journal,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) recent: Arc<Recent>,
    pub(crate) tracer: Tracer,
    pub(super) runs: Gather,
    /// How many callbacks to one host are under way at once, where nobody says it.
    pub(crate) callbacks: u32,
    /// The namespace it is for: what it sends is of that, and it finds nothing of others.
    pub(crate) space: Space,
    /// The store as it is, to make other desks of.
    whole: Arc<dyn Shelf>,
}

/// A message that was taken in, or that had been.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    pub(crate) id: TaskId,
    pub(crate) url: String,
    pub(crate) is_duplicate: bool,
}

/// Why a message is not taken in.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Something about it cannot be.
    Fault(Fault),
    /// It is for a URL group that does not exist.
    Unknown(String),
    /// It is for a URL group that has no endpoints: nobody would get it.
    Empty(String),
    Store(StoreError),
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Refused::Fault(fault)
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Refused::Store(error)
    }
}

/// A message as it is sent, before it is known how many it becomes.
#[derive(Clone, Debug)]
pub(crate) struct Sending {
    pub(crate) destination: Destination,
    pub(crate) given: Given,
    pub(crate) body: Bytes,
    pub(crate) queue: Option<String>,
    pub(crate) schedule: Option<String>,
    pub(crate) caller: Option<String>,
}

impl Desk {
    /// Opens the desk over a store. The task given beside it ends when all clones are gone and the log is written.
    pub(crate) async fn open(
        store: Arc<dyn Shelf>,
        is_dev: bool,
    ) -> Result<(Self, JoinHandle<()>), StoreError> {
        let numbers = Numbers::of(mark(&store).await?);
        let secrets = Arc::new(Secrets::open(Arc::clone(&store), is_dev).await?);
        let meter = Arc::new(Meter::new());
        let (journal, writing) = Journal::start(Arc::clone(&store), Arc::clone(&meter));
        Ok((Desk::of(store, Space::default(), numbers, &journal, secrets, meter), writing))
    }

    fn of(
        whole: Arc<dyn Shelf>,
        space: Space,
        numbers: Numbers,
        journal: &Journal,
        secrets: Arc<Secrets>,
        meter: Arc<Meter>,
    ) -> Self {
        let store: Arc<dyn Shelf> =
            Arc::new(Scoped::new(Arc::clone(&whole), space.clone(), Arc::clone(&meter)));
        let client = Client::new(store.clone());
        let runs = Gather::start(Arc::clone(&store));
        let journal = journal.within(space.clone());
        let (recent, tracer, callbacks) = (Arc::default(), Tracer::default(), DELIVERIES / SHARE);
        Desk {
            store,
            client,
            numbers,
            journal,
            secrets,
            meter,
            recent,
            tracer,
            runs,
            callbacks,
            space,
            whole,
        }
    }

    /// The desk of another namespace.
    pub(crate) fn within(&self, space: Space) -> Self {
        let Desk { numbers, journal, secrets, whole, meter, recent, tracer, callbacks, .. } = self.clone();
        let desk = Desk::of(whole, space, numbers, &journal, secrets, meter);
        Desk { recent, tracer, callbacks, ..desk }
    }

    /// The same desk, for a server with so many deliveries at once.
    pub(crate) fn with_deliveries(self, deliveries: u32) -> Self {
        Desk { callbacks: (deliveries / SHARE).max(1), ..self }
    }

    /// The keys that sign what is delivered of this namespace.
    pub(crate) fn signing_keys(&self) -> SigningKeys {
        self.secrets.keys().within(&self.space)
    }

    /// What signs deliveries of this namespace.
    pub(crate) fn signer(&self) -> Arc<Signer> {
        if self.space.is_root() { self.secrets.signer() } else { Arc::new(self.signing_keys().signer()) }
    }

    /// Reads what is to be sent: one message for a URL, one for each endpoint of a URL group.
    pub(crate) async fn read(&self, sending: Sending) -> Result<Vec<Message>, Refused> {
        let Sending { destination, given, body, queue, schedule, caller } = sending;
        let now = clock::now();
        let above = above(&given);
        let head = |url: String, spec: Spec| {
            let head = Head {
                url,
                created: now,
                spec,
                caller: caller.clone(),
                queue: queue.clone(),
                schedule: schedule.clone(),
                ..Head::default()
            };
            self.traced(&above, head)
        };
        let checked = |given: &Given| {
            let spec = read(given)?;
            if queue.is_some() && spec.flow.is_some() {
                return Err(Fault::text(
                    "a queue has limits of its own; send it without Upstash-Flow-Control-Key",
                ));
            }
            Ok(spec)
        };
        match destination {
            Destination::Url(url) => {
                let head = head(url, checked(&given)?);
                Ok(vec![Message { head, body }])
            }
            Destination::Group(name) => {
                let group =
                    Group::find(&*self.store, &name).await?.ok_or_else(|| Refused::Unknown(name.clone()))?;
                if group.endpoints.is_empty() {
                    return Err(Refused::Empty(name));
                }
                let defaults: Given =
                    group.headers.iter().map(|(name, value)| (name, value.as_str())).collect();
                let spec = checked(&given.over(&defaults))?;
                bound(group.endpoints.len(), body.len() + spec.size())?;
                let each = group.endpoints.iter().map(|endpoint| {
                    let mut head = head(endpoint.url.clone(), spec.clone());
                    head.topic = Some(name.clone());
                    head.endpoint.clone_from(&endpoint.name);
                    Message { head, body: body.clone() }
                });
                Ok(each.collect())
            }
        }
    }

    /// Takes in one message, together with what others send at the same time.
    pub(crate) async fn accept(&self, message: Message) -> Result<Accepted, StoreError> {
        self.make_queues(std::slice::from_ref(&message)).await?;
        let sent = self.client.send(posting::task(&message)).await?;
        Ok(self.accepted(sent, message))
    }

    /// Takes in these messages in this order: all of them, or none.
    pub(crate) async fn accept_all(&self, messages: Vec<Message>) -> Result<Vec<Accepted>, StoreError> {
        let tasks = messages.iter().map(posting::task).collect();
        self.accept_tasks(tasks, messages).await
    }

    /// The same, for messages that are tasks already.
    pub(super) async fn accept_tasks(
        &self,
        tasks: Vec<NewTask>,
        messages: Vec<Message>,
    ) -> Result<Vec<Accepted>, StoreError> {
        self.make_queues(&messages).await?;
        let sent = self.client.send_all(tasks).await?;
        Ok(sent.into_iter().zip(messages).map(|(sent, message)| self.accepted(sent, message)).collect())
    }

    /// A message was stored, and its first line in the log with it.
    pub(super) fn accepted(&self, Sent { id, is_duplicate }: Sent, message: Message) -> Accepted {
        self.meter.accepted(is_duplicate);
        if !is_duplicate {
            self.journal.count(Stage::Created);
        }
        self.trace(id, is_duplicate, &message.head);
        Accepted { id, url: message.head.url, is_duplicate }
    }

    /// An attempt to deliver this message has ended: its key was used `now`.
    pub(crate) fn used(&self, message: &Message, now: u64) {
        if let (None, Some(flow)) = (&message.head.queue, &message.head.spec.flow) {
            self.recent.used(&message.head.space, flow, now);
        }
    }

    /// What is told of a key: what the store knows, or that it was used lately and is idle.
    pub(crate) async fn key(&self, key: String) -> Result<Option<KeySpent>, StoreError> {
        let idle = || self.recent.idle(&self.space, &key, clock::now());
        Ok(self.store.key_spent(key.clone()).await?.or_else(idle))
    }

    /// Keys that were used lately, by name. Some of them the store may know.
    pub(crate) fn recent_keys(&self) -> Vec<KeySpent> {
        self.recent.all(&self.space, clock::now())
    }

    /// A queue is made by the first message for it.
    async fn make_queues(&self, messages: &[Message]) -> Result<(), StoreError> {
        let mut names: Vec<&str> =
            messages.iter().filter_map(|message| message.head.queue.as_deref()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            Queue::make(&*self.store, name).await?;
        }
        Ok(())
    }

    /// A message of this namespace that waits, is under way or is dead, if the task is one.
    pub(crate) fn message_of(&self, look: &TaskLook) -> Option<Message> {
        let record = look.record.as_ref().filter(|record| record.kind == crate::delivery::KIND)?;
        let message = Message::from_bytes(&Bytes::from(record.body.clone())).ok();
        message.filter(|message| message.head.space == self.space)
    }
}

/// One request makes no more than so many bytes of messages, however many endpoints its URL groups have.
pub(crate) const MOST_OF_A_REQUEST: usize = 256 * 1024 * 1024;

/// Whether so many messages may be made of one request, with so many bytes each.
fn bound(count: usize, size: usize) -> Result<(), Fault> {
    if count.saturating_mul(size) > MOST_OF_A_REQUEST {
        return Err(Fault::text(format!(
            "a message of {size} bytes for each of {count} endpoints is more than {} MiB; send a smaller body, or a \
                URL to fetch it from",
            MOST_OF_A_REQUEST / 1024 / 1024
        )));
    }
    Ok(())
}

/// What tells this store's messages from those of every other.
async fn mark(store: &Arc<dyn Shelf>) -> Result<String, StoreError> {
    let (kind, name) = ("server".to_owned(), "mark".to_owned());
    let body = random_text(8).into_bytes();
    store.put_document(Document { kind, name, body, version: Some(0) }).await?;
    Ok(known_mark(&**store).await?.unwrap_or_default())
}

async fn known_mark(store: &dyn Shelf) -> Result<Option<String>, StoreError> {
    let found = store.document("server".to_owned(), "mark".to_owned()).await?;
    Ok(found.map(|found| secrets::text(found.body)))
}

/// The task behind the name of a message or of a dead letter, if it can be one of this store.
pub(crate) async fn task_named(store: &dyn Shelf, name: &str) -> Result<Option<TaskId>, StoreError> {
    let numbers = numbers(store).await?;
    Ok(numbers.and_then(|numbers| numbers.read_message(name).or_else(|| numbers.read_dead(name))))
}

/// The names of the messages of this store, if it ever had a server.
pub(crate) async fn numbers(store: &dyn Shelf) -> Result<Option<Numbers>, StoreError> {
    Ok(known_mark(store).await?.map(Numbers::of))
}
