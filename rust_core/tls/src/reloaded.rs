//! The certificates of a deployment, read again when their files change.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::certificates::TlsFiles;
use crate::configs::Configs;
use crate::error::{Result, TlsOptionsError};

/// Inode, length and time of the last change of each file; None while it is missing.
type State = [Option<(u64, u64, i64, i64)>; 3];

fn state(files: &TlsFiles) -> State {
    [&files.ca, &files.certificate, &files.key].map(|file| {
        let found = fs::metadata(file).ok()?;
        Some((found.ino(), found.len(), found.ctime(), found.ctime_nsec()))
    })
}

/// The last files that could be used, and those that could not be since.
struct Last {
    state: State,
    configs: Configs,
    /// State in which the files could not be used when they were last read; None once they can be used again.
    refused: Option<State>,
    /// The reason why the files in `refused` cannot be used, until the caller of [`Reloaded::take_refusal`] has it.
    refusal: Option<TlsOptionsError>,
}

/// The configurations of the last files that could be used.
pub(crate) struct Reloaded {
    files: TlsFiles,
    last: Mutex<Last>,
}

impl Reloaded {
    /// # Errors
    /// [`TlsOptionsError`](crate::TlsOptionsError) names the file that cannot be used.
    pub(crate) fn new(files: TlsFiles) -> Result<Self> {
        // The state is older than what is read, so that a change between the two is seen the next time.
        let (state, configs) = (state(&files), Configs::from_files(&files)?);
        Ok(Self { files, last: Mutex::new(Last { state, configs, refused: None, refusal: None }) })
    }

    /// Returns what the files say now. While they cannot be used, as between the write of a certificate and that of
    /// its key, what they said before stays in use.
    pub(crate) fn configs(&self) -> Configs {
        self.look().configs.clone()
    }

    /// Returns why the files cannot be used now, once for each state of theirs.
    pub(crate) fn take_refusal(&self) -> Option<TlsOptionsError> {
        self.look().refusal.take()
    }

    /// Reads the files if they have changed since they could last be used.
    fn look(&self) -> MutexGuard<'_, Last> {
        let mut last = self.last();
        let state = state(&self.files);
        if state == last.state {
            (last.refused, last.refusal) = (None, None);
            return last;
        }
        match Configs::from_files(&self.files) {
            Ok(configs) => *last = Last { state, configs, refused: None, refusal: None },
            // The same files are read again, since the cause may be outside of them, such as a lack of descriptors.
            Err(error) if last.refused != Some(state) => {
                (last.refused, last.refusal) = (Some(state), Some(error));
            }
            Err(_) => {}
        }
        last
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        // Each field is right by itself.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
