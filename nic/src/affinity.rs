//! CPU affinity of threads.

use rustix::process::getpid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Restricts this thread to `core`.
///
/// # Errors
/// A message, when there is no such core or the thread may not use it.
pub fn pin(core: usize) -> Result<(), String> {
    if core >= CpuSet::MAX_CPU {
        return Err(format!("there is no core {core}"));
    }
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only)
        .map_err(|errno| format!("cannot run on core {core}: {errno}; this thread may run on {:?}", available()))
}

/// The cores that this thread may run on, in ascending order.
#[must_use]
pub fn available() -> Vec<usize> {
    let may = sched_getaffinity(None);
    may.map(|may| (0..CpuSet::MAX_CPU).filter(|&core| may.is_set(core)).collect()).unwrap_or_default()
}

/// Drops `value` on a new thread, which may run on all cores of the first thread of the process. Returning memory to the
/// kernel can take milliseconds, too long for a thread that serves packets.
pub fn drop_in_background<T: Send + 'static>(value: T) {
    let drop_value = move || {
        let first = sched_getaffinity(Some(getpid()));
        // When that is not allowed the value is dropped on the cores of this thread.
        let _ = first.and_then(|cores| sched_setaffinity(None, &cores));
        drop(value);
    };
    // Without a thread the value is dropped here, with the closure.
    let _ = std::thread::Builder::new().name("spin-drop".to_owned()).spawn(drop_value);
}

/// Runs `make` on a new thread on `core`, or on this thread if that is impossible. The kernel allocates a page on the NUMA
/// node of the core that touches it first (`Documentation/admin-guide/mm/numa_memory_policy.rst`).
pub(crate) fn alloc_on_core<T: Send>(core: usize, make: impl Fn() -> T + Sync) -> T {
    let pinned = || pin(core).map(|()| make());
    let made = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, pinned).map_err(|error| error.to_string())?;
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

    use super::{alloc_on_core, drop_in_background, pin};

    /// Sends the thread that drops it, and the number of cores of that thread.
    struct DropReport(std::sync::mpsc::Sender<(std::thread::ThreadId, u32)>);

    impl Drop for DropReport {
        fn drop(&mut self) {
            let cores = sched_getaffinity(None).expect("this thread's cores").count();
            self.0.send((std::thread::current().id(), cores)).expect("the test receives");
        }
    }

    #[test]
    fn a_value_is_dropped_on_another_thread() {
        let all = sched_getaffinity(None).expect("this thread's cores");
        let core = (0..CpuSet::MAX_CPU).find(|&core| all.is_set(core)).expect("a core");
        let (report, reported) = std::sync::mpsc::channel();
        let pinned = std::thread::spawn(move || {
            pin(core).expect("it may run there");
            drop_in_background(DropReport(report));
            std::thread::current().id()
        });
        let pinned = pinned.join().expect("it dropped something");
        let (there, cores) = reported.recv().expect("it is dropped");
        assert!(there != pinned && cores == all.count());
    }

    #[test]
    fn make_runs_on_its_core() {
        let all = sched_getaffinity(None).expect("this thread's cores");
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| all.is_set(core)).collect();
        assert!(!cores.is_empty());
        for core in cores {
            assert_eq!(alloc_on_core(core, sched_getcpu), core);
        }
        assert_eq!(alloc_on_core(usize::MAX, || 7), 7);
        assert_eq!(sched_getaffinity(None).expect("the same").count(), all.count(), "this thread stays as it was");
    }
}
