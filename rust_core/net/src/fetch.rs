//! The consumer's end of a connection: receives payloads straight into credited segments (spec 9.5).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use headgate_memory::Buffer;
use headgate_protocol::{BufferHeader, ChannelId, DataType, Frame, LentBuffer};
use headgate_trace::{Event, Kind, record};

use crate::borrowing::Borrowing;
use crate::channel::{Channel, Target};
use crate::checksum::Checksum;
use crate::error::{ConnectionError, Result};
use crate::events::UnreadEvents;
use crate::outbox::Outbox;
use crate::wire_error;

/// A buffer whose header arrived and whose payload is still arriving.
struct Incoming {
    header: BufferHeader,
    target: Target,
    filled: usize,
    checksum: Checksum,
}

impl Incoming {
    fn missing(&self) -> usize {
        self.header.size as usize - self.filled
    }
}

#[derive(Default)]
pub(crate) struct Fetch {
    channels: HashMap<ChannelId, Arc<dyn Channel>>,
    incoming: Option<Incoming>,
    events: UnreadEvents,
    /// The memory that the producer lends, if it is on this host.
    pub(crate) borrowing: Option<Borrowing>,
}

impl Fetch {
    pub(crate) fn open(&mut self, channel: Arc<dyn Channel>) {
        self.channels.insert(channel.id(), channel);
    }

    pub(crate) fn contains(&self, channel: ChannelId) -> bool {
        self.channels.contains_key(&channel)
    }

    pub(crate) fn close(&mut self, channel: ChannelId) -> bool {
        self.channels.remove(&channel).is_some()
    }

    /// Handles a frame and the descriptor that came with it. The payload of a buffer follows.
    pub(crate) fn handle(
        &mut self,
        frame: Frame,
        descriptor: Option<OwnedFd>,
        peer: SocketAddr,
        outbox: &mut Outbox,
    ) -> Result<()> {
        match frame {
            Frame::Buffer(header) => self.begin(header, peer),
            Frame::Error(error) => {
                let cause = |name: &str| wire_error::decode(&error, name);
                match error.channel() {
                    Some(channel) if wire_error::is_refused_event(&error) => {
                        // The producer keeps sending until the channel is cancelled.
                        if let Some(channel) = self.channels.get(&channel) {
                            channel.fail(cause(channel.name()));
                        }
                        Ok(())
                    }
                    Some(channel) => {
                        if let Some(channel) = self.channels.remove(&channel) {
                            channel.fail(cause(channel.name()));
                        }
                        Ok(())
                    }
                    None => Err(cause(&format!("producer {peer}"))),
                }
            }
            Frame::BacklogAnnouncement { backlog, channel } => {
                record(Kind::Net, || Event::Backlog { channel: channel.0, buffers: backlog.get() });
                if let Some(channel) = self.channels.get(&channel) {
                    channel.on_backlog(backlog);
                }
                Ok(())
            }
            Frame::Heartbeat => Ok(()),
            Frame::Lease | Frame::Region { .. } | Frame::LentBuffer(_) => {
                let Some(borrowing) = &mut self.borrowing else {
                    return Err(refused(
                        peer,
                        "it lends memory on a connection that cannot share any".to_owned(),
                    ));
                };
                let taken = match frame {
                    Frame::Lease => borrowing.begin(descriptor),
                    Frame::Region { region, size } => borrowing.add(region, size, descriptor),
                    Frame::LentBuffer(lent) => return self.borrow(&lent, peer, outbox),
                    _ => unreachable!("matched above"),
                };
                taken.map_err(|detail| refused(peer, detail))
            }
            _ => Err(refused(peer, "a consumer's frame from a producer".to_owned())),
        }
    }

    /// Borrows a buffer; returns it at once if its channel does not read any more.
    fn borrow(&self, lent: &LentBuffer, peer: SocketAddr, outbox: &mut Outbox) -> Result<()> {
        let header = lent.header();
        fail_point!("buffer.lent", text => return Err(ConnectionError::Aborted(text)));
        let found = self.channels.get(&header.channel);
        let target = found.map_or(Ok(Target::Discard), |channel| channel.begin(&header))?;
        let (Some(channel), Target::Segment(segment)) = (found, target) else {
            outbox.push_frame(&Frame::Return { loan: lent.loan });
            return Ok(());
        };
        let borrowing = self.borrowing.as_ref().expect("checked by the caller");
        let buffer = borrowing.borrow(lent, segment).map_err(|detail| refused(peer, detail))?;
        fail_point!("buffer.borrowed", text => return Err(ConnectionError::Aborted(text)));
        channel.deliver(buffer, header.data_type, header.sequence)
    }

    fn begin(&mut self, header: BufferHeader, peer: SocketAddr) -> Result<()> {
        fail_point!("page.announced", text => return Err(ConnectionError::Aborted(text)));
        let target = match self.channels.get(&header.channel) {
            // The channel was released here, and the producer has not learned of it yet.
            None => Target::Discard,
            Some(channel) => {
                if header.data_type.is_event() {
                    self.events.check(&header, peer)?;
                }
                channel.begin(&header)?
            }
        };
        let checksum = Checksum::start(&header);
        self.incoming = Some(Incoming { header, target, filled: 0, checksum });
        Ok(())
    }

    /// Returns the room into which the next payload bytes can be read.
    pub(crate) fn space(&mut self) -> Option<&mut [u8]> {
        let Incoming { header, target, filled, .. } = self.incoming.as_mut()?;
        let range = *filled..header.size as usize;
        match target {
            Target::Segment(segment) => segment.get_mut(range),
            Target::Event(bytes) => bytes.get_mut(range),
            Target::Discard => None,
        }
        .filter(|space| !space.is_empty())
    }

    /// Records that `count` bytes were read into [`space`](Self::space).
    pub(crate) fn filled(&mut self, count: usize) {
        let Some(incoming) = self.incoming.as_mut() else {
            return;
        };
        let range = incoming.filled..incoming.filled + count;
        match &incoming.target {
            Target::Segment(segment) => incoming.checksum.update(&segment[range]),
            Target::Event(bytes) => incoming.checksum.update(&bytes[range]),
            Target::Discard => {}
        }
        incoming.filled += count;
    }

    /// Takes payload bytes off the input.
    pub(crate) fn take_payload(&mut self, input: &mut &[u8]) {
        let Some(incoming) = self.incoming.as_mut() else {
            return;
        };
        let count = incoming.missing().min(input.len());
        let (now, rest) = input.split_at(count);
        match &mut incoming.target {
            Target::Segment(segment) => {
                segment[incoming.filled..incoming.filled + count].copy_from_slice(now);
            }
            Target::Event(bytes) => {
                bytes[incoming.filled..incoming.filled + count].copy_from_slice(now);
            }
            Target::Discard => {}
        }
        incoming.checksum.update(now);
        incoming.filled += count;
        *input = rest;
    }

    /// Returns true if payload bytes are due next.
    pub(crate) fn is_mid_payload(&self) -> bool {
        self.incoming.is_some()
    }

    /// Delivers the buffer once its payload is complete; acknowledges the end of a partition.
    pub(crate) fn complete(&mut self, outbox: &mut Outbox) -> Result<()> {
        if self.incoming.as_ref().is_none_or(|incoming| incoming.missing() > 0) {
            return Ok(());
        }
        let Some(incoming) = self.incoming.take() else {
            return Ok(());
        };
        let header = incoming.header;
        let channel = self.channels.get(&header.channel).cloned();
        if outbox.mask.apply(incoming.checksum.value()) != header.crc {
            let name = channel.map_or_else(
                || format!("channel {}", header.channel),
                |channel| channel.name().to_owned(),
            );
            return Err(ConnectionError::Integrity {
                channel: name,
                detail: format!("checksum of buffer {} is wrong", header.sequence),
            });
        }
        let Some(channel) = channel else {
            return Ok(());
        };
        let size = header.size as usize;
        let buffer = match incoming.target {
            Target::Segment(segment) if header.compressed => {
                match channel.freeze_compressed(segment, size, header.sequence) {
                    Some(buffer) => buffer,
                    // The frame itself is intact, so the other channels go on.
                    None => return Ok(()),
                }
            }
            Target::Segment(segment) => Buffer::freeze(segment, size),
            Target::Event(bytes) => self.events.count(bytes, &header),
            Target::Discard => return Ok(()),
        };
        fail_point!("page.received", text => return Err(ConnectionError::Aborted(text)));
        channel.deliver(buffer, header.data_type, header.sequence)?;
        if header.data_type == DataType::EndOfPartition {
            fail_point!("end.received", text => return Err(ConnectionError::Aborted(text)));
            self.channels.remove(&header.channel);
            outbox.push_frame(&Frame::CancelPartitionRequest { channel: header.channel });
        }
        Ok(())
    }

    /// Fails every open channel with this cause. A channel whose own bytes were right names itself,
    /// and says which one's were not.
    pub(crate) fn disconnected(&mut self, cause: &ConnectionError) {
        self.incoming = None;
        for (_, channel) in self.channels.drain() {
            channel.fail(match cause {
                ConnectionError::Integrity { channel: damaged, .. }
                    if damaged != channel.name() =>
                {
                    let detail = format!("its connection ended: {cause}");
                    ConnectionError::Integrity { channel: channel.name().to_owned(), detail }
                }
                cause => cause.clone(),
            });
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.channels.is_empty()
    }
}

fn refused(peer: SocketAddr, detail: String) -> ConnectionError {
    ConnectionError::Protocol { peer: format!("producer {peer}"), detail }
}
