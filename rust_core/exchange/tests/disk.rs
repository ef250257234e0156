//! Full, damaged and missing disks, and killed processes: an error names the place, and no file is
//! left.

#![allow(clippy::unwrap_used, reason = "a test says by its panic what went wrong")]

mod common;

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use common::{Env, batch, config, drain, nothing, wait_until, writer};
use headgate_exchange::{
    ExchangeError, PartitionKind, PartitionOptions, ResultPartition, ShuffleEnvironment,
};

/// The directory of one test. It must be empty when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("headgate-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn environment(&self) -> Env {
        let mut config = config(24, 4096);
        config.temp_directories = vec![self.0.clone()];
        Env(ShuffleEnvironment::new(config).unwrap())
    }

    /// Returns the descriptors of a process that refer to files in this directory, named or
    /// nameless.
    fn open_in(&self, process: u32) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
        let leads_here = |path: &PathBuf| {
            std::fs::read_link(path).is_ok_and(|target| target.starts_with(&self.0))
        };
        entries.map(|entry| entry.unwrap().path()).filter(leads_here).collect()
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.0).unwrap().next().is_none()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.open_in(std::process::id()).is_empty(), "a file is still open");
        }
        // Fails unless the directory is empty.
        std::fs::remove_dir(&self.0).unwrap();
    }
}

fn stored(env: &Env, kind: PartitionKind) -> Arc<ResultPartition> {
    let options = PartitionOptions::all(1).of_kind(kind);
    let partition = env.0.create_result_partition(&options).unwrap();
    let mut writer = writer(&partition);
    for part in 0..20 {
        writer.emit(&batch(part * 500, (part + 1) * 500, 40), &nothing).unwrap();
    }
    writer.finish().unwrap();
    partition
}

#[test]
fn files_have_no_name_and_are_deleted_with_their_partition() {
    for kind in [PartitionKind::Blocking, PartitionKind::Hybrid] {
        let folder = Folder::new("nameless");
        let env = folder.environment();
        let (first, second) = (stored(&env, kind), stored(&env, kind));
        assert!(folder.is_empty(), "the files have no name");
        assert_eq!(folder.open_in(std::process::id()).len(), 2);
        env.0.release_partition(first.id());
        assert_eq!(folder.open_in(std::process::id()).len(), 1, "one file per partition");
        second.fail(&ExchangeError::Aborted("the end".to_owned()));
        env.0.release_partition(second.id());
        assert!(folder.open_in(std::process::id()).is_empty());
        let third = stored(&env, kind);
        env.0.close();
        assert!(folder.open_in(std::process::id()).is_empty());
        drop(third);
    }
}

#[test]
fn a_changed_byte_on_disk_is_an_error_that_names_the_partition() {
    for kind in [PartitionKind::Blocking, PartitionKind::Hybrid] {
        for local in [true, false] {
            let folder = Folder::new("damage");
            let (env, other) = (folder.environment(), Env::new(24, 4096));
            let partition = stored(&env, kind);
            let [descriptor] = &folder.open_in(std::process::id())[..] else { panic!("one file") };
            let file = OpenOptions::new().read(true).write(true).open(descriptor).unwrap();
            // In the middle of the second half, so that some rows are read first.
            let at = file.metadata().unwrap().len() * 3 / 4;
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 4], at).unwrap();
            drop(file);
            let consumer = if local { &env } else { &other };
            let gate = consumer.gate(&[env.address(&partition, 0)]);
            let error = drain(&mut consumer.reader(&gate)).unwrap_err().to_string();
            assert!(error.contains("checksum"), "{error}");
            assert!(error.contains(&partition.id().to_string()), "{error}");
            if kind == PartitionKind::Hybrid {
                // The producer's failure may reach the reader first.
                wait_until("the partition has failed", || partition.check().is_err());
            } else {
                // The error of one reader does not end the others.
                partition.check().unwrap();
            }
            env.0.release_partition(partition.id());
            env.0.close();
        }
    }
}

#[test]
fn a_truncated_file_is_an_error_that_names_the_partition() {
    let folder = Folder::new("cut");
    let env = folder.environment();
    let partition = stored(&env, PartitionKind::Blocking);
    let [descriptor] = &folder.open_in(std::process::id())[..] else { panic!("one file") };
    let file = OpenOptions::new().write(true).open(descriptor).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    drop(file);
    let gate = env.gate(&[env.address(&partition, 0)]);
    let error = drain(&mut env.reader(&gate)).unwrap_err();
    let ExchangeError::SpilledPartition { partition: named, doing: "read", .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*named, partition.id());
    env.0.close();
}

#[test]
fn without_a_directory_the_writers_error_names_those_that_were_tried() {
    let missing = std::env::temp_dir().join("headgate-no-such-directory");
    for kind in [PartitionKind::Blocking, PartitionKind::Hybrid] {
        let mut config = config(24, 4096);
        config.temp_directories = vec![missing.clone()];
        let env = Env::with(config);
        let options = PartitionOptions::all(1).of_kind(kind);
        let partition = env.0.create_result_partition(&options).unwrap();
        let mut writer = writer(&partition);
        let error = writer.emit(&batch(0, 10_000, 40), &nothing).unwrap_err();
        assert!(matches!(error, ExchangeError::SpillDirectories { .. }), "{error}");
        assert!(error.to_string().contains("headgate-no-such-directory"), "{error}");
    }
}

/// A mounted file system of one MiB, if this process may mount one.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(path: &'a Path) -> Option<Self> {
        let mut command = Command::new("mount");
        let command = command.args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(path);
        let mounted = command.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        mounted.then_some(Self(path))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        assert!(
            Command::new("umount").arg("-l").arg(self.0).status().unwrap().success(),
            "it is in use"
        );
    }
}

#[test]
fn a_full_disk_fails_only_the_partition_that_needs_it() {
    for kind in [PartitionKind::Blocking, PartitionKind::Hybrid] {
        let folder = Folder::new("full");
        let Some(disk) = SmallDisk::mount(&folder.0) else {
            println!("skipped: this process may not mount a file system");
            return;
        };
        let env = folder.environment();
        let small = stored(&env, kind);
        let options = PartitionOptions::all(1).of_kind(kind);
        let large = env.0.create_result_partition(&options).unwrap();
        let mut writing = writer(&large);
        let error = loop {
            if let Err(error) = writing.emit(&batch(0, 500, 40), &nothing) {
                break error;
            }
        };
        let ExchangeError::SpilledPartition { partition, doing: "write", source, .. } = &error
        else {
            panic!("{error}");
        };
        assert_eq!((*partition, source.raw_os_error()), (large.id(), Some(28)));
        assert!(large.check().is_err());
        env.0.release_partition(large.id());
        // The failed partition's space is free again, and the other partition is complete.
        let another = stored(&env, kind);
        for partition in [&small, &another] {
            let gate = env.gate(&[env.address(partition, 0)]);
            assert_eq!(drain(&mut env.reader(&gate)).unwrap().len(), 10_000);
        }
        env.0.close();
        drop(disk);
    }
}

#[test]
fn a_full_disk_fails_the_reader_of_its_partition() {
    let folder = Folder::new("learns");
    let Some(disk) = SmallDisk::mount(&folder.0) else {
        println!("skipped: this process may not mount a file system");
        return;
    };
    let (env, other) = (folder.environment(), Env::new(24, 4096));
    let options = PartitionOptions::all(1).of_kind(PartitionKind::Hybrid);
    let partition = env.0.create_result_partition(&options).unwrap();
    let gate = other.gate(&[env.address(&partition, 0)]);
    let mut writing = writer(&partition);
    while writing.emit(&batch(0, 500, 40), &nothing).is_ok() {}
    let error = drain(&mut other.reader(&gate)).unwrap_err();
    assert!(error.to_string().contains("No space left"), "{error}");
    env.0.close();
    drop(disk);
}

/// Creates files in the directory of the test below, and waits to be killed.
#[test]
#[ignore = "started by another test"]
fn a_process_with_files() {
    let mut config = config(24, 4096);
    config.temp_directories = vec![std::env::var_os("HEADGATE_TEST_FOLDER").unwrap().into()];
    let env = Env::with(config);
    let kept = [PartitionKind::Blocking, PartitionKind::Hybrid].map(|kind| stored(&env, kind));
    println!("ready {}", kept.len());
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn a_kill_leaves_no_file() {
    let folder = Folder::new("kill");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["a_process_with_files", "--exact", "--ignored", "--nocapture"])
        .env("HEADGATE_TEST_FOLDER", &folder.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("ready 2")));
    assert_eq!(folder.open_in(child.id()).len(), 2);
    assert!(folder.is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(folder.is_empty());
    assert!(folder.open_in(std::process::id()).is_empty());
}
