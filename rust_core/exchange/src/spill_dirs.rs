//! Directories for spill files, used in turn (spec 6.3).

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use headgate_memory::lock;

use crate::descriptors;
use crate::error::{ExchangeError, Result};

/// Creates nameless files in several directories, in turn.
///
/// The kernel deletes such a file with its last descriptor, also when the process is killed. A
/// directory in which no file can be created is not tried again, as long as there is another one.
#[derive(Debug)]
pub struct SpillDirectories {
    rotation: Mutex<Rotation>,
}

#[derive(Debug)]
struct Rotation {
    /// Never empty: the last one stays even if it is bad, so that its error can be returned.
    candidates: Vec<PathBuf>,
    /// Index of the next candidate, modulo their number.
    next: usize,
    /// The errors of directories that are no candidates any more.
    dropped: Vec<String>,
}

impl SpillDirectories {
    /// Uses these directories, from a random one on; an empty list means the system's directory for
    /// temporary files. They must exist. Opens nothing before the first [`create`](Self::create).
    #[must_use]
    pub fn new(mut directories: Vec<PathBuf>) -> Self {
        if directories.is_empty() {
            directories.push(std::env::temp_dir());
        }
        let next = fastrand::usize(..directories.len());
        let rotation = Rotation { candidates: directories, next, dropped: Vec::new() };
        Self { rotation: Mutex::new(rotation) }
    }

    /// Creates an empty nameless file of mode 0600 in the next directory, open for reading and
    /// writing.
    ///
    /// # Errors
    /// [`ExchangeError::SpillDirectories`] with the error of each directory when no file can be
    /// created in any of them, or in 10 in a row; [`ExchangeError::Descriptors`] when the process
    /// has too many open.
    pub fn create(&self) -> Result<File> {
        let mut attempts = 1;
        loop {
            let directory = lock(&self.rotation).next();
            let error = match nameless_file(&directory) {
                Ok(file) => return Ok(file),
                Err(error) => error,
            };
            // Too many open files say nothing about the directory.
            if let Some(exhausted) = descriptors::exhausted("cannot create a spill file", &error) {
                return Err(exhausted);
            }
            let mut rotation = lock(&self.rotation);
            if !rotation.drop_candidate(&directory, &error) || attempts == MAX_ATTEMPTS {
                let mut tried = rotation.dropped.clone();
                if rotation.candidates == [directory.as_path()] {
                    tried.push(describe(&directory, &error));
                }
                let tried = tried.join("; ");
                return Err(ExchangeError::SpillDirectories { tried, source: Arc::new(error) });
            }
            attempts += 1;
        }
    }
}

impl Rotation {
    fn next(&mut self) -> PathBuf {
        let index = self.next % self.candidates.len();
        self.next = index + 1;
        self.candidates[index].clone()
    }

    /// Removes a directory in which no file can be created. False if it is the last candidate,
    /// which stays.
    fn drop_candidate(&mut self, directory: &Path, error: &io::Error) -> bool {
        let Some(index) = self.candidates.iter().position(|candidate| candidate == directory)
        else {
            return true;
        };
        if self.candidates.len() == 1 {
            return false;
        }
        self.candidates.remove(index);
        // The directory behind it moved into its place and is tried next.
        self.next = index;
        self.dropped.push(describe(directory, error));
        true
    }
}

fn describe(directory: &Path, error: &io::Error) -> String {
    format!("{}: {error}", directory.display())
}

fn nameless_file(directory: &Path) -> io::Result<File> {
    // On a file system without nameless files, tempfile creates a named file and removes the name.
    let file = tempfile::tempfile_in(directory)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Directories that one call tries.
const MAX_ATTEMPTS: usize = 10;

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};
    use std::os::unix::fs::MetadataExt;

    use tempfile::TempDir;

    use super::*;

    fn scratch() -> TempDir {
        TempDir::new().unwrap()
    }

    fn folder(scratch: &TempDir, name: &str) -> PathBuf {
        let path = scratch.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path
    }

    /// A path in which no file can be created: it is a file itself.
    fn no_folder(scratch: &TempDir, name: &str) -> PathBuf {
        let path = scratch.path().join(name);
        File::create(&path).unwrap();
        path
    }

    fn device_and_entries(folder: &Path) -> (u64, usize) {
        let entries = std::fs::read_dir(folder).unwrap().count();
        (std::fs::metadata(folder).unwrap().dev(), entries)
    }

    #[test]
    fn files_have_no_name_and_keep_what_is_written() {
        let scratch = scratch();
        let mut file = nameless_file(scratch.path()).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.nlink(), 0);
        assert_eq!(metadata.mode() & 0o777, 0o600);
        assert_eq!((metadata.dev(), 0), device_and_entries(scratch.path()));
        file.write_all(b"abc").unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "abc");
    }

    #[test]
    fn spec_6_07_the_one_directory_of_three_that_can_be_written_is_used() {
        let scratch = scratch();
        let missing = scratch.path().join("missing");
        let candidates = [missing, no_folder(&scratch, "file"), folder(&scratch, "good")];
        for rotated in 0..3 {
            let mut candidates = candidates.clone();
            candidates.rotate_left(rotated);
            let directories = SpillDirectories::new(candidates.to_vec());
            for _ in 0..20 {
                directories.create().unwrap();
            }
            let rotation = lock(&directories.rotation);
            assert_eq!(rotation.candidates.len() + rotation.dropped.len(), 3);
            assert!(rotation.candidates.contains(&scratch.path().join("good")));
        }
    }

    #[test]
    fn spec_6_07_the_last_error_is_raised_and_each_directory_named() {
        let scratch = scratch();
        let (missing, file) = (scratch.path().join("missing"), no_folder(&scratch, "file"));
        let directories = SpillDirectories::new(vec![missing.clone(), file.clone()]);
        // Again and again: the last candidate is never dropped.
        for _ in 0..3 {
            let error = directories.create().unwrap_err();
            let ExchangeError::SpillDirectories { tried, source } = &error else {
                panic!("{error}");
            };
            let last = lock(&directories.rotation).candidates[0].clone();
            let kind = nameless_file(&last).unwrap_err().kind();
            assert_eq!(source.kind(), kind);
            assert!(matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory));
            for path in [&missing, &file] {
                assert_eq!(tried.matches(&format!("{}: ", path.display())).count(), 1, "{tried}");
            }
        }
    }

    #[test]
    fn directories_are_used_in_turn_and_a_call_tries_ten() {
        let scratch = scratch();
        let paths: Vec<_> = (0..3).map(|i| folder(&scratch, &i.to_string())).collect();
        let directories = SpillDirectories::new(paths.clone());
        let mut rotation = lock(&directories.rotation);
        let turns: Vec<_> = (0..6).map(|_| rotation.next()).collect();
        assert_eq!(turns[..3], turns[3..]);
        assert!(paths.iter().all(|path| turns[..3].contains(path)));
        drop(rotation);

        let missing = (0..25).map(|i| scratch.path().join(format!("missing-{i}"))).collect();
        let directories = SpillDirectories::new(missing);
        for left in [15, 5, 1] {
            let error = directories.create().unwrap_err();
            assert!(matches!(error, ExchangeError::SpillDirectories { .. }), "{error}");
            assert_eq!(lock(&directories.rotation).candidates.len(), left);
        }
    }

    #[test]
    fn without_a_directory_it_is_the_systems() {
        SpillDirectories::new(Vec::new()).create().unwrap();
    }
}
