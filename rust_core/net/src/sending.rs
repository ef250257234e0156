//! Sending a buffer: lent if the peer can map it, else with its bytes.

use headgate_protocol::{BufferHeader, ChannelId, Frame, Generation, LentBuffer};

use crate::checksum;
use crate::loans::{Lending, Place};
use crate::outbox::Outbox;
use crate::partitions::Polled;

/// Adds a buffer to the outbox, lent if `lending` takes it.
pub(crate) fn push_buffer(
    outbox: &mut Outbox,
    lending: Option<&mut Lending>,
    channel: ChannelId,
    generation: Generation,
    polled: Polled,
) {
    let Polled { buffer, data_type, backlog, sequence, .. } = polled;
    let size = u32::try_from(buffer.len()).expect("a buffer fits a segment");
    let lending = lending.filter(|_| data_type.is_buffer());
    if let Some(Place { loan, region, offset }) = lending.and_then(|to| to.lend(&buffer, outbox)) {
        outbox.push_frame(&Frame::LentBuffer(LentBuffer {
            channel,
            generation,
            sequence,
            backlog,
            data_type,
            size,
            loan,
            region,
            offset,
        }));
        return;
    }
    let mut header = BufferHeader {
        channel,
        generation,
        sequence,
        backlog,
        data_type,
        compressed: buffer.is_compressed(),
        size,
        crc: 0,
    };
    header.crc = outbox.mask.apply(checksum::of(&header, &buffer));
    outbox.push(header.encode().to_vec());
    outbox.push_body(buffer);
}
