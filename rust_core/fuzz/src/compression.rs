//! The compressed form of buffers.

use headgate_record::compression::{Codec, Compressor, Decompressor, plain_len};

/// Room for a plain form: a small segment.
const SEGMENT: usize = 4096;

/// What comes out does not depend on what was there before, and is as long as it says; what a compressor
/// makes of it is shorter and gives the same again.
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
