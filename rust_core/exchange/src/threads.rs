//! Errors of a thread that the operating system refuses.

use std::io;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};

use crate::cgroup;
use crate::error::ExchangeError;

/// Returns the error of a thread that could not be started, with the limits that it may have met.
/// All of them give the same error number.
pub(crate) fn refused(thread: &'static str, error: io::Error) -> ExchangeError {
    ExchangeError::Thread { thread, limits: limits(), source: Arc::new(error) }
}

fn limits() -> String {
    let number =
        |limit: Option<u64>| limit.map_or_else(|| "no limit".to_owned(), |it| it.to_string());
    let running = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let of_user = number(getrlimit(Resource::Nproc).current);
    let of_group = match cgroup::limit("pids", [["pids.max", "pids.current"]; 2]) {
        Some(limit) => format!("{}, {} in use", limit.max, limit.used),
        None => number(None),
    };
    let of_memory = match getrlimit(Resource::As).current {
        Some(bytes) => format!(" · ulimit -v (address space): {} KiB", bytes >> 10),
        None => String::new(),
    };
    format!(
        "{running} threads in this process · ulimit -u (processes and threads of the user): {of_user} · \
         pids.max (of the container): {of_group}{of_memory}"
    )
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
