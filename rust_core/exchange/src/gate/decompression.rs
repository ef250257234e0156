//! Decompression of buffers as they are read (spec 8.3).
//!
//! Decision: ADR 0016.

use std::sync::Mutex;

use arrow_buffer::MutableBuffer;
use bytes::Bytes;
use headgate_memory::{Buffer, lock};
use headgate_record::{DecompressError, Decompressor};

use crate::aligned::Aligned;

#[derive(Default)]
struct State {
    decompressor: Decompressor,
    /// The compressed bytes, while their segment is overwritten with the plain ones.
    scratch: Vec<u8>,
}

/// Decompresses the buffers of one gate.
#[derive(Default)]
pub(super) struct Decompression(Mutex<State>);

impl Decompression {
    /// Returns the buffer in its plain form, in the same segment unless another consumer shares it.
    ///
    /// # Errors
    /// The bytes are no valid compressed form.
    pub(super) fn plain(&self, buffer: Buffer) -> Result<Buffer, DecompressError> {
        if !buffer.is_compressed() {
            return Ok(buffer);
        }
        let plain_len = buffer.plain_len();
        let State { decompressor, scratch } = &mut *lock(&self.0);
        match buffer.into_segment() {
            Ok((mut segment, len)) => {
                scratch.clear();
                scratch.extend_from_slice(&segment[..len]);
                let len = decompressor.decompress(scratch, &mut segment)?;
                Ok(Buffer::freeze(segment, len))
            }
            Err(shared) => {
                let mut target = MutableBuffer::from_len_zeroed(plain_len);
                decompressor.decompress(shared.as_slice(), &mut target)?;
                Ok(Buffer::from(Bytes::from_owner(Aligned(target.into()))))
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use headgate_memory::{GlobalPool, LocalPool};
    use headgate_record::{Codec, Compressor};

    use super::*;

    const PLAIN: [u8; 4096] = [7; 4096];

    fn pool() -> (GlobalPool, LocalPool) {
        let global = GlobalPool::new(4, 4096);
        let local = global.create_local_pool(1, 4).unwrap();
        (global, local)
    }

    fn compressed(pool: &LocalPool, codec: Codec) -> Buffer {
        let mut segment = pool.try_request().unwrap().unwrap();
        segment.copy_from_slice(&PLAIN);
        let len = Compressor::new(codec).compress(&mut segment).unwrap();
        Buffer::freeze_compressed(segment, len, PLAIN.len())
    }

    #[test]
    fn spec_section_8_3_a_buffer_becomes_plain_in_its_own_segment() {
        let (global, pool) = pool();
        let gate = Decompression::default();
        for codec in [Codec::Lz4, Codec::Zstd] {
            let buffer = compressed(&pool, codec);
            let place = buffer.as_slice().as_ptr();
            let plain = gate.plain(buffer).unwrap();
            assert_eq!((plain.as_slice(), plain.is_compressed()), (&PLAIN[..], false));
            assert_eq!(plain.as_slice().as_ptr(), place);
            assert_eq!(global.stats().held, 1);
        }
    }

    #[test]
    fn spec_section_8_3_a_shared_buffer_becomes_plain_beside_its_segment() {
        let (global, pool) = pool();
        let gate = Decompression::default();
        for codec in [Codec::Lz4, Codec::Zstd] {
            let buffer = compressed(&pool, codec);
            let other = buffer.clone();
            let plain = gate.plain(buffer).unwrap();
            assert_eq!(plain.as_slice(), PLAIN);
            assert_eq!(plain.as_slice().as_ptr().align_offset(64), 0, "pages are read in place");
            assert!(!plain.is_pooled());
            assert_eq!(gate.plain(other).unwrap().as_slice(), PLAIN);
            assert_eq!(global.stats().held, 0);
        }
    }

    #[test]
    fn a_damaged_buffer_gives_its_segment_back() {
        let (global, pool) = pool();
        let gate = Decompression::default();
        for (form, shared) in [([1, 0, 0, 16, 0, 0x1F], false), ([2, 0, 0, 16, 0, 9], true)] {
            let mut segment = pool.try_request().unwrap().unwrap();
            segment[..form.len()].copy_from_slice(&form);
            let buffer = Buffer::freeze_compressed(segment, form.len(), 4096);
            let other = shared.then(|| buffer.clone());
            let error = gate.plain(buffer).unwrap_err();
            assert!(matches!(error, DecompressError::Damaged { .. }), "{error:?}");
            drop(other);
            assert_eq!(global.stats().held, 0);
        }
    }
}
