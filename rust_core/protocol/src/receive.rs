//! The consumer's half of a channel.

use thiserror::Error;

use crate::{
    BufferHeader, BufferKind, ChannelId, DataType, Generation, LedgerError, ReceiveLedger,
    Sequence, Totals,
};

/// Checks what arrives on one channel and keeps its credit and totals.
///
/// Order of calls: [`on_buffer`](Self::on_buffer) per buffer header, with the payload of a compressed one
/// [`on_compressed`](Self::on_compressed), [`on_end`](Self::on_end) with what the end-of-partition event says, then
/// [`check_rows`](Self::check_rows) by whoever read the rows. A channel that ended keeps its free
/// buffers until its ledger is closed.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ReceiveChannel {
    channel: ChannelId,
    generation: Generation,
    expected: Sequence,
    ledger: ReceiveLedger,
    received: Totals,
    ended: bool,
    declared: Option<Totals>,
}

impl ReceiveChannel {
    /// A channel that is requested with what this ledger has announced.
    #[must_use]
    pub const fn new(channel: ChannelId, generation: Generation, ledger: ReceiveLedger) -> Self {
        Self {
            channel,
            generation,
            expected: Sequence(0),
            ledger,
            received: Totals { rows: 0, bytes: 0, buffers: 0 },
            ended: false,
            declared: None,
        }
    }

    /// A buffer header arrived; says where its payload goes. An error changes nothing, and the
    /// payload is to be discarded.
    pub fn on_buffer(&mut self, header: &BufferHeader) -> Result<Arrival, ReceiveError> {
        let channel = self.channel;
        if header.generation != self.generation {
            let (got, want) = (header.generation, self.generation);
            return Err(ReceiveError::Generation { channel, got, want });
        }
        if self.ended {
            return Err(ReceiveError::AfterEnd { channel, sequence: header.sequence });
        }
        if header.sequence != self.expected {
            let (got, want) = (header.sequence, self.expected);
            return Err(ReceiveError::Sequence { channel, got, want });
        }
        let buffer = if header.data_type.is_buffer() {
            let kind = self.ledger.on_spent();
            let kind = kind.map_err(|source| ReceiveError::Credit { channel, source })?;
            if !header.compressed {
                self.received.add_buffer(header.size);
            }
            Some(kind)
        } else {
            None
        };
        self.expected = self.expected.next();
        self.ended = header.data_type == DataType::EndOfPartition;
        Ok(Arrival { buffer, floating_wanted: self.ledger.on_backlog(header.backlog) })
    }

    /// The payload of a compressed buffer says how many bytes it stands for: it counts as these.
    pub fn on_compressed(&mut self, plain_len: u32) {
        self.received.add_buffer(plain_len);
    }

    /// The end-of-partition event was read: compares what it declares with what arrived.
    pub fn on_end(&mut self, declared: Totals) -> Result<(), ReceiveError> {
        let channel = self.channel;
        if !self.ended {
            return Err(ReceiveError::NotEnded { channel });
        }
        let pairs = [
            ("buffers", self.received.buffers, declared.buffers),
            ("bytes", self.received.bytes, declared.bytes),
        ];
        for (what, got, declared) in pairs {
            compare(channel, what, got, declared)?;
        }
        self.declared = Some(declared);
        Ok(())
    }

    /// All rows were read: compares their number with what the producer declared.
    pub fn check_rows(&self, rows: u64) -> Result<(), ReceiveError> {
        let channel = self.channel;
        let declared = self.declared.ok_or(ReceiveError::NotEnded { channel })?;
        compare(channel, "rows", rows, declared.rows)
    }

    /// The channel's name.
    #[must_use]
    pub const fn channel(&self) -> ChannelId {
        self.channel
    }

    /// The generation its buffers carry.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Free buffers and credit.
    #[must_use]
    pub const fn ledger(&self) -> &ReceiveLedger {
        &self.ledger
    }

    /// Free buffers and credit, to tell them what the driver does.
    #[must_use]
    pub const fn ledger_mut(&mut self) -> &mut ReceiveLedger {
        &mut self.ledger
    }

    /// Data buffers that arrived.
    #[must_use]
    pub const fn buffers(&self) -> u64 {
        self.received.buffers
    }

    /// Bytes that the data buffers stand for which arrived.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.received.bytes
    }

    /// Whether the end of the partition arrived.
    #[must_use]
    pub const fn ended(&self) -> bool {
        self.ended
    }

    /// What the producer declared, once it was compared with what arrived.
    #[must_use]
    pub const fn declared(&self) -> Option<Totals> {
        self.declared
    }
}

fn compare(
    channel: ChannelId,
    what: &'static str,
    got: u64,
    declared: u64,
) -> Result<(), ReceiveError> {
    if got == declared {
        Ok(())
    } else {
        Err(ReceiveError::Totals { channel, what, got, declared })
    }
}

/// What to do with a buffer that arrives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Arrival {
    /// Data: which free buffer of the channel to fill. An event is `None`: it takes memory of its
    /// own. A data buffer without payload is recycled at once.
    pub buffer: Option<BufferKind>,
    /// Floating buffers to take from the pool for this channel.
    pub floating_wanted: u32,
}

/// A buffer that does not belong where it arrived.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum ReceiveError {
    /// A buffer behind the end of the partition.
    #[error("buffer {sequence} arrived on channel {channel} after the end of its partition")]
    AfterEnd {
        /// The channel.
        channel: ChannelId,
        /// Number of the buffer.
        sequence: Sequence,
    },
    /// Data without credit.
    #[error("channel {channel}: {source}")]
    Credit {
        /// The channel.
        channel: ChannelId,
        /// What the ledger says.
        source: LedgerError,
    },
    /// A buffer of another attempt.
    #[error("channel {channel} reads generation {want}, a buffer of generation {got} arrived")]
    Generation {
        /// The channel.
        channel: ChannelId,
        /// Generation of the buffer.
        got: Generation,
        /// Generation of the channel.
        want: Generation,
    },
    /// Totals before the end.
    #[error("channel {channel} has not ended")]
    NotEnded {
        /// The channel.
        channel: ChannelId,
    },
    /// A buffer is missing, doubled or out of order.
    #[error("channel {channel} expects buffer {want}, buffer {got} arrived")]
    Sequence {
        /// The channel.
        channel: ChannelId,
        /// Number of the buffer.
        got: Sequence,
        /// Number that was due.
        want: Sequence,
    },
    /// Not what the producer says it sent.
    #[error("channel {channel} received {got} {what}, its producer sent {declared}")]
    Totals {
        /// The channel.
        channel: ChannelId,
        /// What was counted.
        what: &'static str,
        /// How much arrived.
        got: u64,
        /// How much was sent.
        declared: u64,
    },
}
