//! The limits of the operating system that an error should name.

use rustix::process::{Resource, getrlimit};

use crate::cgroup::Groups;

/// Returns the limits that a refused thread may have met. All of them give the same error number.
pub(crate) fn of_threads() -> String {
    let running = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let of_user = getrlimit(Resource::Nproc).current;
    let of_user = of_user.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string());
    let of_group = match Groups::of_process("pids").limit([["pids.max", "pids.current"]; 2]) {
        Some(limit) => format!("{}, {} in use", limit.max, limit.used),
        None => "no limit".to_owned(),
    };
    format!(
        "{running} threads in this process · ulimit -u (processes and threads of the user): {of_user} · \
         pids.max (of the container): {of_group} · {}",
        of_address_space()
    )
}

/// Returns the limits that refused memory may have met, and the number of processes that the kernel
/// has killed in this container for their memory.
pub(crate) fn of_memory() -> String {
    format!("{} · {}", of_address_space(), of_groups(&Groups::of_process("memory")))
}

fn of_groups(groups: &Groups) -> String {
    let files =
        [["memory.max", "memory.current"], ["memory.limit_in_bytes", "memory.usage_in_bytes"]];
    let of_group = match groups.limit(files) {
        Some(limit) => format!("{} MiB, {} MiB in use", limit.max >> 20, limit.used >> 20),
        None => "no limit".to_owned(),
    };
    let killed = groups.count(["memory.events", "memory.oom_control"], "oom_kill");
    let killed = match killed {
        Some(killed @ 1..) => format!(" · oom_kill (processes killed in it): {killed}"),
        _ => String::new(),
    };
    format!("memory.max (of the container): {of_group}{killed}")
}

fn of_address_space() -> String {
    let limit = getrlimit(Resource::As).current;
    let limit = limit.map_or_else(|| "no limit".to_owned(), |bytes| format!("{} KiB", bytes >> 10));
    format!("ulimit -v (address space): {limit}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn write(folder: &Path, file: &str, text: &str) {
        std::fs::write(folder.join(file), text).expect("a file can be written");
    }

    /// The part of an error about a container and the groups around it.
    fn said(folders: &[&Path]) -> String {
        of_groups(&Groups::at(folders))
    }

    #[test]
    fn an_error_of_memory_counts_the_processes_that_the_kernel_has_killed() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        write(folder, "memory.max", "1073741824\n");
        write(folder, "memory.current", "1048576\n");
        let limit = "memory.max (of the container): 1024 MiB, 1 MiB in use";
        assert_eq!(said(&[folder]), limit, "no file of events");
        let events =
            |killed| format!("low 0\nhigh 0\nmax 9\noom 9\noom_kill {killed}\noom_group_kill 8\n");
        write(folder, "memory.events", &events(0));
        assert_eq!(said(&[folder]), limit, "none was killed");
        write(folder, "memory.events", &events(3));
        let killed = " · oom_kill (processes killed in it): 3";
        assert_eq!(said(&[folder]), format!("{limit}{killed}"));
        write(folder, "memory.max", "max\n");
        assert_eq!(said(&[folder]), format!("memory.max (of the container): no limit{killed}"));
    }

    #[test]
    fn the_count_of_killed_processes_is_found_in_version_1_and_in_the_innermost_group() {
        let [inner, outer] = [(), ()].map(|()| tempfile::tempdir().expect("a folder"));
        let [inner, outer] = [inner.path(), outer.path()];
        assert_eq!(said(&[inner, outer]), "memory.max (of the container): no limit");
        let control = |killed| format!("oom_kill_disable 0\nunder_oom 0\noom_kill {killed}\n");
        write(outer, "memory.oom_control", &control(7));
        let killed = |count| {
            format!(
                "memory.max (of the container): no limit · oom_kill (processes killed in it): {count}"
            )
        };
        assert_eq!(said(&[inner, outer]), killed(7));
        write(inner, "memory.oom_control", &control(2));
        assert_eq!(said(&[inner, outer]), killed(2));
    }
}
