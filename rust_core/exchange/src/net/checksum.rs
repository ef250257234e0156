//! Checksums of buffers and task events, over header and payload.

use headgate_memory::Buffer;
use headgate_protocol::{BufferHeader, Crc32c, TaskEventHeader};

/// A checksum that is updated as the payload arrives.
pub(crate) struct Checksum(Crc32c);

impl Checksum {
    pub(crate) fn start(header: &BufferHeader) -> Self {
        let mut crc = Crc32c::new();
        crc.update(&header.prefix_for_crc());
        Self(crc)
    }

    pub(crate) fn update(&mut self, payload: &[u8]) {
        self.0.update(payload);
    }

    pub(crate) fn value(&self) -> u32 {
        self.0.value()
    }
}

/// Returns the checksum of a task event.
pub(crate) fn of_task_event(header: &TaskEventHeader, payload: &[u8]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(&header.prefix_for_crc());
    crc.update(payload);
    crc.value()
}

/// Returns the checksum of a buffer.
pub(crate) fn of(header: &BufferHeader, payload: &Buffer) -> u32 {
    let mut checksum = Checksum::start(header);
    payload.chunks().for_each(|chunk| checksum.update(chunk));
    checksum.value()
}
