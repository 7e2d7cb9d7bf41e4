//! Children that have not ended, by user.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Maximum number of children of a user.
pub(super) const MAX_OF_USER: usize = 4;
/// Maximum number of children of all users but root together. Each is a process.
pub(super) const MAX_OF_ALL: usize = 64;

/// A child, as spind knows it: the socket of its reports, which closes when the child has ended.
#[derive(Clone, Debug)]
pub(super) struct Child(pub(super) Arc<UnixStream>);

impl Child {
    /// Whether it ends within `limit`.
    pub(super) fn ends_within(&self, limit: Duration) -> bool {
        // POLLHUP is always reported.
        let mut socket = [PollFd::new(&*self.0, PollFlags::empty())];
        poll(&mut socket, Timespec::try_from(limit).ok().as_ref()).is_ok_and(|ready| ready > 0)
    }
}

/// Children of all users.
#[derive(Debug, Default)]
pub(super) struct Children(Mutex<Vec<(u32, Child)>>);

impl Children {
    /// Counts a child of a user. `None` when the user, or all users but root together, have reached the limit.
    pub(super) fn add(&self, uid: u32, reports: UnixStream) -> Option<Child> {
        // The list is consistent wherever a thread could panic.
        let mut children = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        children.retain(|(_, child)| !child.ends_within(Duration::ZERO));
        let of_user = children.iter().filter(|(user, _)| *user == uid).count();
        let of_all = children.iter().filter(|(user, _)| *user != 0).count();
        (of_user < MAX_OF_USER && (uid == 0 || of_all < MAX_OF_ALL)).then(|| {
            let child = Child(Arc::new(reports));
            children.push((uid, child.clone()));
            child
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::{Children, MAX_OF_ALL, MAX_OF_USER};

    #[test]
    fn users_are_limited_each_and_together_and_root_only_by_itself() {
        let children = Children::default();
        let add = |uid: u32| {
            let (ours, theirs) = UnixStream::pair().expect("sockets");
            children.add(uid, ours).map(|_| theirs)
        };
        let mut open: Vec<_> = (0..MAX_OF_USER).map(|_| add(7).expect("below the limit")).collect();
        assert!(add(7).is_none());
        open.pop();
        open.push(add(7).expect("one has ended"));
        let others = (MAX_OF_USER..MAX_OF_ALL).map(|index| add(100 + index as u32 / 2).expect("there is room"));
        open.extend(others);
        assert!(add(8).is_none(), "all users but root together");
        open.extend((0..MAX_OF_USER).map(|_| add(0).expect("root is not counted with others")));
        assert!(add(0).is_none());
    }
}
