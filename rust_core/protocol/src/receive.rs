//! The consumer's half of a channel.

use thiserror::Error;

use crate::{
    BufferHeader, ChannelId, DataType, Generation, NoCredit, ReceiveLedger, Sequence, Totals,
};

/// Checks what arrives on one channel and keeps its credit and totals.
///
/// Order of calls: [`on_buffer`](Self::on_buffer) for each buffer header;
/// [`on_compressed`](Self::on_compressed) for the payload of a compressed one;
/// [`on_end`](Self::on_end) for the payload of the end-of-partition event. The channel keeps its
/// free buffers until its ledger is closed.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ReceiveChannel {
    channel: ChannelId,
    generation: Generation,
    /// Number of the next buffer.
    expected: Sequence,
    ledger: ReceiveLedger,
    /// Data that arrived. `rows` stays 0: only the reader of the pages counts rows.
    received: Totals,
    ended: bool,
    declared: Option<Totals>,
}

impl ReceiveChannel {
    /// Creates a channel whose request announces the credit of `ledger`.
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

    /// Checks the header of a buffer. Data spends a credit and fills one free buffer of the channel,
    /// even without payload; an event uses memory of its own. After an error, which changes nothing,
    /// the payload must be discarded.
    pub fn on_buffer(&mut self, header: &BufferHeader) -> Result<(), ReceiveError> {
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
        if header.data_type.is_buffer() {
            let spent = self.ledger.on_spent();
            spent.map_err(|source| ReceiveError::Credit { channel, source })?;
            if !header.compressed {
                self.received.add_buffer(header.size);
            }
        }
        self.expected = self.expected.next();
        self.ledger.on_backlog(header.backlog);
        if header.data_type == DataType::EndOfPartition {
            self.ended = true;
            self.ledger.stop();
        }
        Ok(())
    }

    /// Counts a compressed buffer by its length after decompression, which its payload contains.
    pub fn on_compressed(&mut self, plain_len: u32) {
        self.received.add_buffer(plain_len);
    }

    /// Compares the totals of the end-of-partition event with what arrived.
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
            if got != declared {
                return Err(ReceiveError::Totals { channel, what, got, declared });
            }
        }
        self.declared = Some(declared);
        Ok(())
    }

    /// The channel's id.
    #[must_use]
    pub const fn channel(&self) -> ChannelId {
        self.channel
    }

    /// The generation that its buffers carry.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Free buffers and credit.
    #[must_use]
    pub const fn ledger(&self) -> &ReceiveLedger {
        &self.ledger
    }

    /// Free buffers and credit, for the driver to update.
    #[must_use]
    pub const fn ledger_mut(&mut self) -> &mut ReceiveLedger {
        &mut self.ledger
    }

    /// Data buffers that arrived.
    #[must_use]
    pub const fn buffers(&self) -> u64 {
        self.received.buffers
    }

    /// Bytes of the data buffers that arrived, after decompression.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.received.bytes
    }

    /// Returns true once the end of the partition arrived.
    #[must_use]
    pub const fn ended(&self) -> bool {
        self.ended
    }

    /// The producer's totals, once they were found equal to what arrived.
    #[must_use]
    pub const fn declared(&self) -> Option<Totals> {
        self.declared
    }
}

/// A buffer that its channel refuses.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum ReceiveError {
    /// A buffer after the end of the partition.
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
        /// The ledger's error.
        source: NoCredit,
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
    /// Totals before the end of the partition.
    #[error("channel {channel} has not ended")]
    NotEnded {
        /// The channel.
        channel: ChannelId,
    },
    /// A buffer is missing, duplicated or out of order.
    #[error("channel {channel} expects buffer {want}, buffer {got} arrived")]
    Sequence {
        /// The channel.
        channel: ChannelId,
        /// Number of the buffer.
        got: Sequence,
        /// Number of the next buffer in order.
        want: Sequence,
    },
    /// The channel received less or more than its producer sent.
    #[error("channel {channel} received {got} {what}, its producer sent {declared}")]
    Totals {
        /// The channel.
        channel: ChannelId,
        /// The unit that was counted.
        what: &'static str,
        /// Received units.
        got: u64,
        /// Sent units.
        declared: u64,
    },
}
