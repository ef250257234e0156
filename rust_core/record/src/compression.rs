//! The compressed form of a buffer: which codec, how many bytes it stands for, one block (spec 2.1, 9.2).
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 1 | id of the [`Codec`] |
//! | 1 | 4 | length of the plain form, big-endian |
//! | 5 | | an LZ4 block, or a Zstandard frame |
//!
//! It is always shorter than the plain form: what does not become shorter stays as it is.
//!
//! Decision: ADR 0016.

use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};
use thiserror::Error;

/// Codec and length, ahead of the block, in bytes.
const HEADER_LEN: usize = 5;
/// The quickest of its ordinary levels: buffers are many, and on their way.
const ZSTD_LEVEL: i32 = 1;

/// How bytes are compressed; the discriminant is its id in the compressed form.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Codec {
    /// LZ4 blocks: quick.
    Lz4 = 1,
    /// Zstandard frames: smaller.
    Zstd = 2,
}

impl TryFrom<u8> for Codec {
    type Error = DecompressError;

    fn try_from(id: u8) -> Result<Self, DecompressError> {
        match id {
            1 => Ok(Self::Lz4),
            2 => Ok(Self::Zstd),
            _ => Err(DecompressError::UnknownCodec { id }),
        }
    }
}

enum Encoder {
    Lz4(CompressTable),
    /// Made with the first buffer.
    Zstd(Option<zstd::bulk::Compressor<'static>>),
}

/// Compresses one buffer after the other, each by itself.
pub struct Compressor {
    encoder: Encoder,
    scratch: Vec<u8>,
}

impl Compressor {
    /// A compressor that holds no memory to speak of before its first buffer.
    #[must_use]
    pub fn new(codec: Codec) -> Self {
        let encoder = match codec {
            Codec::Lz4 => Encoder::Lz4(CompressTable::default()),
            Codec::Zstd => Encoder::Zstd(None),
        };
        Self { encoder, scratch: Vec::new() }
    }

    /// Puts the compressed form in the place of the bytes and returns its length; `None` leaves them as
    /// they are, because it would not be shorter.
    pub fn compress(&mut self, bytes: &mut [u8]) -> Option<usize> {
        let room = bytes.len().checked_sub(HEADER_LEN + 1)?;
        let plain_len = u32::try_from(bytes.len()).ok()?;
        let (codec, block) = match &mut self.encoder {
            Encoder::Lz4(table) => {
                let most = get_maximum_output_size(bytes.len());
                self.scratch.resize(self.scratch.len().max(most), 0);
                (Codec::Lz4, compress_into_with_table(bytes, &mut self.scratch, table).ok()?)
            }
            Encoder::Zstd(context) => {
                let context = match context {
                    Some(context) => context,
                    none => none.insert(zstd::bulk::Compressor::new(ZSTD_LEVEL).ok()?),
                };
                self.scratch.resize(self.scratch.len().max(room), 0);
                // It gives up, with an error, where it needs more room than the bytes have.
                (Codec::Zstd, context.compress_to_buffer(bytes, &mut self.scratch[..room]).ok()?)
            }
        };
        if block > room {
            return None;
        }
        bytes[0] = codec as u8;
        bytes[1..HEADER_LEN].copy_from_slice(&plain_len.to_be_bytes());
        bytes[HEADER_LEN..HEADER_LEN + block].copy_from_slice(&self.scratch[..block]);
        Some(HEADER_LEN + block)
    }
}

/// Takes compressed forms apart, trusting nothing.
#[derive(Default)]
pub struct Decompressor {
    /// Made with the first frame.
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Decompressor {
    /// Writes the plain form to the start of `target` and returns its length. After an error there is
    /// nothing in `target` to be read.
    ///
    /// # Errors
    /// [`DecompressError`]; the length is compared with the room in `target` before anything is done.
    pub fn decompress(&mut self, form: &[u8], target: &mut [u8]) -> Result<usize, DecompressError> {
        let (codec, want, block) = parse(form, target.len())?;
        let target = &mut target[..want];
        // A block may tell its decoder to repeat what it never wrote: there is nothing old to be found.
        target.fill(0);
        let damaged = |detail: String| DecompressError::Damaged { codec, detail };
        let got = match codec {
            Codec::Lz4 => decompress_into(block, target).map_err(|e| damaged(e.to_string()))?,
            Codec::Zstd => {
                let context = match &mut self.zstd {
                    Some(context) => context,
                    none => {
                        let made = zstd::bulk::Decompressor::new();
                        none.insert(made.map_err(|e| damaged(e.to_string()))?)
                    }
                };
                let written = context.decompress_to_buffer(block, target);
                written.map_err(|e| damaged(e.to_string()))?
            }
        };
        if got == want { Ok(got) } else { Err(DecompressError::Length { got, want }) }
    }
}

/// How many bytes a compressed form says that it stands for.
///
/// # Errors
/// No codec and length at its start, or a length of 0 or above `limit`.
pub fn plain_len(form: &[u8], limit: usize) -> Result<usize, DecompressError> {
    parse(form, limit).map(|(_, plain_len, _)| plain_len)
}

fn parse(form: &[u8], limit: usize) -> Result<(Codec, usize, &[u8]), DecompressError> {
    let Some(([id, length @ ..], block)) = form.split_first_chunk::<HEADER_LEN>() else {
        return Err(DecompressError::TooShort { length: form.len() });
    };
    let codec = Codec::try_from(*id)?;
    let length = u32::from_be_bytes(*length);
    match usize::try_from(length) {
        Ok(plain_len) if plain_len > 0 && plain_len <= limit => Ok((codec, plain_len, block)),
        _ => Err(DecompressError::PlainLength { length, limit }),
    }
}

/// Bytes that are no compressed form.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum DecompressError {
    /// The block is not one of its codec, or stands for more than is said.
    #[error("its {codec:?} block is damaged: {detail}")]
    Damaged {
        /// Which codec.
        codec: Codec,
        /// The words of its library.
        detail: String,
    },
    /// The block stands for less than is said.
    #[error("it says that it stands for {want} bytes, its block has {got}")]
    Length {
        /// Bytes that came out.
        got: usize,
        /// Bytes that were announced.
        want: usize,
    },
    /// A length that no buffer has.
    #[error("it says that it stands for {length} bytes, 1 to {limit} fit")]
    PlainLength {
        /// Bytes announced.
        length: u32,
        /// Bytes there is room for.
        limit: usize,
    },
    /// No codec and length.
    #[error("{length} bytes are too few for a compressed buffer")]
    TooShort {
        /// How many there are.
        length: usize,
    },
    /// A codec that does not exist.
    #[error("codec {id} is neither 1 nor 2")]
    UnknownCodec {
        /// The byte.
        id: u8,
    },
}
