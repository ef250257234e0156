//! The limits of the control groups that this process is in, of version 1 and 2.

use std::path::{Path, PathBuf};

/// A limit and the part of it that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) max: u64,
    pub(crate) used: u64,
}

/// The groups of this process for one controller, innermost first, as folders.
pub(crate) struct Groups(Vec<PathBuf>);

impl Groups {
    /// The group of this process and all around it.
    pub(crate) fn of_process(controller: &str) -> Self {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self(folders_of(&groups, controller, Path::new("/sys/fs/cgroup")))
    }

    /// The groups in these folders.
    #[cfg(test)]
    pub(crate) fn at(folders: &[&Path]) -> Self {
        Self(folders.iter().map(|folder| folder.to_path_buf()).collect())
    }

    /// Returns the limit of which the least is left, in any of the groups. `files` are the names of the
    /// limit and the usage in version 2 and in version 1. None if there is no limit, or it cannot be read.
    pub(crate) fn limit(&self, files: [[&str; 2]; 2]) -> Option<Limit> {
        let limits = self.0.iter().flat_map(|folder| files.map(|files| limit_in(folder, files)));
        limits.flatten().min_by_key(|limit| limit.max.saturating_sub(limit.used))
    }

    /// Returns the number behind a key, such as `oom_kill 3`, in the first of these files that has it.
    pub(crate) fn count(&self, files: [&str; 2], key: &str) -> Option<u64> {
        let in_file = |file| count_in(&std::fs::read_to_string(file).ok()?, key);
        self.0.iter().find_map(|folder| files.iter().find_map(|file| in_file(folder.join(file))))
    }
}

fn count_in(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok())
}

fn limit_in(folder: &Path, [max, used]: [&str; 2]) -> Option<Limit> {
    let number = |file| std::fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok();
    // Version 2 writes "max" for no limit, version 1 a number that no machine has.
    let max = number(max).filter(|max| *max < NO_LIMIT)?;
    Some(Limit { max, used: number(used)? })
}

/// Folders of the group of this process and of all around it, innermost first.
fn folders_of(groups: &str, controller: &str, root: &Path) -> Vec<PathBuf> {
    let folders = groups.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next().unwrap_or_default();
        let path = Path::new(fields.next().unwrap_or_default().trim_start_matches('/'));
        let mounts = match controllers {
            "" => vec![root.to_owned(), root.join("unified")],
            some if some.split(',').any(|it| it == controller) => vec![root.join(some)],
            _ => Vec::new(),
        };
        // In a container the path may be the host's, whose folders do not exist here.
        mounts.into_iter().flat_map(move |mount| {
            path.ancestors().map(|path| mount.join(path)).collect::<Vec<_>>()
        })
    });
    folders.collect()
}

/// Numbers from this one on mean that there is no limit.
const NO_LIMIT: u64 = 1 << 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_both_versions_are_found_innermost_first() {
        let groups = "8:pids:/a/b\n4:cpu,memory:/\n0::/x\n";
        let found = |controller| {
            let folders = folders_of(groups, controller, Path::new("/g"));
            let folders = folders.into_iter().map(|it| it.to_string_lossy().into_owned());
            folders.map(|it| it.trim_end_matches('/').to_owned()).collect::<Vec<_>>()
        };
        let unified = ["/g/x", "/g", "/g/unified/x", "/g/unified"];
        assert_eq!(
            found("pids"),
            [&["/g/pids/a/b", "/g/pids/a", "/g/pids"][..], &unified].concat()
        );
        assert_eq!(found("memory"), [&["/g/cpu,memory"][..], &unified].concat());
        assert_eq!(found("io"), unified);
    }

    #[test]
    fn a_count_is_found_by_its_key() {
        let text = "low 0\noom 5\noom_kill 3\noom_group_kill 1\n";
        assert_eq!(count_in(text, "oom_kill"), Some(3));
        assert_eq!(count_in(text, "oom_kil"), None);
        assert_eq!(count_in("oom_kill_disable 0\noom_kill 2\n", "oom_kill"), Some(2));
    }

    #[test]
    fn a_limit_needs_both_numbers() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |file: &str, text: &str| {
            std::fs::write(folder.path().join(file), text).expect("a file can be written");
        };
        let limit = || limit_in(folder.path(), ["pids.max", "pids.current"]);
        assert_eq!(limit(), None);
        write("pids.max", "100\n");
        assert_eq!(limit(), None);
        write("pids.current", "7\n");
        assert_eq!(limit(), Some(Limit { max: 100, used: 7 }));
        for none in ["max\n", "9223372036854771712\n"] {
            write("pids.max", none);
            assert_eq!(limit(), None);
        }
    }
}
