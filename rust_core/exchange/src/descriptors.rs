//! Errors of a process that has too many files open.

use std::fmt::Display;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::error::ExchangeError;

/// Returns [`ExchangeError::Descriptors`], or [`ExchangeError::System`] if a call failed for another
/// reason.
pub(crate) fn refused(doing: &'static str, error: io::Error) -> ExchangeError {
    let exhausted = exhausted(doing, &error);
    exhausted.unwrap_or_else(|| ExchangeError::System { doing, source: Arc::new(error) })
}

/// Returns [`ExchangeError::Descriptors`] if a call failed because of the limit of open files.
pub(crate) fn exhausted(doing: impl Display, error: &io::Error) -> Option<ExchangeError> {
    let limit = match Errno::from_io_error(error)? {
        Errno::MFILE => getrlimit(Resource::Nofile).current,
        Errno::NFILE => None,
        _ => return None,
    };
    // The size of this folder is the number of descriptors. Reading it takes none.
    let open = std::fs::metadata("/proc/self/fd").map_or(0, |folder| folder.len());
    let open = (open > 0).then_some(open).or(limit);
    let doing = doing.to_string();
    Some(ExchangeError::Descriptors { doing, detail: error.to_string(), open, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_descriptors_is_recognized_and_it_has_numbers() {
        let refused = io::Error::from_raw_os_error(Errno::MFILE.raw_os_error());
        let Some(ExchangeError::Descriptors { open, limit, .. }) = exhausted("a socket", &refused)
        else {
            panic!("it is one");
        };
        assert_eq!(limit, getrlimit(Resource::Nofile).current);
        assert!(open.is_some_and(|open| open >= 3));
        let other = io::Error::from_raw_os_error(Errno::CONNREFUSED.raw_os_error());
        assert!(exhausted("a socket", &other).is_none());
    }
}
