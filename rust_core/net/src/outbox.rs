//! The frames to write to one connection.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytes::Bytes;
use headgate_memory::{Buffer, Chunks, RegionFile};
use headgate_protocol::{ChannelId, Frame, FrameMask, TaskEventHeader};

use crate::checksum;
use crate::link::Stream;

/// Most slices of one vectored write.
const MAX_SLICES: usize = 64;
/// Bytes in the outbox from which on no buffer is taken from the subpartitions.
const HIGH_WATER: usize = 1 << 20;

/// Bytes of a consumer's messages from which on its producer counts as not reading.
const MESSAGE_LIMIT: usize = 16 << 20;
/// Most bytes of frames without payload that may wait for a peer to read them.
const FRAMES_LIMIT: usize = 8 << 20;
/// Bytes of a piece from which on the next small frame begins another piece.
const PIECE: usize = 3 << 10;

/// A consumer's message: a frame, or a task event with its payload.
#[derive(Debug)]
pub(crate) enum Message {
    Frame(Frame),
    TaskEvent { channel: ChannelId, payload: Bytes },
}

/// A descriptor that travels with a frame to a process of this host.
pub(crate) enum Descriptor {
    Lease(OwnedFd),
    Region(RegionFile),
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Lease(descriptor) => descriptor.as_fd(),
            Self::Region(file) => file.as_fd(),
        }
    }
}

enum Piece {
    Head(Vec<u8>),
    Body(Buffer),
    With(Vec<u8>, Descriptor),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Head(bytes) | Self::With(bytes, _) => bytes.len(),
            Self::Body(buffer) => buffer.len(),
        }
    }

    fn chunks(&self) -> Chunks<'_> {
        match self {
            Self::Head(bytes) | Self::With(bytes, _) => Chunks::One(Some(bytes)),
            Self::Body(buffer) => buffer.chunks(),
        }
    }
}

/// Frames in the order they are sent. Bodies stay in their segments until the kernel has taken them.
#[derive(Default)]
pub(crate) struct Outbox {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that have been written.
    written: usize,
    bytes: usize,
    /// Bytes of the frames in the pieces, payloads apart.
    frames: usize,
    /// The mask of the connection's checksums, set after the handshake.
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
            self.count_frames(bytes.len());
            self.pieces.push_back(Piece::Head(bytes));
        }
    }

    /// Adds a small frame. It shares a piece with those before it, since a peer decides how many wait.
    pub(crate) fn push_frame(&mut self, frame: &Frame) {
        match self.pieces.back_mut() {
            Some(Piece::Head(bytes)) if bytes.len() < PIECE => {
                let before = bytes.len();
                frame.encode(self.mask, bytes);
                let added = bytes.len() - before;
                self.count_frames(added);
            }
            _ => {
                let mut bytes = Vec::new();
                frame.encode(self.mask, &mut bytes);
                self.push(bytes);
            }
        }
    }

    fn count_frames(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.frames += bytes;
    }

    /// Returns the bytes of frames, without payloads, that the peer has not read.
    pub(crate) fn unread(&self) -> usize {
        self.frames
    }

    /// Returns an error for a peer that sends more and more and does not read the answers.
    pub(crate) fn check_read(&self) -> Result<(), String> {
        if self.frames <= FRAMES_LIMIT {
            return Ok(());
        }
        let waiting = self.frames;
        Err(format!(
            "it does not read: {waiting} bytes of frames wait for it, at most {FRAMES_LIMIT} may"
        ))
    }

    /// Adds a frame; the descriptor travels with its first byte.
    pub(crate) fn push_with(&mut self, frame: &Frame, descriptor: Descriptor) {
        let mut bytes = Vec::new();
        frame.encode(self.mask, &mut bytes);
        self.count_frames(bytes.len());
        self.pieces.push_back(Piece::With(bytes, descriptor));
    }

    /// Returns true if the peer reads so slowly that no further task event may be queued.
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

    /// Writes as much as the socket takes; returns the number of bytes written.
    pub(crate) fn write_to(&mut self, socket: &mut impl Stream) -> io::Result<usize> {
        let mut total = 0;
        while !self.pieces.is_empty() {
            match self.write_once(socket) {
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

    /// Makes one system call; a frame with a descriptor gets a call of its own.
    fn write_once(&self, socket: &mut impl Stream) -> io::Result<usize> {
        if let (Some(Piece::With(bytes, descriptor)), 0) = (self.pieces.front(), self.written) {
            return socket.write_with(bytes, descriptor.as_fd());
        }
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let (mut used, mut skip) = (0, self.written);
        'full: for piece in &self.pieces {
            if used > 0 && matches!(piece, Piece::With(..)) {
                break;
            }
            for chunk in piece.chunks() {
                if skip >= chunk.len() {
                    skip -= chunk.len();
                    continue;
                }
                if used == MAX_SLICES {
                    break 'full;
                }
                slices[used] = IoSlice::new(&chunk[skip..]);
                (used, skip) = (used + 1, 0);
            }
        }
        socket.write_vectored(&slices[..used])
    }

    fn advance(&mut self, count: usize) {
        self.bytes -= count;
        self.written += count;
        while let Some(first) = self.pieces.front() {
            let len = first.len();
            if self.written < len {
                break;
            }
            self.written -= len;
            if !matches!(first, Piece::Body(_)) {
                self.frames -= len;
            }
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::Arc;

    use headgate_memory::Charge;

    use super::*;

    /// A socket that takes `quota` bytes, then blocks.
    struct Narrow {
        taken: Vec<u8>,
        quota: usize,
    }

    impl Stream for Narrow {}

    impl Read for Narrow {
        fn read(&mut self, _bytes: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::WouldBlock.into())
        }
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

    fn in_pieces(pieces: &[&'static [u8]]) -> Buffer {
        let pieces = pieces.iter().map(|piece| Bytes::from_static(piece)).collect();
        Buffer::of_pieces(pieces, Arc::new(Charge::new(Vec::new())), Arc::default())
    }

    #[test]
    fn more_pieces_than_a_write_takes_are_all_written() {
        let mut outbox = Outbox::default();
        outbox.push_body(in_pieces(&[&b"ab"[..]; 3 * MAX_SLICES + 1]));
        outbox.push_body(in_pieces(&[&b"c"[..]; MAX_SLICES]));
        let mut socket = Narrow { taken: Vec::new(), quota: usize::MAX };
        outbox.write_to(&mut socket).expect("blocks never");
        assert!(outbox.is_empty());
        assert_eq!(
            socket.taken,
            [&b"ab".repeat(3 * MAX_SLICES + 1)[..], &b"c".repeat(MAX_SLICES)].concat()
        );
    }

    #[test]
    fn partial_writes_at_every_offset_keep_the_order() {
        let all = b"headerpayload in piecestail";
        for cut in 0..=all.len() {
            let mut outbox = Outbox::default();
            outbox.push(b"header".to_vec());
            outbox.push_body(Buffer::from(Bytes::from_static(b"payload")));
            outbox.push_body(in_pieces(&[b" in ", b"", b"pie", b"ces"]));
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
