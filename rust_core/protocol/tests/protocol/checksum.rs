//! The checksum is CRC32C, for whole inputs and for pieces.

use headgate_protocol::{Crc32c, crc32c};

use crate::frames::crc32c_by_bits;

#[test]
fn the_check_value_of_crc32c() {
    assert_eq!(crc32c_by_bits(b"123456789"), 0xE306_9283);
    assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    assert_eq!(crc32c(b""), 0);
    assert_eq!(Crc32c::new().value(), 0);
}

#[test]
fn pieces_have_the_checksum_of_the_whole_at_every_length() {
    let bytes: Vec<u8> = (0..600_u32).map(|at| (at * at + 7 * at) as u8).collect();
    for length in 0..bytes.len() {
        let bytes = &bytes[..length];
        let want = crc32c_by_bits(bytes);
        assert_eq!(crc32c(bytes), want, "{length} bytes");
        let mut pieces = Crc32c::default();
        for piece in bytes.chunks(1 + length % 37) {
            pieces.update(piece);
        }
        assert_eq!(pieces.value(), want, "{length} bytes");
    }
}
