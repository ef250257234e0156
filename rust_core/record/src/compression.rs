//! The compressed form of a buffer (spec 2.1, 9.2).
//!
//! Decision: ADR 0016.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 1 | id of the [`Codec`] |
//! | 1 | 4 | uncompressed length, big-endian |
//! | 5 | | an LZ4 block, or a Zstandard frame |
//!
//! The compressed form is always shorter than the uncompressed bytes: otherwise the buffer stays
//! uncompressed.

use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};
use thiserror::Error;

/// Bytes of codec and length before the block.
const HEADER_LEN: usize = 5;
/// The fastest regular level: compression delays each buffer.
const ZSTD_LEVEL: i32 = 1;

/// Compression method; the discriminant is its id in the compressed form.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Codec {
    /// LZ4 blocks: faster.
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
    /// Created for the first buffer.
    Zstd(Option<zstd::bulk::Compressor<'static>>),
}

/// Compresses buffers, each independently of the others.
pub struct Compressor {
    encoder: Encoder,
    scratch: Vec<u8>,
}

impl Compressor {
    /// Creates a compressor; its tables are allocated with the first buffer.
    #[must_use]
    pub fn new(codec: Codec) -> Self {
        let encoder = match codec {
            Codec::Lz4 => Encoder::Lz4(CompressTable::default()),
            Codec::Zstd => Encoder::Zstd(None),
        };
        Self { encoder, scratch: Vec::new() }
    }

    /// Replaces the bytes by their compressed form and returns its length. Returns `None` and
    /// leaves the bytes alone if the compressed form would not be shorter.
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
                // zstd returns an error if the compressed form needs more room than the bytes have.
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

/// Decompresses buffers of a peer, whose bytes are not trusted.
#[derive(Default)]
pub struct Decompressor {
    /// Created for the first frame.
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl Decompressor {
    /// Decompresses to the start of `target` and returns the length. After an error the content of
    /// `target` is unspecified.
    ///
    /// # Errors
    /// [`DecompressError`]. The declared length is checked against `target` before any
    /// decompression.
    pub fn decompress(&mut self, form: &[u8], target: &mut [u8]) -> Result<usize, DecompressError> {
        let (codec, want, block) = parse(form, target.len())?;
        let target = &mut target[..want];
        // A block can make its decoder copy bytes that it never wrote: clear old content first.
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

/// Returns the uncompressed length that a compressed form declares.
///
/// # Errors
/// The codec or the length is missing, or the length is 0 or above `limit`.
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

/// The bytes are not a valid compressed form.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum DecompressError {
    /// The block is invalid for its codec, or longer than declared.
    #[error("its {codec:?} block is damaged: {detail}")]
    Damaged {
        /// Codec of the block.
        codec: Codec,
        /// Message of the codec's library.
        detail: String,
    },
    /// The block is shorter than declared.
    #[error("it says that it stands for {want} bytes, its block has {got}")]
    Length {
        /// Decompressed bytes.
        got: usize,
        /// Declared bytes.
        want: usize,
    },
    /// The declared length is 0 or exceeds the limit.
    #[error("it says that it stands for {length} bytes, 1 to {limit} fit")]
    PlainLength {
        /// Declared bytes.
        length: u32,
        /// Maximum bytes.
        limit: usize,
    },
    /// The codec or the length is missing.
    #[error("{length} bytes are too few for a compressed buffer")]
    TooShort {
        /// Length in bytes.
        length: usize,
    },
    /// The codec is unknown.
    #[error("codec {id} is neither 1 nor 2")]
    UnknownCodec {
        /// Id of the codec.
        id: u8,
    },
}
