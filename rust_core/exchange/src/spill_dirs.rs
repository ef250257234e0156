//! Where files for what does not fit memory are made: several directories, used in turn (spec 6.3).

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::descriptors;
use crate::error::{ExchangeError, Result};
use crate::lock::lock;
use crate::random::random;

/// Makes files without a name in several directories, in turn.
///
/// Such a file is gone with its last descriptor, also when the process is killed. A directory in which
/// no file can be made is not asked again, as long as there is another one.
#[derive(Debug)]
pub struct SpillDirectories {
    rotation: Mutex<Rotation>,
}

#[derive(Debug)]
struct Rotation {
    /// Never empty: the last one stays even if it is bad, so that its error can be told.
    candidates: Vec<PathBuf>,
    /// Taken modulo the number of candidates.
    next: usize,
    /// What was wrong with the directories that are no candidates any more.
    dropped: Vec<String>,
}

impl SpillDirectories {
    /// Uses these directories, from a random one on; none of them means the system's for temporary files.
    /// They must exist: none is made. Nothing is opened before the first [`create`](Self::create).
    #[must_use]
    pub fn new(mut directories: Vec<PathBuf>) -> Self {
        if directories.is_empty() {
            directories.push(std::env::temp_dir());
        }
        // The hasher's key is random, and so is what it makes of nothing.
        let start = RandomState::new().hash_one(()) as usize % directories.len();
        let rotation = Rotation { candidates: directories, next: start, dropped: Vec::new() };
        Self { rotation: Mutex::new(rotation) }
    }

    /// A new empty file without a name, to be read and written, of mode 0600, in the next directory.
    ///
    /// # Errors
    /// [`ExchangeError::SpillDirectories`] with what was wrong with each directory when none takes a
    /// file, or 10 in a row do not; [`ExchangeError::Descriptors`] when the process has too many open.
    pub fn create(&self) -> Result<File> {
        let mut attempts = 1;
        loop {
            let directory = lock(&self.rotation).next();
            let error = match nameless_file(&directory) {
                Ok(file) => return Ok(file),
                Err(error) => error,
            };
            // That is nothing against the directory.
            if let Some(exhausted) = descriptors::exhausted("cannot make a spill file", &error) {
                return Err(exhausted);
            }
            let mut rotation = lock(&self.rotation);
            if !rotation.drop_candidate(&directory, &error) || attempts == MAX_ATTEMPTS {
                let mut tried = rotation.dropped.clone();
                if rotation.candidates == [directory.as_path()] {
                    tried.push(complaint(&directory, &error));
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

    /// Whether another one is left, and this one is none any more.
    fn drop_candidate(&mut self, directory: &Path, error: &io::Error) -> bool {
        let Some(index) = self.candidates.iter().position(|candidate| candidate == directory)
        else {
            return true;
        };
        if self.candidates.len() == 1 {
            return false;
        }
        self.candidates.remove(index);
        // The one behind it has taken its place and is the next.
        self.next = index;
        self.dropped.push(complaint(directory, error));
        true
    }
}

fn complaint(directory: &Path, error: &io::Error) -> String {
    format!("{}: {error}", directory.display())
}

fn nameless_file(directory: &Path) -> io::Result<File> {
    // Exclusive: such a file can never be given a name.
    let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
        Ok(descriptor) => Ok(descriptor.into()),
        // The answers of file systems that know no such files, network ones above all.
        Err(Errno::INVAL | Errno::ISDIR | Errno::OPNOTSUPP) => unlinked_file(directory),
        Err(errno) => Err(errno.into()),
    }
}

/// A file whose name is taken away at once; a kill in between leaves an empty file.
fn unlinked_file(directory: &Path) -> io::Result<File> {
    let number = u128::from_ne_bytes(random().map_err(io::Error::other)?);
    let path = directory.join(format!("headgate-{number:032x}.spill"));
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

/// Attempts of one call, in as many directories.
const MAX_ATTEMPTS: usize = 10;

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// A directory of this test alone, gone with it.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            let name = format!("headgate-test-{:032x}", u128::from_ne_bytes(random().unwrap()));
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn folder(&self, name: &str) -> PathBuf {
            let path = self.0.join(name);
            std::fs::create_dir(&path).unwrap();
            path
        }

        /// A path that no file can be made in: it is a file itself.
        fn no_folder(&self, name: &str) -> PathBuf {
            let path = self.0.join(name);
            File::create(&path).unwrap();
            path
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn device_and_entries(folder: &Path) -> (u64, usize) {
        let entries = std::fs::read_dir(folder).unwrap().count();
        (std::fs::metadata(folder).unwrap().dev(), entries)
    }

    #[test]
    fn files_have_no_name_and_keep_what_is_written() {
        let scratch = Scratch::new();
        for make in [nameless_file, unlinked_file] {
            let mut file = make(&scratch.0).unwrap();
            let metadata = file.metadata().unwrap();
            assert_eq!(metadata.nlink(), 0);
            assert_eq!(metadata.mode() & 0o777, 0o600);
            assert_eq!((metadata.dev(), 0), device_and_entries(&scratch.0));
            file.write_all(b"abc").unwrap();
            file.rewind().unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "abc");
        }
    }

    #[test]
    fn spec_6_07_the_one_directory_of_three_that_can_be_written_is_used() {
        let scratch = Scratch::new();
        let missing = scratch.0.join("missing");
        let candidates = [missing, scratch.no_folder("file"), scratch.folder("good")];
        for rotated in 0..3 {
            let mut candidates = candidates.clone();
            candidates.rotate_left(rotated);
            let directories = SpillDirectories::new(candidates.to_vec());
            for _ in 0..20 {
                directories.create().unwrap();
            }
            let rotation = lock(&directories.rotation);
            assert_eq!(rotation.candidates.len() + rotation.dropped.len(), 3);
            assert!(rotation.candidates.contains(&scratch.0.join("good")));
        }
    }

    #[test]
    fn spec_6_07_the_last_error_is_raised_and_each_directory_named() {
        let scratch = Scratch::new();
        let (missing, file) = (scratch.0.join("missing"), scratch.no_folder("file"));
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
        let scratch = Scratch::new();
        let paths: Vec<_> = (0..3).map(|i| scratch.folder(&i.to_string())).collect();
        let directories = SpillDirectories::new(paths.clone());
        let mut rotation = lock(&directories.rotation);
        let turns: Vec<_> = (0..6).map(|_| rotation.next()).collect();
        assert_eq!(turns[..3], turns[3..]);
        assert!(paths.iter().all(|path| turns[..3].contains(path)));
        drop(rotation);

        let missing = (0..25).map(|i| scratch.0.join(format!("missing-{i}"))).collect();
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
