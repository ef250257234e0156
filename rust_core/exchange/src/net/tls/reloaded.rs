//! The certificates of a deployment, read again when their files change.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::certificates::TlsFiles;
use super::configs::Configs;
use crate::error::Result;

/// Inode, length and time of the last change of each file; None while it is missing.
type State = [Option<(u64, u64, i64, i64)>; 3];

fn state(files: &TlsFiles) -> State {
    [&files.ca, &files.certificate, &files.key].map(|file| {
        let found = fs::metadata(file).ok()?;
        Some((found.ino(), found.len(), found.ctime(), found.ctime_nsec()))
    })
}

/// The configurations of the last files that could be used.
pub(super) struct Reloaded {
    files: TlsFiles,
    last: Mutex<(State, Configs)>,
}

impl Reloaded {
    /// # Errors
    /// [`ExchangeError::TlsOptions`](crate::ExchangeError::TlsOptions) names the file that cannot be used.
    pub(super) fn new(files: TlsFiles) -> Result<Self> {
        // The state is older than what is read, so that a change between the two is seen the next time.
        let last = Mutex::new((state(&files), Configs::from_files(&files)?));
        Ok(Self { files, last })
    }

    /// Returns what the files say now. While they cannot be used, as between the write of a certificate and that of
    /// its key, what they said before stays in use.
    pub(super) fn configs(&self) -> Configs {
        let mut last = self.last();
        let state = state(&self.files);
        if state != last.0
            && let Ok(configs) = Configs::from_files(&self.files)
        {
            *last = (state, configs);
        }
        last.1.clone()
    }

    fn last(&self) -> MutexGuard<'_, (State, Configs)> {
        // Each write replaces the value as a whole.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
