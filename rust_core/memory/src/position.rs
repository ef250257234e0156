//! The published write position, which a builder and its consumers share.

use crate::sync::{AtomicUsize, Ordering};

const FINISHED: usize = 1 << (usize::BITS - 1);

/// Published state of a buffer that may still grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Published {
    /// Length of the written bytes, which never change again (M3).
    pub(crate) len: usize,
    /// True once no more bytes follow.
    pub(crate) finished: bool,
}

/// Stored by one writer, loaded by any number of readers.
#[derive(Debug)]
pub(crate) struct Position(AtomicUsize);

impl Position {
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Makes all bytes below `len` visible.
    pub(crate) fn publish(&self, len: usize, finished: bool) {
        let word = if finished { len | FINISHED } else { len };
        // Release pairs with the Acquire in `load`: a reader of the position also sees the bytes
        // below it.
        self.0.store(word, Ordering::Release);
    }

    pub(crate) fn load(&self) -> Published {
        let word = self.0.load(Ordering::Acquire);
        Published { len: word & !FINISHED, finished: word & FINISHED != 0 }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    /// `RUSTFLAGS="--cfg loom" cargo test -p headgate-memory --release model`
    #[test]
    fn a_published_byte_is_written() {
        loom::model(|| {
            let shared = Arc::new((Position::new(), UnsafeCell::new(0_u8), UnsafeCell::new(0_u8)));
            let writer = Arc::clone(&shared);
            let handle = loom::thread::spawn(move || {
                // SAFETY: M3, the reader reads a cell only after the position above it is
                // published.
                writer.1.with_mut(|byte| unsafe { *byte = 1 });
                writer.0.publish(1, false);
                // SAFETY: M3, as above.
                writer.2.with_mut(|byte| unsafe { *byte = 2 });
                writer.0.publish(2, true);
            });
            let seen = shared.0.load();
            if seen.len >= 1 {
                // SAFETY: M3, the cell is below the published position.
                shared.1.with(|byte| assert_eq!(unsafe { *byte }, 1));
            }
            if seen.len >= 2 {
                // SAFETY: M3, the cell is below the published position.
                shared.2.with(|byte| assert_eq!(unsafe { *byte }, 2));
                assert!(seen.finished);
            }
            handle.join().unwrap();
            assert_eq!(shared.0.load(), Published { len: 2, finished: true });
        });
    }
}
