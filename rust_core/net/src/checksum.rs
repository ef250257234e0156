//! Checksums of buffers and task events, over header and payload.

use headgate_memory::Buffer;
use headgate_protocol::{BufferHeader, Crc32c, TaskEventHeader};

/// A checksum that is updated as the payload arrives.
pub struct Checksum(Crc32c);

impl Checksum {
    /// Begins with the header.
    pub fn start(header: &BufferHeader) -> Self {
        let mut crc = Crc32c::new();
        crc.update(&header.prefix_for_crc());
        Self(crc)
    }

    /// Adds the next bytes of the payload.
    pub fn update(&mut self, payload: &[u8]) {
        self.0.update(payload);
    }

    /// The checksum of all bytes so far.
    pub fn value(&self) -> u32 {
        self.0.value()
    }
}

/// Returns the checksum of a task event.
pub fn of_task_event(header: &TaskEventHeader, payload: &[u8]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(&header.prefix_for_crc());
    crc.update(payload);
    crc.value()
}

/// Returns the checksum of a buffer.
pub fn of(header: &BufferHeader, payload: &Buffer) -> u32 {
    let mut checksum = Checksum::start(header);
    payload.chunks().for_each(|chunk| checksum.update(chunk));
    checksum.value()
}
