//! What is in the buffers of an exchange: records, Arrow pages, events, and which row goes where.
//!
//! The crate works on `&mut [u8]` targets and [`bytes::Bytes`] sources and knows no pool, no socket
//! and no clock. The way of a batch through it:
//!
//! ```text
//! RecordBatch -- Selector --> one partition id per row -- Scatter --> row numbers by partition
//!      \--------- Source -----------------------------------------------\
//!                                                                        PageBuilder --> page bytes
//! page bytes -- read_page --> RecordBatch over the same bytes
//! ```
//!
//! A row that is wider than a page becomes a page of its own on the heap ([`page::encode_rows`]) and
//! travels as a length-prefixed record through [`spanning`]; so do bytes records. A complete buffer of
//! either kind may be put into a smaller form ([`compression`]).

#![forbid(unsafe_code)]

pub mod compression;
pub mod event;
pub mod hash;
pub mod key_group;
pub mod page;
pub mod random;
pub mod scatter;
pub mod selector;
pub mod spanning;

pub use compression::{Codec, Compressor, DecompressError, Decompressor};
pub use event::{Event, EventError, StopMode};
pub use hash::{HashError, partition_ids};
pub use page::{
    BatchCoalescer, CoalesceError, EncodeError, PageBuilder, PageError, PageProfile, PageSchema,
    PageStats, PiecedPage, Pieces, Source, SourceError, UnsupportedType, encode_rows, encoded_len,
    is_page_aligned, read_page, read_pieces,
};
pub use random::SplitMix64;
pub use scatter::{PartitionOutOfRange, Scatter};
pub use selector::{SelectError, Selection, Selector};
pub use spanning::{
    DeserializationResult, DeserializeError, InMemory, SerializationResult, SpanningDeserializer,
    SpanningError, SpanningSerializer, SpillStore,
};
