//! The producer's end of a connection: serves subpartitions by turns, as credit allows (spec 9.4).

use std::sync::Arc;

use headgate_protocol::{
    BufferHeader, ChannelId, Frame, Generation, Next, PartitionRequest, SendQueue,
};

use crate::error::{ExchangeError, Result};
use crate::net::outbox::Outbox;
use crate::net::{Command, Context, Mailbox, wire_error};
use crate::view::{DataListener, Polled, SubpartitionView};

struct Reader {
    view: Arc<dyn SubpartitionView>,
    generation: Generation,
}

/// Tells the I/O thread that a subpartition it serves has something.
struct ToMailbox {
    mailbox: Arc<Mailbox>,
    connection: usize,
    channel: ChannelId,
}

impl DataListener for ToMailbox {
    fn data_available(&self) {
        let (connection, channel) = (self.connection, self.channel);
        self.mailbox.post(Command::Data { connection, channel });
    }
}

pub(crate) struct Serve {
    connection: usize,
    queue: SendQueue<Reader>,
    /// What the consumer's segments hold.
    max_segment: usize,
    /// The consumer said that it needs nothing more.
    pub(crate) goodbye: bool,
}

impl Serve {
    pub(crate) fn new(connection: usize, max_segment: u32) -> Self {
        let max_segment = max_segment as usize;
        Self { connection, queue: SendQueue::new(), max_segment, goodbye: false }
    }

    pub(crate) fn handle(
        &mut self,
        frame: Frame,
        context: &Context,
        outbox: &mut Outbox,
    ) -> Result<(), String> {
        match frame {
            Frame::PartitionRequest(request) => {
                if let Err(refusal) = self.open(&request, context) {
                    outbox.push_frame(&refusal);
                }
            }
            Frame::AddCredit { credit, channel } => {
                // Cancels and credits of one channel may cross: then it is simply gone.
                let Some(reader) = self.queue.view(channel) else {
                    return Ok(());
                };
                fail_point!("credit.granted", error => return Err(error.to_string()));
                let next = reader.view.availability();
                self.queue.grant(channel, credit, next).map_err(|error| error.to_string())?;
            }
            Frame::CancelPartitionRequest { channel } => {
                fail_point!("end.acknowledged", error => return Err(error.to_string()));
                if let Some(reader) = self.queue.cancel(channel) {
                    reader.view.consumed();
                }
            }
            Frame::CloseRequest => self.goodbye = true,
            Frame::Buffer(_) | Frame::Error(_) => {
                return Err("a producer's frame from a consumer".to_owned());
            }
        }
        Ok(())
    }

    fn open(&mut self, request: &PartitionRequest, context: &Context) -> Result<(), Frame> {
        let channel = request.channel;
        fail_point!("partition.requested", error => return Err(wire_error::encode(channel, &error)));
        let refuse = |detail: String| {
            fail_point!("partition.not_found");
            let peer = String::new();
            wire_error::encode(channel, &ExchangeError::PartitionNotFound { peer, detail })
        };
        let partition = context
            .partitions
            .find(request.partition)
            .ok_or_else(|| refuse(format!("partition {} is not here", request.partition)))?;
        let expected = (request.schema_hash != [0; 32]).then_some(request.schema_hash);
        if let (Some(written), Some(expected)) = (partition.schema_hash(), expected)
            && written != expected
        {
            return Err(wire_error::schema_mismatch(channel));
        }
        let listener = ToMailbox {
            mailbox: Arc::clone(&context.mailbox),
            connection: self.connection,
            channel,
        };
        fail_point!("partition.found", error => return Err(wire_error::encode(channel, &error)));
        let view = partition
            .create_view(request.subpartition as usize, Arc::new(listener))
            .map_err(|error| wire_error::encode(channel, &error))?;
        let next = view.availability();
        let reader = Reader { view, generation: request.generation };
        if self.queue.open(channel, request.initial_credit.get(), reader).is_err() {
            return Err(refuse(format!("channel {channel} is open already")));
        }
        self.queue.notify(channel, next);
        Ok(())
    }

    /// A subpartition has something, or failed.
    pub(crate) fn on_data(&mut self, channel: ChannelId, outbox: &mut Outbox) {
        let Some(Reader { view, .. }) = self.queue.view(channel) else {
            return;
        };
        let end = match view.failure() {
            Some(failure) => Some(failure),
            None if view.is_released() => Some(closed_early()),
            None => None,
        };
        if let Some(cause) = end {
            outbox.push_frame(&wire_error::encode(channel, &cause));
            self.queue.cancel(channel);
            return;
        }
        let next = view.availability();
        self.queue.notify(channel, next);
    }

    /// Fills the outbox, one buffer of each available channel in turn.
    pub(crate) fn pump(&mut self, outbox: &mut Outbox) {
        while !outbox.is_full() {
            let Some(channel) = self.queue.poll() else {
                return;
            };
            let reader = self.queue.view(channel).expect("polled channels are open");
            let (view, generation) = (&reader.view, reader.generation);
            match view.poll() {
                Ok(Some(polled)) if polled.buffer.len() > self.max_segment => {
                    let (size, limit) = (polled.buffer.len(), self.max_segment);
                    let cause = ExchangeError::BufferTooLarge { size, limit };
                    outbox.push_frame(&wire_error::encode(channel, &cause));
                    // It reads no more of it, and knows the channel no more: nobody else would say so.
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
                    push_buffer(outbox, channel, generation, polled);
                    self.queue
                        .sent(channel, is_event, next)
                        .expect("the queue offers channels with credit or an event only");
                }
                Ok(None) => {
                    self.queue
                        .not_sent(channel, Next::None)
                        .expect("polled channels are open and in turn");
                }
                Err(cause) => {
                    outbox.push_frame(&wire_error::encode(channel, &cause));
                    self.queue.cancel(channel);
                }
            }
        }
    }

    /// The connection is gone; what was not taken to its end has lost its consumer.
    pub(crate) fn disconnected(&mut self, cause: &ExchangeError) {
        for (_, Reader { view, .. }) in self.queue.drain() {
            if self.goodbye {
                view.consumed();
            } else {
                view.consumer_lost(cause);
            }
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }
}

fn closed_early() -> ExchangeError {
    ExchangeError::Aborted("the producer closed its partition before the end".to_owned())
}

fn push_buffer(outbox: &mut Outbox, channel: ChannelId, generation: Generation, polled: Polled) {
    let Polled { buffer, data_type, backlog, sequence, .. } = polled;
    let size = u32::try_from(buffer.len()).expect("a buffer fits a segment");
    let mut header =
        BufferHeader { channel, generation, sequence, backlog, data_type, size, crc: 0 };
    header.crc = outbox.mask.apply(crate::checksum::of(&header, buffer.as_slice()));
    outbox.push(header.encode().to_vec());
    outbox.push_body(buffer);
}
