//! A channel whose producer has ended: reads a kept subpartition from its file, without copy and
//! without credit.
//!
//! Decision: ADR 0022.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use arrow_buffer::{Buffer as ArrowBuffer, MutableBuffer};
use bytes::Bytes;
use headgate_memory::{Buffer, MappedFile};
use headgate_protocol::{DataType, KeptBlock, KeptIndex, Sequence, Totals, crc32c};

use crate::aligned::Aligned;
use crate::error::{ExchangeError, Result};
use crate::gate::channel::{InputChannel, More, Taken, UpstreamMessage, totals_of};
use crate::gate::local::compare_totals;
use crate::gate::queue::GateQueue;
use crate::lock::lock;
use crate::metrics::Passed;
use crate::stats::{ChannelStats, Origin, Queued};

/// Blocks of one subpartition that lie so close together in the file are mapped as one.
const NEAR: u64 = 64 << 10;

/// The place of the buffers.
enum Place {
    /// In these bytes, which followed the index.
    Inline(Bytes),
    File(PathBuf),
}

#[derive(Default)]
struct State {
    /// Number of the block that the next call takes.
    next: usize,
    /// The part of the file that holds the last block that was read; `None` if the buffers are not
    /// in a file, or the kernel could not map it.
    mapped: Option<Arc<MappedFile>>,
    sequence: Sequence,
    taken: Totals,
}

/// The consumer's end of a kept subpartition.
pub(crate) struct KeptChannel {
    name: String,
    blocks: Vec<KeptBlock>,
    /// Bytes of all its data buffers.
    bytes: u64,
    place: Place,
    state: Mutex<State>,
    queue: Arc<GateQueue>,
    index: usize,
    failure: OnceLock<ExchangeError>,
    released: AtomicBool,
}

impl KeptChannel {
    /// Creates a channel that reads the buffers of a [`KeptIndex`] from this file, or from the bytes
    /// behind the index. The file is opened when the first buffer is taken.
    ///
    /// # Errors
    /// [`ExchangeError::Integrity`]: the bytes are no index.
    pub(crate) fn new(
        kept: &[u8],
        file: Option<PathBuf>,
        queue: &Arc<GateQueue>,
        index: usize,
    ) -> Result<Self> {
        let name = match &file {
            Some(path) => format!("kept channel {index} of {}", path.display()),
            None => format!("kept channel {index}"),
        };
        let (KeptIndex(blocks), end) = KeptIndex::decode(kept).map_err(|error| {
            ExchangeError::Integrity { channel: name.clone(), detail: error.to_string() }
        })?;
        let data = blocks.iter().filter(|block| block.data_type.is_buffer());
        Ok(Self {
            bytes: data.map(|block| u64::from(block.len)).sum(),
            name,
            blocks,
            place: file.map_or_else(|| Place::Inline(aligned(&kept[end..])), Place::File),
            state: Mutex::default(),
            queue: Arc::clone(queue),
            index,
            failure: OnceLock::new(),
            released: AtomicBool::new(false),
        })
    }

    /// Announces to the gate what there is to read.
    pub(crate) fn announce(&self) {
        self.queue.notify_non_empty(self.index);
    }

    fn fail(&self, cause: ExchangeError) {
        if !self.released.load(Ordering::Acquire) {
            self.failure.get_or_init(|| cause);
            self.announce();
        }
    }

    fn damaged(&self, detail: String) -> ExchangeError {
        ExchangeError::Integrity { channel: self.name.clone(), detail }
    }

    /// Returns the bytes of a block, whose checksum is right.
    fn read(&self, state: &mut State, block: &KeptBlock) -> Result<Bytes> {
        let bytes = match &self.place {
            Place::Inline(behind) => slice(behind, block).ok_or_else(|| {
                let (len, offset, all) = (block.len, block.offset, behind.len());
                self.damaged(format!("{len} bytes at offset {offset} exceed the {all} there are"))
            })?,
            Place::File(path) => {
                let io = |source: io::Error| ExchangeError::KeptFile {
                    path: path.display().to_string(),
                    source: Arc::new(source),
                };
                let mapped = state.mapped.as_ref().and_then(|mapped| in_mapping(mapped, block));
                match mapped {
                    Some(bytes) => bytes,
                    None => {
                        self.read_file(state, &File::open(path).map_err(io)?, block).map_err(io)?
                    }
                }
            }
        };
        let crc = crc32c(&bytes);
        if crc == block.crc {
            return Ok(bytes);
        }
        let KeptBlock { len, offset, crc: written, .. } = block;
        Err(self.damaged(format!(
            "{len} bytes at offset {offset} have checksum {crc:#x}, and {written:#x} was written"
        )))
    }

    /// Maps the block and those of this subpartition that lie behind it. If the process has no room
    /// for a mapping, reads the block alone into ordinary memory.
    fn read_file(&self, state: &mut State, file: &File, block: &KeptBlock) -> io::Result<Bytes> {
        // The last mapping makes room first, unless a batch still uses it.
        state.mapped = None;
        let mut to = block.offset + u64::from(block.len);
        for next in &self.blocks[state.next + 1..] {
            if next.offset < to || next.offset - to > NEAR {
                break;
            }
            to = next.offset + u64::from(next.len);
        }
        match MappedFile::open(file, block.offset, to) {
            Ok(mapped) => {
                let bytes = in_mapping(&mapped, block).ok_or(io::ErrorKind::UnexpectedEof)?;
                state.mapped = Some(mapped);
                Ok(bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
                let mut bytes = MutableBuffer::from_len_zeroed(block.len as usize);
                file.read_exact_at(&mut bytes, block.offset)?;
                Ok(Bytes::from_owner(Aligned(bytes.into())))
            }
            Err(error) => Err(error),
        }
    }
}

/// Copies bytes to where pages can be read in place.
fn aligned(bytes: &[u8]) -> Bytes {
    Bytes::from_owner(Aligned(ArrowBuffer::from_slice_ref(bytes)))
}

fn slice(bytes: &Bytes, block: &KeptBlock) -> Option<Bytes> {
    let from = usize::try_from(block.offset).ok()?;
    let to = from.checked_add(block.len as usize).filter(|to| *to <= bytes.len())?;
    Some(bytes.slice(from..to))
}

fn in_mapping(mapped: &Arc<MappedFile>, block: &KeptBlock) -> Option<Bytes> {
    mapped.bytes(block.offset, block.len as usize)
}

impl InputChannel for KeptChannel {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_local(&self) -> bool {
        true
    }

    fn take(&self) -> Result<Option<Taken>> {
        if let Some(failure) = self.failure.get() {
            return Err(failure.clone());
        }
        if self.released.load(Ordering::Acquire) {
            return Ok(None);
        }
        let mut state = lock(&self.state);
        let Some(block) = self.blocks.get(state.next) else {
            return Err(self.damaged("the index ends before the subpartition does".to_owned()));
        };
        let bytes = self.read(&mut state, block)?;
        let mut totals = None;
        if block.data_type.is_buffer() {
            state.taken.add_buffer(block.plain_len.unwrap_or(block.len));
        } else if block.data_type == DataType::EndOfPartition {
            let sent = totals_of(&bytes, &self.name)?;
            compare_totals(&state.taken, &sent, &self.name)?;
            totals = Some(sent);
        }
        let buffer = match block.plain_len {
            Some(plain_len) => Buffer::of_compressed(bytes, plain_len as usize),
            None => Buffer::from(bytes),
        };
        let sequence = state.sequence;
        state.sequence = sequence.next();
        state.next += 1;
        let more = if totals.is_some() { More::Nothing } else { More::Something };
        Ok(Some(Taken { buffer, data_type: block.data_type, sequence, totals, more }))
    }

    fn tell(&self, message: UpstreamMessage) {
        if matches!(message, UpstreamMessage::TaskEvent(_)) {
            let text = "the producer of a kept partition has ended".to_owned();
            self.fail(ExchangeError::TaskEvent(text));
        }
    }

    /// Always an error: kept partitions have no barriers.
    fn resume(&self) -> Result<()> {
        Err(ExchangeError::State("the channel is not blocked by a barrier"))
    }

    /// Always false, as above.
    fn convert_to_priority(&self, _sequence: Sequence) -> bool {
        false
    }

    fn buffers_in_use(&self) -> usize {
        self.blocks.len() - lock(&self.state).next
    }

    fn stats(&self) -> ChannelStats {
        let state = lock(&self.state);
        let is_open = !self.released.load(Ordering::Acquire);
        let left = if is_open { self.blocks.len() - state.next } else { 0 };
        let waiting = if is_open { self.bytes.saturating_sub(state.taken.bytes) } else { 0 };
        ChannelStats {
            name: self.name.clone(),
            origin: Origin::Local,
            queue: Queued { buffers: left, bytes: waiting },
            taken: Passed { bytes: state.taken.bytes, buffers: state.taken.buffers },
            ..ChannelStats::default()
        }
    }

    fn release(&self) {
        self.released.store(true, Ordering::Release);
        lock(&self.state).mapped = None;
    }
}
