//! Partition requests that wait for their partition to be created (spec 4.8, 9.4).

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use headgate_protocol::{ChannelId, PartitionRequest};

use crate::notifiers::PartitionNotifier;
use crate::partitions::Partitions;

/// Most waiting requests of one connection; further ones are refused.
const MAX_WAITING: usize = 16_384;
/// Most task events kept for the producer of a waiting channel.
const MAX_EVENTS: usize = 64;
/// Most bytes of the task events that all waiting channels of one connection keep.
const MAX_EVENT_BYTES: usize = 4 << 20;

/// A waiting request, and the messages that its channel sent meanwhile.
pub(super) struct WaitingRequest {
    pub(super) request: PartitionRequest,
    pub(super) deadline: Instant,
    pub(super) appears: Arc<PartitionNotifier>,
    pub(super) events: Vec<Bytes>,
    pub(super) buffer_size: Option<NonZeroU32>,
}

/// The waiting requests of one connection.
pub(super) struct WaitingRequests {
    requests: BTreeMap<ChannelId, WaitingRequest>,
    /// Bytes of the task events in `requests`.
    event_bytes: usize,
    partitions: Arc<dyn Partitions>,
}

impl WaitingRequests {
    pub(super) fn new(partitions: Arc<dyn Partitions>) -> Self {
        Self { requests: BTreeMap::new(), event_bytes: 0, partitions }
    }

    pub(super) fn contains(&self, channel: ChannelId) -> bool {
        self.requests.contains_key(&channel)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.requests.len() >= MAX_WAITING
    }

    /// Adds a request whose notifier is registered.
    pub(super) fn add(&mut self, waiting: WaitingRequest) {
        self.requests.insert(waiting.request.channel, waiting);
    }

    /// Removes a request and unregisters its notifier.
    pub(super) fn remove(&mut self, channel: ChannelId) -> Option<WaitingRequest> {
        let waiting = self.requests.remove(&channel)?;
        self.event_bytes -= waiting.events.iter().map(Bytes::len).sum::<usize>();
        self.partitions.forget(waiting.request.partition, &waiting.appears);
        Some(waiting)
    }

    /// Keeps a task event for the channel's producer; returns false if the channel does not wait, or there
    /// are too many events.
    pub(super) fn keep_event(&mut self, channel: ChannelId, event: &Bytes) -> bool {
        if self.event_bytes + event.len() > MAX_EVENT_BYTES {
            return false;
        }
        let room = |waiting: &&mut WaitingRequest| waiting.events.len() < MAX_EVENTS;
        let Some(waiting) = self.requests.get_mut(&channel).filter(room) else {
            return false;
        };
        waiting.events.push(event.clone());
        self.event_bytes += event.len();
        true
    }

    /// Keeps the latest buffer size that a waiting channel asked for.
    pub(super) fn keep_buffer_size(&mut self, channel: ChannelId, size: NonZeroU32) {
        if let Some(waiting) = self.requests.get_mut(&channel) {
            waiting.buffer_size = Some(size);
        }
    }

    /// Returns the bytes of the task events that are kept.
    pub(super) fn event_bytes(&self) -> usize {
        self.event_bytes
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.requests.values().map(|waiting| waiting.deadline).min()
    }

    /// Removes the requests whose deadline has passed.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<PartitionRequest> {
        let late = |(_, waiting): &(&ChannelId, &WaitingRequest)| waiting.deadline <= now;
        let late: Vec<_> = self.requests.iter().filter(late).map(|(channel, _)| *channel).collect();
        let requests = late.into_iter().filter_map(|channel| self.remove(channel));
        requests.map(|waiting| waiting.request).collect()
    }

    /// Removes all requests.
    pub(super) fn clear(&mut self) {
        self.event_bytes = 0;
        for waiting in std::mem::take(&mut self.requests).into_values() {
            self.partitions.forget(waiting.request.partition, &waiting.appears);
        }
    }
}
