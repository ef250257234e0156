//! The frame decoder.

use headgate_protocol::{Frame, FrameDecoder, FrameError, FrameMask, Limits, MAGIC, Side, crc32c};

use crate::input::{pieces, take};

const LIMITS: Limits = Limits::for_segment(256);
const MASK: FrameMask = FrameMask::new([1, 2, 3, 4]);

/// Checks that frames and error do not depend on how the bytes are cut, and that each frame is decoded
/// again after it was encoded.
///
/// The bytes: flags (1 for the producer's side, 2 to correct magic and checksum of the frames), number of
/// sizes, sizes of pieces, stream.
#[expect(clippy::missing_panics_doc, reason = "a finding is a panic")]
pub fn frames(data: &[u8]) {
    let ([flags, sizes], rest) = take(data);
    let (sizes, stream) = rest.split_at(usize::from(sizes).min(rest.len()));
    let side = if flags & 1 == 0 { Side::Consumer } else { Side::Producer };
    let mut stream = stream.to_vec();
    if flags & 2 != 0 {
        repair(&mut stream);
    }
    let whole = decode(side, std::iter::once(stream.as_slice()));
    assert_eq!(decode(side, pieces(&stream, sizes)), whole);
    assert_eq!(decode(side, stream.chunks(1)), whole);
    for frame in whole.0 {
        let mut bytes = Vec::new();
        frame.encode(MASK, &mut bytes);
        let (again, error) = decode(side, std::iter::once(bytes.as_slice()));
        assert_eq!((again, error), (vec![frame], None));
    }
}

/// Returns all frames of a stream, and the error that ends it.
fn decode<'a>(
    side: Side,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<Frame>, Option<FrameError>) {
    let mut decoder = FrameDecoder::new(LIMITS, side, MASK);
    let (mut frames, mut payload) = (Vec::new(), 0);
    for mut piece in pieces {
        loop {
            let skipped = payload.min(piece.len());
            piece = &piece[skipped..];
            payload -= skipped;
            if payload > 0 {
                break;
            }
            assert!(decoder.missing() > 0 && decoder.missing() <= LIMITS.max_frame as usize);
            match decoder.decode(&mut piece) {
                Ok(Some(frame)) => {
                    if let Frame::Buffer(header) = &frame {
                        assert!(header.size <= LIMITS.max_payload);
                        payload = header.size as usize;
                    }
                    assert!(decoder.is_between_frames());
                    frames.push(frame);
                }
                Ok(None) => {
                    assert!(piece.is_empty(), "the decoder needs more bytes and left some");
                    break;
                }
                Err(error) => {
                    assert_eq!(decoder.decode(&mut piece), Err(error.clone()));
                    return (frames, Some(error));
                }
            }
        }
    }
    (frames, None)
}

/// Corrects magic and checksum of each frame.
fn repair(mut stream: &mut [u8]) {
    while let Some(length) = stream.first_chunk() {
        let length = u32::from_be_bytes(*length) as usize;
        if length < 13 || length > stream.len() {
            return;
        }
        let (frame, rest) = stream.split_at_mut(length);
        frame[4..8].copy_from_slice(&MAGIC.to_be_bytes());
        // The checksum of a buffer is in its header and is not checked by the decoder.
        if frame[8] != 0 {
            let (body, crc) = frame.split_at_mut(length - 4);
            crc.copy_from_slice(&MASK.apply(crc32c(body)).to_be_bytes());
        }
        stream = rest;
    }
}
