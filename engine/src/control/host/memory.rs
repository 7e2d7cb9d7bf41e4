//! Memory that this process may take before the kernel ends it.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that this process may have: the memory of the host, or the least limit of its control groups (cgroups(7)).
#[must_use]
pub fn limit() -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_groups = group_limits(Path::new("/sys/fs/cgroup"), &groups);
    of_groups.chain(memory_of_host()).min().unwrap_or(u64::MAX)
}

/// Bytes of resident memory of this process (proc_pid_status(5)).
#[must_use]
pub fn resident() -> u64 {
    kilobytes(&fs::read_to_string("/proc/self/status").unwrap_or_default(), "VmRSS:").unwrap_or(0)
}

fn memory_of_host() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal:")
}

/// The bytes of a line such as `VmRSS:   1234 kB`.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number: u64 = line.split_whitespace().next()?.parse().ok()?;
    number.checked_mul(1024)
}

/// Limits of the groups that lines of /proc/self/cgroup name, and of those around them, in both versions of control groups.
fn group_limits(mount: &Path, groups: &str) -> impl Iterator<Item = u64> {
    let files = groups.lines().filter_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let (folder, file) = match controllers {
            "" => (mount.to_owned(), "memory.max"),
            "memory" => (mount.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        let group = Path::new(group.trim_start_matches('/')).to_owned();
        let around: Vec<PathBuf> = group.ancestors().map(|group| folder.join(group).join(file)).collect();
        Some(around)
    });
    let files: Vec<PathBuf> = files.flatten().collect();
    // No limit is `max` in version 2, and a number beyond all memory in version 1.
    files.into_iter().filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{group_limits, limit, resident};

    #[test]
    fn the_least_limit_of_all_groups_counts() {
        let mount = tempfile::tempdir().expect("a folder");
        let write = |file: &str, text: &str| {
            let path = mount.path().join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("a/b/memory.max", "max\n");
        write("a/memory.max", "419430400\n");
        write("memory/x/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/memory.limit_in_bytes", "500\n");
        let least = |groups: &str| group_limits(mount.path(), groups).min();
        assert_eq!(least("0::/a/b\n"), Some(400 << 20));
        assert_eq!(least("4:memory:/x\n3:cpuset:/a\n"), Some(500));
        assert_eq!(least("0::/\nnonsense\n"), None);
    }

    #[test]
    fn this_process_has_some() {
        assert!(resident() > 1 << 20 && limit() > resident());
    }
}
