//! Open files that spind may have, and what contexts and ports may take of them. Users then leave enough for others' requests.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::settings::Limits;

/// Descriptors of a context: its memory, host memory, event ring, image, and those that its connection needs.
const PER_CONTEXT: usize = 6;
/// More descriptors of a context in the hook: its program, and the memory that the program needs for itself.
const PER_HOOK: usize = 2;
/// Descriptors that are left to everything else: connections without contexts, children that receive descriptors, threads, the log.
const OTHERS: usize = 320;

/// The open files that the system allows this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors(usize);

impl Descriptors {
    /// Raises the limit as far as allowed, and returns it.
    pub fn raise() -> Self {
        let limit = getrlimit(Resource::Nofile);
        if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
            tracing::debug!("the limit of open files stays: {error}");
        }
        Self::current()
    }

    /// The present limit.
    pub fn current() -> Self {
        let files = getrlimit(Resource::Nofile).current;
        Self(files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX)))
    }

    /// The limits, with no more contexts than there are descriptors for. `kernel_tier`: whether they may run in the hook.
    pub fn fit(self, limits: Limits, kernel_tier: bool) -> Limits {
        let each = PER_CONTEXT + if kernel_tier { PER_HOOK } else { 0 };
        let contexts = (self.0.saturating_sub(OTHERS) / each).max(1);
        if contexts < limits.contexts {
            tracing::info!("at most {contexts} contexts: {} files may be open (ulimit -n)", self.0);
        }
        Limits { contexts: contexts.min(limits.contexts), ..limits }
    }

    /// Ports that contexts of all users may hold: each is a socket.
    pub const fn ports(self) -> usize {
        self.0 / 4
    }
}

#[cfg(test)]
mod tests {
    use super::Descriptors;
    use crate::settings::Limits;

    #[test]
    fn contexts_and_ports_leave_descriptors_to_others() {
        let in_tier = |files: usize, contexts, kernel_tier| {
            Descriptors(files).fit(Limits { contexts, ..Limits::default() }, kernel_tier).contexts
        };
        let fit = |files, contexts| in_tier(files, contexts, false);
        assert_eq!([fit(usize::MAX, 1024), fit(1024, 1024), fit(1024, 64), fit(10, 64)], [1024, 117, 64, 1]);
        assert_eq!([in_tier(usize::MAX, 1024, true), in_tier(1024, 1024, true)], [1024, 88]);
        // All contexts of a user with most ports take less than half.
        let files = 20_000;
        let of_user = fit(files, 1024) / 2 * super::PER_CONTEXT + Descriptors(files).ports() / 2;
        assert!(of_user < files / 2, "{of_user}");
    }
}
