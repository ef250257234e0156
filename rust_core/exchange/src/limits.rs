//! The limits of the operating system that an error should name.

use rustix::process::{Resource, getrlimit};

use crate::cgroup;

/// Returns the limits that a refused thread may have met. All of them give the same error number.
pub(crate) fn of_threads() -> String {
    let running = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let of_user = getrlimit(Resource::Nproc).current;
    let of_user = of_user.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string());
    let of_group = match cgroup::limit("pids", [["pids.max", "pids.current"]; 2]) {
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
    let files =
        [["memory.max", "memory.current"], ["memory.limit_in_bytes", "memory.usage_in_bytes"]];
    let of_group = match cgroup::limit("memory", files) {
        Some(limit) => format!("{} MiB, {} MiB in use", limit.max >> 20, limit.used >> 20),
        None => "no limit".to_owned(),
    };
    let killed = cgroup::count("memory", ["memory.events", "memory.oom_control"], "oom_kill");
    let killed = match killed {
        Some(killed @ 1..) => format!(" · oom_kill (processes killed in it): {killed}"),
        _ => String::new(),
    };
    format!("{} · memory.max (of the container): {of_group}{killed}", of_address_space())
}

fn of_address_space() -> String {
    let limit = getrlimit(Resource::As).current;
    let limit = limit.map_or_else(|| "no limit".to_owned(), |bytes| format!("{} KiB", bytes >> 10));
    format!("ulimit -v (address space): {limit}")
}
