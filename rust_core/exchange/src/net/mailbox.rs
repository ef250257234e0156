//! Commands to the I/O thread.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headgate_protocol::{ChannelId, PartitionId, PartitionRequest};
use mio::{Registry, Token, Waker};

use crate::gate::{CreditSink, LocalRequest, RemoteChannel, UpstreamMessage};
use crate::lock::lock;
use crate::net::Listeners;
use crate::view::DataListener;

/// The token of the mailbox's waker; connections count from [`FIRST_CONNECTION`].
pub(crate) const WAKER: Token = Token(0);
pub(crate) const LISTENER: Token = Token(1);
pub(crate) const SAME_HOST_LISTENER: Token = Token(2);
pub(crate) const FIRST_CONNECTION: usize = 3;

/// What another thread wants done.
pub(crate) enum Command {
    /// Request a subpartition for this channel.
    Open {
        peer: SocketAddr,
        process: [u8; 16],
        channel: Arc<RemoteChannel>,
        request: PartitionRequest,
    },
    /// Announce the channel's new credit.
    Credit(Arc<RemoteChannel>),
    /// The channel wants nothing more.
    Cancel(Arc<RemoteChannel>),
    /// A channel tells its producer something.
    Tell(Arc<RemoteChannel>, UpstreamMessage),
    /// A channel goes on behind a barrier.
    Resume(Arc<RemoteChannel>),
    /// The partition that a channel of a consumer connected here asked for appeared.
    PartitionCreated { connection: usize, channel: ChannelId },
    /// A channel within this process waits so long for its partition.
    AwaitPartition { timeout: Duration, id: PartitionId, request: Arc<LocalRequest> },
    /// A subpartition served on this connection has something, or failed.
    Data { connection: usize, channel: ChannelId },
    /// A buffer that was lent over this connection is read no more.
    Return { connection: usize, loan: u64 },
    /// Accept connections here.
    Listen(Listeners),
    /// Say goodbye and end.
    Shutdown,
}

/// A queue of commands that wakes the I/O thread only if it sleeps.
pub(crate) struct Mailbox {
    queue: Mutex<Vec<Command>>,
    waker: Waker,
    /// Set by the I/O thread before it sleeps and looks at the queue once more: whoever posts after
    /// that look sees it and wakes.
    asleep: AtomicBool,
}

impl Mailbox {
    pub(crate) fn new(registry: &Registry) -> std::io::Result<Self> {
        Ok(Self {
            queue: Mutex::default(),
            waker: Waker::new(registry, WAKER)?,
            asleep: AtomicBool::new(false),
        })
    }

    pub(crate) fn post(&self, command: Command) {
        lock(&self.queue).push(command);
        if self.asleep.swap(false, Ordering::AcqRel) {
            // Fails only if the eventfd is gone, that is, the thread as well.
            let _ = self.waker.wake();
        }
    }

    /// Moves all commands to `into`.
    pub(crate) fn drain(&self, into: &mut Vec<Command>) {
        into.append(&mut lock(&self.queue));
    }

    /// Whether the I/O thread may sleep: nothing came in since it last drained.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::Release);
        let empty = lock(&self.queue).is_empty();
        if !empty {
            self.asleep.store(false, Ordering::Release);
        }
        empty
    }

    pub(crate) fn woke(&self) {
        self.asleep.store(false, Ordering::Release);
    }
}

impl CreditSink for Mailbox {
    fn credit_available(&self, channel: Arc<RemoteChannel>) {
        self.post(Command::Credit(channel));
    }

    fn cancel(&self, channel: Arc<RemoteChannel>) {
        self.post(Command::Cancel(channel));
    }

    fn resume(&self, channel: Arc<RemoteChannel>) {
        self.post(Command::Resume(channel));
    }

    fn tell(&self, channel: Arc<RemoteChannel>, message: UpstreamMessage) {
        self.post(Command::Tell(channel, message));
    }
}

/// Tells the I/O thread of what a subpartition has.
pub(crate) struct ToMailbox {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) connection: usize,
    pub(crate) channel: ChannelId,
    /// The peer is told where buffers lie instead of being sent their bytes.
    pub(crate) lends: bool,
}

impl DataListener for ToMailbox {
    fn takes_pieces(&self) -> bool {
        !self.lends
    }

    fn data_available(&self) {
        let (connection, channel) = (self.connection, self.channel);
        self.mailbox.post(Command::Data { connection, channel });
    }
}
