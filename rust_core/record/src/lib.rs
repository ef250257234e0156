//! The content of buffers: records, Arrow pages and events, and the choice of a subpartition for
//! each row.
//!
//! The crate writes into `&mut [u8]` and reads from [`bytes::Bytes`], without pools, sockets and
//! clocks. A partition id is the number of a subpartition. The path of a batch through it:
//!
//! ```text
//! RecordBatch -- Selector --> one partition id per row -- Scatter --> row numbers by partition
//!      \--------- Source -----------------------------------------------\
//!                                                                        PageBuilder --> page bytes
//! page bytes -- read_page --> RecordBatch over the same bytes
//! ```
//!
//! A row that does not fit a page becomes a page of its own on the heap ([`page::encode_rows`]),
//! which is sent as a length-prefixed record through [`spanning`]. Records of bytes use
//! [`spanning`] too. A complete buffer of either kind can be compressed ([`compression`]).

#![forbid(unsafe_code)]

mod bounds;
pub mod compression;
pub mod event;
pub mod hash;
pub mod key_group;
pub mod page;
pub mod scatter;
pub mod selector;
pub mod spanning;

pub use bounds::{OutOfBounds, check_bounds};
pub use compression::{Codec, Compressor, DecompressError, Decompressor};
pub use event::{Event, EventError, StopMode};
pub use hash::{HashError, partition_ids};
pub use page::{
    BatchCoalescer, CoalesceError, EncodeError, PageBuilder, PageError, PageProfile, PageSchema,
    PageStats, PiecedPage, Pieces, Source, SourceError, UnsupportedType, encode_rows, encoded_len,
    is_page_aligned, read_page, read_pieces,
};
pub use scatter::{PartitionOutOfRange, Scatter};
pub use selector::{SelectError, Selection, Selector};
pub use spanning::{
    DeserializationResult, DeserializeError, InMemory, SerializationResult, SpanningDeserializer,
    SpanningError, SpanningSerializer, SpillStore,
};
