//! Harm to the frames of a connection: one frame is lost, damaged, doubled, cut short, or overtaken.

use std::collections::VecDeque;
use std::fmt;

use headgate_protocol::DataType;

/// Position of the data type in the frame of a buffer.
const DATA_TYPE_AT: usize = 25;

/// A kind of harm to one frame.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Harm {
    /// The next frame overtakes it.
    Overtaken,
    /// The connection ends within it.
    CutShort,
    /// One bit of it is flipped.
    Damaged,
    Doubled,
    Lost,
}

/// A harm that waits for its frame.
#[derive(Clone, Copy)]
pub(super) struct Armed {
    pub(super) harm: Harm,
    /// The kind of frame that it waits for; any if None.
    pub(super) kind: Option<FrameKind>,
    /// Chooses the bit or the length.
    pub(super) dice: u64,
}

/// The kind of a frame, or of a message of the handshake.
#[derive(Clone, Copy, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum FrameKind {
    Frame(u8),
    Handshake(u8),
}

impl FrameKind {
    pub(super) const BUFFER: Self = Self::Frame(0);
    pub(super) const HELLO: Self = Self::Handshake(1);
    /// A buffer that holds the end of a partition. No frame has this id on the wire.
    pub(super) const END: Self = Self::Frame(11);
}

impl fmt::Display for FrameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FRAMES: [&str; 17] = [
            "buffer",
            "error",
            "partition request",
            "task event",
            "cancel",
            "close request",
            "add credit",
            "resume",
            "acknowledgement",
            "backlog",
            "buffer size",
            "end of partition",
            "heartbeat",
            "lease",
            "region",
            "lent buffer",
            "return",
        ];
        const MESSAGES: [&str; 6] = ["", "hello", "challenge", "proof", "accept", "reject"];
        f.pad(match self {
            Self::Frame(id) => FRAMES[usize::from(*id)],
            Self::Handshake(id) => MESSAGES[usize::from(*id)],
        })
    }
}

/// Cuts the bytes that one end writes into frames, and does harm to one of them.
#[derive(Default)]
pub(super) struct Frames {
    /// The bytes of a frame whose head is incomplete, or that waits for its end.
    held: Vec<u8>,
    /// Bytes to come of a frame that passes.
    left: usize,
    armed: Option<Armed>,
    /// A frame that the next one overtakes.
    overtaken: Option<(FrameKind, Vec<u8>)>,
    /// True once the connection was cut within a frame.
    pub(super) is_cut: bool,
}

impl Frames {
    /// Passes bytes on. Takes the armed harm for the first frame of its kind; returns the kind of the
    /// frame once the harm is done.
    pub(super) fn pass(
        &mut self,
        mut bytes: &[u8],
        armed: &mut Option<Armed>,
        out: &mut VecDeque<u8>,
    ) -> Option<FrameKind> {
        let mut struck = None;
        while let (Some((first, rest)), false) = (bytes.split_first(), self.is_cut) {
            if self.left > 0 {
                let (now, rest) = bytes.split_at(self.left.min(bytes.len()));
                out.extend(now);
                self.left -= now.len();
                bytes = rest;
                continue;
            }
            self.held.push(*first);
            bytes = rest;
            let Some((kind, len)) = head(&self.held) else { continue };
            if self.armed.is_none() && self.overtaken.is_none() {
                self.armed = armed.take_if(|one| one.kind.is_none_or(|wanted| wanted == kind));
                if self.armed.is_none() {
                    self.left = len - self.held.len();
                    out.extend(self.held.drain(..));
                    continue;
                }
            }
            if self.held.len() == len {
                struck = self.complete(kind, out).or(struck);
            }
        }
        struck
    }

    fn complete(&mut self, kind: FrameKind, out: &mut VecDeque<u8>) -> Option<FrameKind> {
        let mut frame = std::mem::take(&mut self.held);
        let kind = match kind {
            FrameKind::BUFFER if frame[DATA_TYPE_AT] == DataType::EndOfPartition as u8 => {
                FrameKind::END
            }
            kind => kind,
        };
        if let Some((kind, first)) = self.overtaken.take() {
            out.extend(frame);
            out.extend(first);
            return Some(kind);
        }
        let Armed { harm, dice, .. } = self.armed.take().expect("only a harmed frame is held");
        match harm {
            Harm::Overtaken => {
                self.overtaken = Some((kind, frame));
                return None;
            }
            Harm::CutShort => {
                out.extend(&frame[..(dice % frame.len() as u64) as usize]);
                self.is_cut = true;
            }
            Harm::Damaged => {
                let bit = (dice % (8 * frame.len() as u64)) as usize;
                frame[bit / 8] ^= 1 << (bit % 8);
                out.extend(frame);
            }
            Harm::Doubled => {
                out.extend(&frame);
                out.extend(frame);
            }
            Harm::Lost => {}
        }
        Some(kind)
    }

    /// Lets a frame pass that no other one overtakes.
    pub(super) fn release(&mut self, out: &mut VecDeque<u8>) -> bool {
        let Some((_, frame)) = self.overtaken.take() else { return false };
        out.extend(frame);
        out.extend(self.held.drain(..));
        true
    }
}

/// Returns the kind and the length of the frame or message that begins with these bytes, if they say it.
fn head(bytes: &[u8]) -> Option<(FrameKind, usize)> {
    if bytes.first_chunk() == Some(b"HDGT") {
        let kind = *bytes.get(4)?;
        let len = [0, 86, 91, 37, 5, 10][usize::from(kind)];
        return Some((FrameKind::Handshake(kind), len));
    }
    let length = u32::from_be_bytes(*bytes.first_chunk()?);
    Some((FrameKind::Frame(*bytes.get(8)?), length as usize))
}
