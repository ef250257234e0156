//! The producer's end of a connection: serves subpartitions in turn, as credit allows (spec 9.4).

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use headgate_protocol::{ChannelId, Frame, Generation, Next, PartitionRequest, SendQueue};
use headgate_trace::{Event, Kind, record};

use crate::context::Context;
use crate::error::{ConnectionError, Result};
use crate::loans::{Lending, Outstanding};
use crate::notifiers::{DataNotifier, PartitionNotifier};
use crate::outbox::Outbox;
use crate::partitions::{Available, Reason, Refusal, View};
use crate::requests::{WaitingRequest, WaitingRequests};
use crate::sending::push_buffer;
use crate::task_event::IncomingEvent;
use crate::wire_error;

/// Most open channels of one connection; further ones are refused.
const MAX_OPEN: usize = 16_384;

struct Reader {
    view: Arc<dyn View>,
    generation: Generation,
    initial_credit: u32,
}

pub(crate) struct Serve {
    connection: usize,
    queue: SendQueue<Reader>,
    waiting: WaitingRequests,
    /// A task event whose payload is due next.
    incoming: Option<IncomingEvent>,
    /// Size of the consumer's segments.
    max_segment: usize,
    /// The buffers lent to the consumer, if it is on this host.
    lending: Option<Lending>,
    /// True once the consumer has said goodbye, so that the end of the connection is no loss.
    goodbye: bool,
}

impl Serve {
    pub(crate) fn new(
        connection: usize,
        max_segment: u32,
        is_same_host: bool,
        context: &Context,
    ) -> Self {
        Self {
            connection,
            queue: SendQueue::new(),
            waiting: WaitingRequests::new(Arc::clone(&context.partitions)),
            incoming: None,
            max_segment: max_segment as usize,
            lending: is_same_host
                .then(|| Lending::new(Arc::clone(&context.loans), context.handshake.max_segment)),
            goodbye: false,
        }
    }

    /// Takes the payload of a task event off the input; returns false if none is due.
    pub(crate) fn take_payload(&mut self, input: &mut &[u8], outbox: &mut Outbox) -> Result<bool> {
        let Some(incoming) = &mut self.incoming else {
            return Ok(false);
        };
        if incoming.take(input)
            && let Some(complete) = self.incoming.take()
        {
            let (channel, event) = complete.finish(outbox.mask)?;
            self.task_event(channel, &event, outbox);
        }
        Ok(true)
    }

    fn task_event(&mut self, channel: ChannelId, event: &Bytes, outbox: &mut Outbox) {
        let taken = if let Some(reader) = self.queue.view(channel) {
            reader.view.task_event(event)
        } else if !self.waiting.contains(channel) || self.waiting.keep_event(channel, event) {
            // The channel ended while the event was on its way.
            Ok(())
        } else {
            let text = "too many task events wait for a partition to appear".to_owned();
            Err(Refusal { reason: Reason::TaskEvent, text })
        };
        if let Err(refusal) = taken {
            // The consumer fails its channel and cancels it, and is served until then.
            outbox.push_frame(&wire_error::encode(channel, refusal));
        }
    }

    pub(crate) fn handle(
        &mut self,
        frame: Frame,
        context: &Context,
        now: Instant,
        outbox: &mut Outbox,
    ) -> Result<(), String> {
        match frame {
            Frame::PartitionRequest(request) => self.request(request, context, now, outbox),
            Frame::TaskEvent(header) => self.incoming = Some(IncomingEvent::new(header)),
            Frame::AddCredit { credit, channel } => {
                // The channel may have ended while the credit was on its way.
                let Some(reader) = self.queue.view(channel) else {
                    return Ok(());
                };
                fail_point!("credit.granted", text => return Err(text));
                let Available { next, backlog } = reader.view.look().unwrap_or(Available::NOTHING);
                record(Kind::Net, || {
                    let (connection, channel) = (self.connection, channel.0);
                    Event::Credited { connection, channel, credits: credit.get(), backlog }
                });
                self.queue.grant(channel, credit, next).map_err(|error| error.to_string())?;
                self.on_credit(channel);
            }
            Frame::CancelPartitionRequest { channel } => {
                fail_point!("end.acknowledged", text => return Err(text));
                self.waiting.remove(channel);
                if let Some(reader) = self.queue.cancel(channel) {
                    reader.view.consumed();
                }
            }
            Frame::ResumeConsumption { channel } => {
                let Some(reader) = self.queue.view(channel) else {
                    return Ok(());
                };
                reader.view.resume().map_err(|error| format!("channel {channel}: {error}"))?;
                // The subpartition did not notify of data that arrived while it was blocked.
                let Available { next, backlog } = reader.view.look().unwrap_or(Available::NOTHING);
                self.queue.resume(channel, next).map_err(|error| error.to_string())?;
                self.announce_backlog(channel, next, backlog, outbox);
            }
            Frame::AckAllUserRecordsProcessed { channel } => {
                if let Some(reader) = self.queue.view(channel) {
                    reader.view.acknowledge();
                }
            }
            Frame::NewBufferSize { size, channel } => {
                self.waiting.keep_buffer_size(channel, size);
                self.set_buffer_size(channel, size);
            }
            Frame::Return { loan } => {
                if !self.lending.as_mut().is_some_and(|lending| lending.give_back(loan)) {
                    return Err(format!("returns loan {loan}, which is not outstanding"));
                }
            }
            Frame::Heartbeat => {}
            Frame::CloseRequest => self.goodbye = true,
            Frame::Buffer(_)
            | Frame::Error(_)
            | Frame::BacklogAnnouncement { .. }
            | Frame::Lease
            | Frame::Region { .. }
            | Frame::LentBuffer(_) => {
                return Err("a producer's frame from a consumer".to_owned());
            }
        }
        Ok(())
    }

    /// Tells a view how many buffers its consumer has not read: each gives its credit back when it is
    /// read. Credit for floating buffers hides as many.
    fn on_credit(&self, channel: ChannelId) {
        if let (Some(reader), Some(credit)) = (self.queue.view(channel), self.queue.credit(channel))
        {
            reader.view.set_unread(reader.initial_credit.saturating_sub(credit));
        }
    }

    /// Sets the buffer size of a channel, unless the channel has ended.
    fn set_buffer_size(&self, channel: ChannelId, size: NonZeroU32) {
        if let Some(reader) = self.queue.view(channel) {
            reader.view.set_buffer_size(size.get());
        }
    }

    /// Opens a channel, now or once its partition is created.
    fn request(
        &mut self,
        request: PartitionRequest,
        context: &Context,
        now: Instant,
        outbox: &mut Outbox,
    ) {
        let channel = request.channel;
        let opened = if self.waiting.contains(channel) || self.queue.view(channel).is_some() {
            Err(not_found(channel, format!("channel {channel} is open already")))
        } else if self.queue.len() >= MAX_OPEN {
            Err(not_found(channel, format!("{MAX_OPEN} channels of one connection are open")))
        } else {
            self.find(request, context, now)
        };
        if let Some(reader) = self.queue.view(channel) {
            let Available { next, backlog } = reader.view.look().unwrap_or(Available::NOTHING);
            self.announce_backlog(channel, next, backlog, outbox);
        }
        if let Err(refusal) = opened {
            outbox.push_frame(&refusal);
        }
    }

    fn find(
        &mut self,
        request: PartitionRequest,
        context: &Context,
        now: Instant,
    ) -> Result<(), Frame> {
        let channel = request.channel;
        fail_point!("partition.requested", text => return Err(wire_error::encode(channel, failed(text))));
        let (mailbox, connection) = (&context.mailbox, self.connection);
        let lends = self.lending.is_some();
        let data = DataNotifier { mailbox: Arc::clone(mailbox), connection, channel, lends };
        let appears = PartitionNotifier { mailbox: Arc::clone(mailbox), connection, channel };
        let appears = Arc::new(appears);
        let opened = context.partitions.open(&request, data, &appears);
        let timeout = context.partition_request_timeout;
        match opened.map_err(|refusal| wire_error::encode(channel, refusal))? {
            Some(view) => self.open(&request, view),
            None if timeout.is_zero() || self.waiting.is_full() => {
                context.partitions.forget(request.partition, &appears);
                Err(not_found(channel, format!("partition {} is not here", request.partition)))
            }
            None => {
                let deadline = now + timeout;
                let (events, buffer_size) = (Vec::new(), None);
                let waiting = WaitingRequest { request, deadline, appears, events, buffer_size };
                self.waiting.add(waiting);
                Ok(())
            }
        }
    }

    fn open(&mut self, request: &PartitionRequest, view: Arc<dyn View>) -> Result<(), Frame> {
        let channel = request.channel;
        let Available { next, .. } = view.look().unwrap_or(Available::NOTHING);
        let (generation, initial_credit) = (request.generation, request.initial_credit);
        let reader = Reader { view, generation, initial_credit };
        if self.queue.open(channel, initial_credit, reader).is_err() {
            return Err(not_found(channel, format!("channel {channel} is open already")));
        }
        self.queue.notify(channel, next);
        Ok(())
    }

    /// Opens the channel of a waiting request, whose partition now exists.
    pub(crate) fn on_created(
        &mut self,
        channel: ChannelId,
        context: &Context,
        now: Instant,
        outbox: &mut Outbox,
    ) {
        let Some(waited) = self.waiting.remove(channel) else { return };
        let WaitingRequest { request, events, buffer_size, .. } = waited;
        self.request(request, context, now, outbox);
        if let Some(size) = buffer_size {
            self.set_buffer_size(channel, size);
        }
        for event in events {
            self.task_event(channel, &event, outbox);
        }
    }

    /// Returns the bytes of task events kept for partitions that have not appeared.
    pub(crate) fn event_bytes(&self) -> usize {
        self.waiting.event_bytes()
    }

    /// Returns the deadline of the next waiting request.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.waiting.deadline()
    }

    /// Refuses the requests whose deadline has passed.
    pub(crate) fn expire(&mut self, now: Instant, outbox: &mut Outbox) {
        for request in self.waiting.expired(now) {
            let detail = format!("partition {} is not here", request.partition);
            outbox.push_frame(&not_found(request.channel, detail));
        }
    }

    /// Handles the notification of a subpartition that has data or failed.
    pub(crate) fn on_data(&mut self, channel: ChannelId, outbox: &mut Outbox) {
        let Some(Reader { view, .. }) = self.queue.view(channel) else {
            return;
        };
        match view.look() {
            Ok(Available { next, backlog }) => {
                self.queue.notify(channel, next);
                self.announce_backlog(channel, next, backlog, outbox);
            }
            Err(refusal) => {
                outbox.push_frame(&wire_error::encode(channel, refusal));
                self.queue.cancel(channel);
            }
        }
    }

    /// Announces the backlog to a consumer whose channel has no buffers of its own.
    fn announce_backlog(&self, channel: ChannelId, next: Next, backlog: u32, outbox: &mut Outbox) {
        if self.queue.announces_backlog(channel, next)
            && let Some(backlog) = NonZeroU32::new(backlog)
        {
            outbox.push_frame(&Frame::BacklogAnnouncement { backlog, channel });
        }
    }

    /// Fills the outbox with one buffer of each available channel in turn.
    pub(crate) fn pump(&mut self, outbox: &mut Outbox) {
        while !outbox.is_full() {
            let Some(channel) = self.queue.poll() else {
                return;
            };
            let reader = self.queue.view(channel).expect("polled channels are open");
            let (view, generation) = (&reader.view, reader.generation);
            match view.poll() {
                Ok(Some(polled)) if polled.buffer.plain_len() > self.max_segment => {
                    let (size, limit) = (polled.buffer.plain_len(), self.max_segment);
                    let cause = ConnectionError::BufferTooLarge { size, limit };
                    outbox.push_frame(&wire_error::encode(channel, failed(cause.to_string())));
                    // The consumer drops the channel without cancelling it, so its loss is reported here.
                    if let Some(reader) = self.queue.cancel(channel) {
                        reader.view.consumer_lost(&cause);
                    }
                }
                Ok(Some(polled)) => {
                    let (next, is_event) = (polled.next, polled.data_type.is_event());
                    if polled.data_type == headgate_protocol::DataType::EndOfPartition {
                        fail_point!("end.sent");
                    } else {
                        fail_point!("page.sent");
                    }
                    push_buffer(outbox, self.lending.as_mut(), channel, generation, polled);
                    self.queue
                        .sent(channel, is_event, next)
                        .expect("the queue offers channels with credit or an event only");
                    self.on_credit(channel);
                }
                Ok(None) => {
                    self.queue
                        .not_sent(channel, Next::None)
                        .expect("polled channels are open and in turn");
                }
                Err(refusal) => {
                    outbox.push_frame(&wire_error::encode(channel, refusal));
                    self.queue.cancel(channel);
                }
            }
        }
    }

    /// Returns true once the consumer has said goodbye.
    pub(crate) fn has_goodbye(&self) -> bool {
        self.goodbye
    }

    /// Ends all channels: their consumer is done after a goodbye, and lost without one.
    pub(crate) fn disconnected(&mut self, cause: &ConnectionError) {
        self.waiting.clear();
        for (_, Reader { view, .. }) in self.queue.drain() {
            if self.goodbye {
                view.consumed();
            } else {
                view.consumer_lost(cause);
            }
        }
    }

    /// Returns the buffers that the consumer may still read after the connection has ended.
    pub(crate) fn outstanding(&mut self) -> Option<Outstanding> {
        self.lending.take()?.into_outstanding()
    }

    /// Returns true if requests wait for their partition.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns true if a channel has pages and no credit.
    pub(crate) fn lacks_credit(&self) -> bool {
        self.queue.num_starved() > 0
    }

    /// Returns true if no channel is open.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }
}

fn not_found(channel: ChannelId, text: String) -> Frame {
    fail_point!("partition.not_found");
    wire_error::encode(channel, Refusal { reason: Reason::PartitionNotFound, text })
}

fn failed(text: String) -> Refusal {
    Refusal { reason: Reason::ProducerFailed, text }
}
