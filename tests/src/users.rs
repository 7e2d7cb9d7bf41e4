//! Other users of the host, in tests that run as root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// Whether tests can act as other users. Reports a skipped test if not.
#[must_use]
pub fn can_be_other_users() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs `act` as an ordinary user, on a thread of its own. Sockets that it connects keep that user's identity.
///
/// # Panics
/// When the test does not run as root, or `act` panics.
pub fn as_user<R: Send>(uid: u32, act: impl FnOnce() -> R + Send) -> R {
    let run = || {
        let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
        // User ids belong to threads in Linux. The user goes last: only root may set groups.
        set_thread_groups(&[]).expect("root may drop groups");
        set_thread_res_gid(group, group, group).expect("root may change its group");
        set_thread_res_uid(user, user, user).expect("root may become another user");
        act()
    };
    thread::scope(|scope| scope.spawn(run).join()).expect("the user's part does not panic")
}

/// A temporary folder that all users may enter.
pub(crate) fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    folder
}
