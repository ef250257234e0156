//! What waits to be written to one connection.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use bytes::Bytes;
use headgate_memory::Buffer;
use headgate_protocol::{ChannelId, Frame, FrameMask, TaskEventHeader};

use crate::checksum;

/// Pieces per vectored write.
const MAX_SLICES: usize = 64;
/// With this much waiting, nothing more is taken from the subpartitions.
const HIGH_WATER: usize = 1 << 20;

/// More of a consumer's messages than this means that its producer does not read.
const MESSAGE_LIMIT: usize = 16 << 20;

/// What a consumer sends: a frame, or a task event with its payload.
#[derive(Debug)]
pub(crate) enum Message {
    Frame(Frame),
    TaskEvent { channel: ChannelId, payload: Bytes },
}

enum Piece {
    Head(Vec<u8>),
    Body(Buffer),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Head(bytes) => bytes,
            Self::Body(buffer) => buffer.as_slice(),
        }
    }
}

/// Frames in order; bodies stay in their segments until the kernel has them.
#[derive(Default)]
pub(crate) struct Outbox {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that are written already.
    written: usize,
    bytes: usize,
    /// Of the connection, once the handshake is done.
    pub(crate) mask: FrameMask,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= HIGH_WATER
    }

    pub(crate) fn push(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.bytes += bytes.len();
            self.pieces.push_back(Piece::Head(bytes));
        }
    }

    pub(crate) fn push_frame(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.encode(self.mask, &mut bytes);
        self.push(bytes);
    }

    /// Whether the peer takes so little that no further task event should wait for it.
    pub(crate) fn is_congested(&self) -> bool {
        self.bytes >= MESSAGE_LIMIT
    }

    pub(crate) fn push_message(&mut self, message: &Message) {
        match message {
            Message::Frame(frame) => self.push_frame(frame),
            Message::TaskEvent { channel, payload } => {
                let size = u32::try_from(payload.len()).expect("an event fits a segment");
                let mut header = TaskEventHeader { channel: *channel, size, crc: 0 };
                header.crc = self.mask.apply(checksum::of_task_event(&header, payload));
                self.push(header.encode().to_vec());
                self.push_body(Buffer::from(payload.clone()));
            }
        }
    }

    pub(crate) fn push_body(&mut self, body: Buffer) {
        if !body.is_empty() {
            self.bytes += body.len();
            self.pieces.push_back(Piece::Body(body));
        }
    }

    /// Writes what the socket takes; returns how much that was.
    pub(crate) fn write_to(&mut self, socket: &mut impl Write) -> io::Result<usize> {
        let mut total = 0;
        while !self.pieces.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let mut used = 0;
            for piece in self.pieces.iter().take(MAX_SLICES) {
                let skip = if used == 0 { self.written } else { 0 };
                slices[used] = IoSlice::new(&piece.bytes()[skip..]);
                used += 1;
            }
            match socket.write_vectored(&slices[..used]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    total += count;
                    self.advance(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    fn advance(&mut self, count: usize) {
        self.bytes -= count;
        self.written += count;
        while let Some(first) = self.pieces.front() {
            let len = first.bytes().len();
            if self.written < len {
                break;
            }
            self.written -= len;
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `quota` bytes, then blocks.
    struct Narrow {
        taken: Vec<u8>,
        quota: usize,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.quota == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let count = bytes.len().min(self.quota);
            self.taken.extend_from_slice(&bytes[..count]);
            self.quota -= count;
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn partial_writes_at_every_offset_keep_the_order() {
        let all = b"headerpayloadtail";
        for cut in 0..=all.len() {
            let mut outbox = Outbox::default();
            outbox.push(b"header".to_vec());
            outbox.push_body(Buffer::from(Bytes::from_static(b"payload")));
            outbox.push(b"tail".to_vec());
            let mut socket = Narrow { taken: Vec::new(), quota: cut };
            assert_eq!(outbox.write_to(&mut socket).expect("blocks only"), cut);
            assert_eq!(outbox.is_empty(), cut == all.len());
            socket.quota = all.len();
            outbox.write_to(&mut socket).expect("blocks only");
            assert_eq!(socket.taken, all);
        }
    }
}
