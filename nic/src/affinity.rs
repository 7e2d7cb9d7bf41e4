//! Which core a thread runs on.

use rustix::process::getpid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Has this thread run on `core` alone.
///
/// # Errors
/// In words, when there is no such core or it may not be used.
pub fn pin(core: usize) -> Result<(), String> {
    if core >= CpuSet::MAX_CPU {
        return Err(format!("there is no core {core}"));
    }
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only).map_err(|errno| {
        let may = sched_getaffinity(None).map(|may| (0..CpuSet::MAX_CPU).filter(|&core| may.is_set(core)).collect());
        let may: Vec<_> = may.unwrap_or_default();
        format!("cannot run on core {core}: {errno}; this thread may run on {may:?}")
    })
}

/// Drops something on a thread of its own, which may run wherever the process's first thread may: giving memory back can take
/// milliseconds, which a thread that serves packets does not have.
pub fn drop_aside<T: Send + 'static>(gone: T) {
    let aside = move || {
        let first = sched_getaffinity(Some(getpid()));
        // Where that is not allowed it is dropped here.
        let _ = first.and_then(|cores| sched_setaffinity(None, &cores));
        drop(gone);
    };
    // Without a thread it is dropped with the closure.
    let _ = std::thread::Builder::new().name("spin-drop".to_owned()).spawn(aside);
}

/// What `make` makes on a thread on `core`; on any, if that cannot be. The kernel takes memory next to the core that asks for it
/// first (`Documentation/admin-guide/mm/numa_memory_policy.rst`).
pub(crate) fn made_on<T: Send>(core: usize, make: impl Fn() -> T + Sync) -> T {
    let there = || pin(core).map(|()| make());
    let made = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, there).map_err(|error| error.to_string())?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    made.unwrap_or_else(|error| {
        tracing::warn!("packet buffers are not made next to core {core}: {error}");
        make()
    })
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu};

    use super::{drop_aside, made_on, pin};

    /// Tells on which thread it was dropped, and how many cores that had.
    struct Told(std::sync::mpsc::Sender<(std::thread::ThreadId, u32)>);

    impl Drop for Told {
        fn drop(&mut self) {
            let cores = sched_getaffinity(None).expect("this thread's cores").count();
            self.0.send((std::thread::current().id(), cores)).expect("somebody listens");
        }
    }

    #[test]
    fn what_a_pinned_thread_drops_aside_goes_elsewhere() {
        let all = sched_getaffinity(None).expect("this thread's cores");
        let core = (0..CpuSet::MAX_CPU).find(|&core| all.is_set(core)).expect("a core");
        let (tell, told) = std::sync::mpsc::channel();
        let pinned = std::thread::spawn(move || {
            pin(core).expect("it may run there");
            drop_aside(Told(tell));
            std::thread::current().id()
        });
        let pinned = pinned.join().expect("it dropped something");
        let (there, cores) = told.recv().expect("it is dropped");
        assert!(there != pinned && cores == all.count());
    }

    #[test]
    fn what_is_made_on_a_core_is_made_there() {
        let all = sched_getaffinity(None).expect("this thread's cores");
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| all.is_set(core)).collect();
        assert!(!cores.is_empty());
        for core in cores {
            assert_eq!(made_on(core, sched_getcpu), core);
        }
        assert_eq!(made_on(usize::MAX, || 7), 7);
        assert_eq!(sched_getaffinity(None).expect("the same").count(), all.count(), "this thread stays as it was");
    }
}
