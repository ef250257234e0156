//! A build with `--cfg asan` reports an access to an idle segment.
#![cfg(asan)]
#![allow(clippy::unwrap_used, reason = "a panic in a test reports the failure")]

use std::process::Command;

use headgate_memory::GlobalPool;

fn read_through_a_stale_pointer(shared: bool) {
    let global = GlobalPool::new(1, 4096);
    if shared {
        global.share();
    }
    let pool = global.create_local_pool(1, 1).unwrap();
    let segment = pool.try_request().unwrap().unwrap();
    let start = segment.as_ptr();
    drop(segment);
    // SAFETY: violates M2 on purpose. The region is still mapped, so only the sanitizer objects.
    let byte = unsafe { start.read_volatile() };
    panic!("read {byte} from an idle segment, and the sanitizer did not stop it");
}

#[test]
#[ignore = "aborts; the last test runs it in a process of its own"]
fn stale_private() {
    read_through_a_stale_pointer(false);
}

#[test]
#[ignore = "aborts; the last test runs it in a process of its own"]
fn stale_shared() {
    read_through_a_stale_pointer(true);
}

#[test]
fn a_read_of_an_idle_segment_is_reported() {
    for test in ["stale_private", "stale_shared"] {
        let program = std::env::current_exe().unwrap();
        let run = Command::new(program).args(["--ignored", "--exact", test]).output().unwrap();
        let report = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success(), "{test} passed");
        assert!(report.contains("use-after-poison"), "{test}: {report}");
    }
}
