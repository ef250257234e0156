//! The consumer's messages to one producer process (spec 9.5).

use std::sync::Arc;

use headgate_protocol::{Frame, PartitionRequest};
use headgate_trace::{Event, Kind, record};

use crate::borrowing::Borrowing;
use crate::channel::{Channel, UpstreamMessage};
use crate::error::ConnectionError;
use crate::fetch::Fetch;
use crate::outbox::{Message, Outbox};

/// Opens channels on a connection and sends their messages upstream.
#[derive(Default)]
pub(crate) struct PartitionRequestClient {
    /// The open channels and the buffers they receive.
    pub(super) fetch: Fetch,
    /// Messages queued until the producer has proved itself.
    unsent: Vec<Message>,
    /// True once the producer has proved itself.
    proved: bool,
}

impl PartitionRequestClient {
    /// The handshake is done: sends the queued messages.
    pub(super) fn proved(&mut self, borrowing: Option<Borrowing>, outbox: &mut Outbox) {
        self.proved = true;
        self.fetch.borrowing = borrowing;
        for message in self.unsent.drain(..) {
            outbox.push_message(&message);
        }
    }

    /// Requests a subpartition for a channel.
    pub(crate) fn open(
        &mut self,
        channel: Arc<dyn Channel>,
        request: PartitionRequest,
        outbox: &mut Outbox,
    ) {
        self.fetch.open(channel);
        self.send(Message::Frame(Frame::PartitionRequest(request)), outbox);
    }

    /// Announces all credit that the channel has gathered.
    pub(crate) fn announce(&mut self, channel: &dyn Channel, outbox: &mut Outbox) {
        if let Some(credit) = channel.take_credit() {
            record(Kind::Net, || Event::Granted { channel: channel.id().0, credits: credit.get() });
            let frame = Frame::AddCredit { credit, channel: channel.id() };
            self.send(Message::Frame(frame), outbox);
        }
    }

    /// Closes a channel and tells its producer, unless the channel has ended already.
    pub(crate) fn cancel(&mut self, channel: &dyn Channel, outbox: &mut Outbox) {
        let channel = channel.id();
        if self.fetch.close(channel) {
            self.send(Message::Frame(Frame::CancelPartitionRequest { channel }), outbox);
        }
    }

    /// Lets the producer send what follows a barrier.
    pub(crate) fn resume(&mut self, channel: &dyn Channel, outbox: &mut Outbox) {
        if self.fetch.contains(channel.id()) {
            let frame = Frame::ResumeConsumption { channel: channel.id() };
            self.send(Message::Frame(frame), outbox);
            channel.resumed();
            self.announce(channel, outbox);
        }
    }

    /// Sends a message to the producer of a channel, unless the channel has ended.
    pub(crate) fn tell(
        &mut self,
        channel: &dyn Channel,
        message: UpstreamMessage,
        outbox: &mut Outbox,
    ) {
        let id = channel.id();
        if !self.fetch.contains(id) {
            return;
        }
        let message = match message {
            UpstreamMessage::TaskEvent(_) if outbox.is_congested() => {
                let name = channel.name();
                let detail = format!("cannot send a task event: the producer of {name} reads none");
                channel.fail(ConnectionError::TaskEvent(detail));
                return;
            }
            UpstreamMessage::TaskEvent(payload) => Message::TaskEvent { channel: id, payload },
            UpstreamMessage::BufferSize(size) => {
                Message::Frame(Frame::NewBufferSize { size, channel: id })
            }
            UpstreamMessage::Acknowledge => {
                Message::Frame(Frame::AckAllUserRecordsProcessed { channel: id })
            }
        };
        self.send(message, outbox);
    }

    fn send(&mut self, message: Message, outbox: &mut Outbox) {
        if self.proved {
            outbox.push_message(&message);
        } else {
            self.unsent.push(message);
        }
    }
}
