//! A process with several threads does not fork. A program of its own: the kernel reaps all its children afterwards.

use std::io::ErrorKind;
use std::sync::mpsc::channel;
use std::thread;

use spin_shm::Forker;

#[test]
fn a_process_with_several_threads_does_not_fork() {
    let forker = Forker::new().expect("/proc");
    let (end, ended) = channel::<()>();
    let other = thread::spawn(move || ended.recv());
    let refused = forker.run([], |[]| ()).map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::Unsupported));
    drop(end);
    other.join().expect("it ends").expect_err("nothing was sent");
}
