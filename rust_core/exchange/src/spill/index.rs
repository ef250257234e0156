//! The index of a subpartition's blocks: their numbers, types and places. Does no I/O.

use std::collections::VecDeque;

use headgate_memory::Buffer;
use headgate_protocol::DataType;

use super::file::Extent;

/// The place of a block's bytes.
#[derive(Debug)]
pub(super) enum Place {
    /// In memory: not written yet, or being written.
    Memory(Buffer),
    /// In the file.
    Disk(Extent),
}

/// One buffer or event.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) place: Place,
    pub(super) data_type: DataType,
}

/// The blocks of one subpartition, in order, numbered from 0.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Number of the first block in `blocks`.
    first: u64,
    /// Blocks that were not taken. Those on disk come before those in memory.
    blocks: VecDeque<Block>,
    /// Data blocks that were ever added, events not counted.
    data: u64,
    /// Extents that nobody reads any more, to be discarded.
    spent: Vec<Extent>,
}

impl Index {
    pub(super) fn push(&mut self, buffer: Buffer, data_type: DataType) {
        self.data += u64::from(data_type.is_buffer());
        self.blocks.push_back(Block { place: Place::Memory(buffer), data_type });
    }

    pub(super) fn get(&self, number: u64) -> Option<&Block> {
        self.blocks.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Returns the number of data blocks that were ever added.
    pub(super) fn data(&self) -> u64 {
        self.data
    }

    /// Returns the blocks that are in memory, with their numbers.
    pub(super) fn in_memory(&self) -> Vec<(u64, Buffer)> {
        let is_in_memory = |block: &&Block| matches!(block.place, Place::Memory(_));
        let from = self.blocks.len() - self.blocks.iter().rev().take_while(is_in_memory).count();
        let numbered = (self.first + from as u64..).zip(self.blocks.range(from..));
        let buffer = |(number, block): (u64, &Block)| match &block.place {
            Place::Memory(buffer) => Some((number, buffer.clone())),
            Place::Disk(_) => None,
        };
        numbered.filter_map(buffer).collect()
    }

    /// Records that a block was written. Returns its buffer. If the block was taken meanwhile, its
    /// extent is spent and there is no buffer to return.
    pub(super) fn written(&mut self, number: u64, extent: Extent) -> Option<Buffer> {
        let at = number.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let Some(block) = at.and_then(|at| self.blocks.get_mut(at)) else {
            self.spend(extent);
            return None;
        };
        match std::mem::replace(&mut block.place, Place::Disk(extent)) {
            Place::Memory(buffer) => Some(buffer),
            Place::Disk(_) => None,
        }
    }

    /// Returns up to `count` blocks from `number` on that lie side by side in the file, with at most
    /// padding between them.
    pub(super) fn run(&self, number: u64, count: usize) -> Vec<(Extent, DataType)> {
        let mut run: Vec<(Extent, DataType)> = Vec::with_capacity(count);
        while run.len() < count {
            match self.get(number + run.len() as u64) {
                Some(Block { place: Place::Disk(extent), data_type })
                    if run.last().is_none_or(|(last, _)| last.padding_to(extent).is_some()) =>
                {
                    run.push((*extent, *data_type));
                }
                _ => break,
            }
        }
        run
    }

    /// Removes the blocks before `number`, which were taken. Returns them, to be dropped without a
    /// lock.
    pub(super) fn forget_before(&mut self, number: u64) -> Vec<Block> {
        let count = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let taken: Vec<_> = self.blocks.drain(..count.min(self.blocks.len())).collect();
        self.first += taken.len() as u64;
        for block in &taken {
            if let Place::Disk(extent) = block.place {
                self.spend(extent);
            }
        }
        taken
    }

    /// Removes all blocks.
    pub(super) fn clear(&mut self) -> Vec<Block> {
        self.forget_before(u64::MAX)
    }

    /// Returns each spent extent once, to be discarded.
    pub(super) fn take_spent(&mut self) -> Vec<Extent> {
        std::mem::take(&mut self.spent)
    }

    fn spend(&mut self, extent: Extent) {
        match self.spent.last_mut() {
            Some(last)
                if last.end() == extent.offset && last.len.checked_add(extent.len).is_some() =>
            {
                last.len += extent.len;
            }
            _ => self.spent.push(extent),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const DATA: DataType = DataType::DataBufferWithClearEnd;

    fn buffer(text: &'static str) -> Buffer {
        Buffer::from(Bytes::from_static(text.as_bytes()))
    }

    fn extent(offset: u64, len: u32) -> Extent {
        Extent { offset, len, crc: 0, plain_len: None }
    }

    fn three_written() -> Index {
        let mut index = Index::default();
        index.push(buffer("ab"), DATA);
        index.push(buffer("event"), DataType::EventBuffer);
        index.push(buffer("c"), DATA);
        let extents = [extent(10, 2), extent(12, 5), extent(100, 1)];
        for ((number, buffer), extent) in index.in_memory().into_iter().zip(extents) {
            assert_eq!(index.written(number, extent).unwrap().as_slice(), buffer.as_slice());
        }
        index
    }

    #[test]
    fn blocks_side_by_side_are_one_run() {
        let index = three_written();
        assert!(index.in_memory().is_empty());
        assert_eq!(index.data(), 2);
        assert_eq!(
            index.run(0, 4),
            [(extent(10, 2), DATA), (extent(12, 5), DataType::EventBuffer)]
        );
        assert_eq!(index.run(1, 1), [(extent(12, 5), DataType::EventBuffer)]);
        assert_eq!(index.run(2, 4), [(extent(100, 1), DATA)]);
        assert!(index.run(3, 4).is_empty());
    }

    #[test]
    fn a_run_ends_where_blocks_are_in_memory() {
        let mut index = three_written();
        index.push(buffer("d"), DATA);
        assert_eq!(index.run(2, 4).len(), 1);
        assert_eq!(index.in_memory().len(), 1);
        assert_eq!(index.in_memory()[0].0, 3);
    }

    #[test]
    fn removed_blocks_are_spent_once_and_numbers_stay() {
        let mut index = three_written();
        assert_eq!(index.forget_before(2).len(), 2);
        assert_eq!(index.take_spent(), [extent(10, 7)]);
        assert!(index.take_spent().is_empty());
        assert!(index.get(1).is_none());
        assert_eq!(index.get(2).unwrap().data_type, DATA);
        assert_eq!(index.clear().len(), 1);
        assert_eq!(index.take_spent(), [extent(100, 1)]);
        assert_eq!(index.data(), 2);
    }

    #[test]
    fn a_block_taken_during_its_write_is_spent() {
        let mut index = Index::default();
        index.push(buffer("ab"), DATA);
        let batch = index.in_memory();
        index.forget_before(1);
        assert!(index.written(batch[0].0, extent(0, 2)).is_none());
        assert_eq!(index.take_spent(), [extent(0, 2)]);
    }
}
