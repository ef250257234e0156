//! Errors of a thread that the operating system refuses.

use std::io;
use std::sync::Arc;

use crate::error::ExchangeError;
use crate::limits;

/// Returns the error of a thread that could not be started, with the limits that it may have met.
pub(crate) fn refused(thread: &'static str, error: io::Error) -> ExchangeError {
    ExchangeError::Thread { thread, limits: limits::of_threads(), source: Arc::new(error) }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn the_error_names_the_thread_and_the_limits_and_keeps_the_cause() {
        // No address space has room for this stack.
        let builder = std::thread::Builder::new().stack_size(1 << 60);
        let cause = builder.spawn(|| ()).expect_err("a thread without a stack");
        let text = cause.to_string();
        let error = refused("I/O thread headgate-io", cause);
        assert!(
            error.to_string().starts_with("cannot start the I/O thread headgate-io"),
            "{error}"
        );
        for part in [&*text, "threads in this process", "ulimit -u", "pids.max"] {
            assert!(error.to_string().contains(part), "{error} has no {part}");
        }
        assert!(!error.to_string().contains("no memory"), "{error}");
        assert_eq!(error.source().expect("its cause").to_string(), text);
    }
}
