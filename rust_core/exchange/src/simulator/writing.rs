//! The producer of one subpartition, which follows its script.

use std::sync::Arc;

use bytes::Bytes;
use headgate_memory::{Buffer, BufferBuilder, Charge};
use headgate_protocol::DataType;

use crate::partition::ResultPartition;
use crate::simulator::plan::{Item, Kind};

/// The progress of one subpartition's producer.
#[derive(Default)]
pub(super) struct Writing {
    /// Position of the next item in the script.
    pub(super) next: usize,
    open: Option<BufferBuilder>,
    pub(super) finished: bool,
}

impl Writing {
    /// Adds the next item, if it needs no segment or one is free; returns true if it did.
    pub(super) fn produce(
        &mut self,
        inner: &ResultPartition,
        script: &[Item],
        index: usize,
        flush: bool,
    ) -> bool {
        if self.finished || inner.check().is_err() {
            return false;
        }
        let subpartition = &inner.subpartitions()[index];
        let end = |open: &mut Option<BufferBuilder>| {
            if let Some(builder) = open.take() {
                inner.buffers().finish_growing(builder, index..index + 1);
            }
        };
        let Some(item) = script.get(self.next) else {
            end(&mut self.open);
            subpartition.finish();
            self.finished = true;
            return true;
        };
        let bytes = &item.bytes;
        match item.kind {
            Kind::Page => {
                let Ok(Some(mut segment)) = inner.segments().try_request(Some(index)) else {
                    return false;
                };
                end(&mut self.open);
                let plain = inner.buffers().leaves_plain(index..index + 1);
                let buffer = if plain && subpartition.takes_pieces() == Some(true) && bytes[0] < 128
                {
                    let (front, back) = bytes.split_at(bytes.len() / 3);
                    let pieces = [front, back].map(Bytes::copy_from_slice).to_vec();
                    let charge = Arc::new(Charge::new(vec![segment]));
                    Buffer::of_pieces(pieces, charge, Arc::clone(&inner.shared().foreign))
                } else {
                    segment[..bytes.len()].copy_from_slice(bytes);
                    inner.buffers().freeze(segment, bytes.len(), index..index + 1)
                };
                subpartition.add_data(buffer, DataType::DataBufferWithClearEnd, 1);
            }
            Kind::Stream => {
                if self.open.as_ref().is_none_or(|open| open.writable() < bytes.len()) {
                    let Ok(Some(segment)) = inner.segments().try_request(Some(index)) else {
                        return false;
                    };
                    end(&mut self.open);
                    let mut builder = BufferBuilder::new(segment);
                    builder.trim(subpartition.buffer_size().max(bytes.len()));
                    subpartition.add_growing(builder.consumer().expect("the first"));
                    self.open = Some(builder);
                }
                let open = self.open.as_mut().expect("made above");
                open.append(bytes);
                open.commit();
                subpartition.appended(1, flush);
            }
            Kind::Event => {
                end(&mut self.open);
                subpartition.add_event(bytes.clone().into(), DataType::EventBuffer);
            }
            Kind::Barrier | Kind::TimeoutableBarrier => {
                end(&mut self.open);
                let data_type = match item.kind {
                    Kind::Barrier => DataType::AlignedCheckpointBarrier,
                    _ => DataType::TimeoutableAlignedCheckpointBarrier,
                };
                subpartition.add_event(bytes.clone().into(), data_type);
            }
            Kind::Priority => {
                subpartition.add_event(bytes.clone().into(), DataType::PrioritizedEventBuffer);
            }
        }
        self.next += 1;
        true
    }
}
