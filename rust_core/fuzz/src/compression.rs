//! The compressed form of buffers.

use headgate_record::compression::{Codec, Compressor, Decompressor, plain_len};

/// Size of the segment that is decompressed into.
const SEGMENT: usize = 4096;

/// Checks that the plain form has the length that is claimed and does not depend on the old content of
/// the segment, and that compressing it again makes it shorter and loses nothing.
///
/// The bytes: a compressed form.
#[expect(clippy::missing_panics_doc, reason = "a finding is a panic")]
pub fn compression(data: &[u8]) {
    let (mut zeros, mut ones) = (vec![0; SEGMENT], vec![0xFF; SEGMENT]);
    let outcome = Decompressor::default().decompress(data, &mut zeros);
    assert_eq!(Decompressor::default().decompress(data, &mut ones), outcome);
    let Ok(len) = outcome else {
        return;
    };
    assert_eq!(plain_len(data, SEGMENT), Ok(len));
    assert_eq!(zeros[..len], ones[..len]);
    assert!(ones[len..].iter().all(|byte| *byte == 0xFF));
    for codec in [Codec::Lz4, Codec::Zstd] {
        let mut form = zeros[..len].to_vec();
        let Some(shorter) = Compressor::new(codec).compress(&mut form) else {
            assert_eq!(form, zeros[..len]);
            continue;
        };
        assert!(shorter < len);
        let again = Decompressor::default().decompress(&form[..shorter], &mut ones);
        assert_eq!(again, Ok(len));
        assert_eq!(zeros[..len], ones[..len]);
    }
}
