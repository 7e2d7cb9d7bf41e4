//! A file whose close blocks is closed by a child of the descriptor process, and counts against the user who sent it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use spin_engine::control::descriptor_process::client::{DescriptorProcess, ReceiveError};
use spin_shm::{Region, send_with_fds};
use spin_testing::UnansweredFile;

/// Two users.
const HOSTILE: u32 = 7;
const OTHER: u32 = 8;
/// Longest wait for what comes.
const LIMIT: Duration = Duration::from_secs(20);

/// Receives from a user that sends with `send` when it is asked to.
fn receive(
    process: &DescriptorProcess,
    uid: u32,
    send: impl FnOnce(&UnixStream) -> io::Result<usize>,
) -> Result<OwnedFd, ReceiveError> {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    process.receive(uid, ours.as_fd(), || send(&theirs).map(drop))
}

#[test]
fn files_whose_close_blocks_count_against_their_user_alone() {
    let Some(hostile) = UnansweredFile::mount() else { return };
    let process = DescriptorProcess::start(Path::new(env!("CARGO_BIN_EXE_spind")), None).expect("it starts");
    let memory = Region::create(4096).expect("a memory file");
    let memory_of = |uid| receive(&process, uid, |peer| send_with_fds(peer, b"x", &[memory.fd()]));
    for _ in 0..3 {
        let received = receive(&process, HOSTILE, |peer| send_with_fds(peer, b"x", &[hostile.open().as_fd()]));
        assert!(matches!(received, Err(ReceiveError::NotMemory)), "{received:?}");
        hostile.wait_for_close();
    }
    let both = |peer: &UnixStream| send_with_fds(peer, b"x", &[memory.fd(), hostile.open().as_fd()]);
    receive(&process, HOSTILE, both).expect("the first one");
    hostile.wait_for_close();
    let fifth = memory_of(HOSTILE);
    assert!(matches!(fifth, Err(ReceiveError::TooMany)), "{fifth:?}");
    memory_of(OTHER).expect("of another user");
    drop(hostile);
    let deadline = Instant::now() + LIMIT;
    while let Err(refused) = memory_of(HOSTILE) {
        assert!(matches!(refused, ReceiveError::TooMany) && Instant::now() < deadline, "{refused}");
    }
}
