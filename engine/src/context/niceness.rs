//! Priority of threads that load and translate.

/// Value of nice(2) for threads that load and translate. On a shared core they get a tenth of the time of a thread that processes
/// packets.
const NICE: i32 = 10;

/// Lowers the priority of the calling thread, so that threads that process packets on the same core run first.
pub(crate) fn lower_priority() {
    // A thread without privileges may lower its own priority.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}
