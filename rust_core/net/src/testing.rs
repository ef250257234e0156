//! A process of one partition that never has data, for tests of connections alone.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use headgate_memory::lock;
use headgate_protocol::{HandshakeConfig, Key, Next, PartitionId, PartitionRequest, VersionRange};

use crate::context::Context;
use crate::error::ConnectionError;
use crate::mailbox::Mailbox;
use crate::notifiers::{DataNotifier, PartitionNotifier};
use crate::partitions::{Available, Partitions, Polled, Refusal, View};
use crate::waits::NetworkWaits;

/// The partition, and the end of its consumer.
#[derive(Default)]
pub(crate) struct Consumer(Mutex<Option<Result<(), ConnectionError>>>);

impl Consumer {
    /// Returns `None` while the consumer reads, and the cause if it was lost.
    pub(crate) fn end(&self) -> Option<Result<(), ConnectionError>> {
        lock(&self.0).clone()
    }
}

impl View for Arc<Consumer> {
    fn poll(&self) -> Result<Option<Polled>, Refusal> {
        Ok(None)
    }

    fn look(&self) -> Result<Available, Refusal> {
        Ok(Available { next: Next::None, backlog: 0 })
    }

    fn resume(&self) -> Result<(), String> {
        Err("no barrier was polled".to_owned())
    }

    fn set_buffer_size(&self, _size: u32) {}

    fn set_unread(&self, _buffers: u32) {}

    fn acknowledge(&self) {}

    fn task_event(&self, _event: &[u8]) -> Result<(), Refusal> {
        Ok(())
    }

    fn consumed(&self) {
        lock(&self.0).get_or_insert(Ok(()));
    }

    fn consumer_lost(&self, cause: &ConnectionError) {
        lock(&self.0).get_or_insert(Err(cause.clone()));
    }
}

struct OnePartition(Arc<Consumer>);

impl Partitions for OnePartition {
    fn open(
        &self,
        _request: &PartitionRequest,
        _data: DataNotifier,
        _appears: &Arc<PartitionNotifier>,
    ) -> Result<Option<Arc<dyn View>>, Refusal> {
        Ok(Some(Arc::new(Arc::clone(&self.0))))
    }

    fn forget(&self, _id: PartitionId, _appears: &Arc<PartitionNotifier>) {}
}

struct NoWaits;

impl NetworkWaits for NoWaits {
    fn hold_up_began(&self) {}

    fn hold_up_ended(&self) {}

    fn network_limited(&self, _time: Duration) {}

    fn io_worked(&self) {}
}

fn random() -> io::Result<[u8; 32]> {
    Ok([5; 32])
}

/// Returns the context of a process whose partition has this consumer.
pub(crate) fn context(mailbox: Arc<Mailbox>, consumer: &Arc<Consumer>) -> Context {
    let (exchange, run, epoch, process) = ([1; 16], 1, 1, [2; 16]);
    let versions = VersionRange::SUPPORTED;
    Context {
        key: Key::derive(&[7; 32], &exchange, run, epoch),
        handshake: HandshakeConfig { exchange, run, epoch, process, max_segment: 1024, versions },
        partitions: Arc::new(OnePartition(Arc::clone(consumer))),
        partition_request_timeout: Duration::from_secs(10),
        idle_timeout: Duration::from_secs(10),
        same_host_link: false,
        tls: None,
        traffic: Arc::default(),
        waits: Arc::new(NoWaits),
        random,
        loans: Arc::default(),
        mailbox,
    }
}
