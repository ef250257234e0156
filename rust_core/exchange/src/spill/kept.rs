//! A blocking partition that outlives its process: its file gets a name, and each subpartition an
//! index.
//!
//! Decision: ADR 0022.

use std::io;
use std::path::Path;
use std::sync::Arc;

use headgate_memory::lock;
use headgate_protocol::{KeptBlock, KeptIndex};
use headgate_trace::{Event, Kind, record, text};

use super::file::SpillFile;
use super::index::Place;
use super::store::Store;
use crate::error::{ExchangeError, Result};
use crate::kept::with_room;

/// A finished blocking partition, ready to be handed to processes that come later.
pub struct KeptPartition {
    store: Arc<Store>,
    /// `None` if nothing was written.
    file: Option<Arc<SpillFile>>,
    indexes: Vec<KeptIndex>,
}

impl KeptPartition {
    /// # Errors
    /// [`ExchangeError::State`] if the partition is not finished.
    pub(crate) fn new(store: Arc<Store>) -> Result<Self> {
        if !store.is_complete() {
            return Err(ExchangeError::State("the partition is not finished"));
        }
        let indexes = store.lanes.iter().map(|lane| {
            let index = lock(&lane.index);
            let blocks = (0..).map_while(|number| index.get(number)).map(|block| {
                let Place::Disk(extent) = &block.place else {
                    return Err(ExchangeError::State("a buffer is not written"));
                };
                let (data_type, offset, len) = (block.data_type, extent.offset, extent.len);
                let (plain_len, crc) = (extent.plain_len, extent.crc);
                Ok(KeptBlock { data_type, offset, len, plain_len, crc })
            });
            blocks.collect::<Result<_>>().map(KeptIndex)
        });
        let indexes = indexes.collect::<Result<_>>()?;
        Ok(Self { file: store.file(), store, indexes })
    }

    /// Number of subpartitions.
    pub fn num_subpartitions(&self) -> usize {
        self.indexes.len()
    }

    /// Bytes of the data buffers of a subpartition, as they are on disk; 0 if it has no rows.
    pub fn bytes(&self, subpartition: usize) -> u64 {
        let blocks = self.indexes[subpartition].0.iter();
        let data = blocks.filter(|block| block.data_type.is_buffer());
        data.map(|block| u64::from(block.len)).sum()
    }

    /// Returns the index of a subpartition, for a consumer that reads the file.
    pub fn index(&self, subpartition: usize) -> Vec<u8> {
        self.indexes[subpartition].encode()
    }

    /// Returns the index of a subpartition, with its buffers behind it.
    ///
    /// # Errors
    /// A disk that cannot be read.
    pub fn inline(&self, subpartition: usize) -> Result<Vec<u8>> {
        let KeptIndex(blocks) = &self.indexes[subpartition];
        let (mut out, places) = with_room(blocks);
        for (block, place) in blocks.iter().zip(places) {
            let read = match &self.file {
                Some(file) => file.read(block.offset, &mut [&mut out[place]]),
                None => Err(io::ErrorKind::NotFound.into()),
            };
            let len = block.len as usize;
            read.map_err(|error| self.store.io("read", len, error))?;
        }
        Ok(out)
    }

    /// Gives the file a name, so that it outlives this process. Nobody writes it from now on.
    ///
    /// # Errors
    /// [`ExchangeError::KeptFile`]: the name exists, or the file system refuses it.
    pub fn link(&self, path: &Path) -> Result<()> {
        let linked = match &self.file {
            Some(file) => file.link(path),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        linked.map_err(|error| ExchangeError::KeptFile {
            path: path.display().to_string(),
            source: Arc::new(error),
        })?;
        record(Kind::Kept, || Event::Kept { file: text(path.display()) });
        Ok(())
    }
}
