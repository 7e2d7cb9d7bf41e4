//! The descriptor process of spind receives memory files of users, and nothing else.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::{MemfdFlags, Mode, OFlags};
use spin_engine::control::descriptor_process::client::{DescriptorProcess, ReceiveError};
use spin_shm::send_with_fds;

/// A user.
const USER: u32 = 7;
/// Longest wait for what comes.
const LIMIT: Duration = Duration::from_secs(20);

fn start(limit: Duration) -> DescriptorProcess {
    DescriptorProcess::start(Path::new(env!("CARGO_BIN_EXE_spind")), None).expect("it starts").with_limit(limit)
}

/// A memory file with a byte in it.
fn memory(byte: u8) -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
    rustix::io::write(&fd, &[byte]).expect("written");
    fd
}

fn byte_of(fd: OwnedFd) -> u8 {
    let mut byte = [0];
    rustix::io::pread(fd, &mut byte, 0).expect("read");
    byte[0]
}

/// Receives from a peer that sends `fds` with one byte when it is asked to.
fn receive(process: &DescriptorProcess, fds: &[BorrowedFd<'_>]) -> (Result<OwnedFd, ReceiveError>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let received = process.receive(USER, ours.as_fd(), || send_with_fds(&theirs, b"x", fds).map(drop));
    (received, theirs)
}

#[test]
fn a_memory_file_arrives_and_the_connection_remains_usable() {
    let process = start(LIMIT);
    let (ours, mut theirs) = UnixStream::pair().expect("sockets");
    // One after the other, more than a user may have at once.
    for byte in 0..10 {
        let sent = || send_with_fds(&theirs, b"x", &[memory(byte).as_fd()]).map(drop);
        let fd = process.receive(USER, ours.as_fd(), sent).expect("received");
        assert!(rustix::io::fcntl_getfd(&fd).expect("flags").contains(rustix::io::FdFlags::CLOEXEC));
        assert_eq!(byte_of(fd), byte);
    }
    theirs.write_all(b"a request").expect("sent");
    drop(theirs);
    let mut rest = String::new();
    (&ours).read_to_string(&mut rest).expect("read");
    assert_eq!(rest, "a request", "nothing else was read from the connection");
}

#[test]
fn descriptors_of_other_files_are_refused() {
    let process = start(LIMIT);
    let open = |path: &str, flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).expect("it is there");
    let memory = memory(1);
    let by_path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let others: [(&str, OwnedFd); 6] = [
        ("a file", open("/proc/version", OFlags::RDONLY)),
        ("a folder", open("/proc", OFlags::DIRECTORY)),
        ("a device", open("/dev/null", OFlags::RDWR)),
        ("a path to a memory file", open(&by_path, OFlags::PATH)),
        ("a socket", UnixStream::pair().expect("sockets").0.into()),
        ("a pipe", io::pipe().expect("a pipe").1.into()),
    ];
    for (what, fd) in others {
        let (received, _) = receive(&process, &[fd.as_fd()]);
        let refused = received.expect_err(what);
        assert!(matches!(refused, ReceiveError::NotMemory) && refused.leaves_connection_usable(), "{what}: {refused}");
        assert!(refused.to_string().contains("memfd_create"), "{refused}");
    }
    let (received, _) = receive(&process, &[]);
    let refused = received.expect_err("none came");
    assert!(matches!(refused, ReceiveError::NoDescriptor) && refused.leaves_connection_usable(), "{refused}");
}

#[test]
fn surplus_descriptors_are_closed() {
    let process = start(LIMIT);
    let (mut watch, passed) = UnixStream::pair().expect("sockets");
    let (received, _) = receive(&process, &[memory(1).as_fd(), passed.as_fd(), passed.as_fd()]);
    assert_eq!(byte_of(received.expect("the first")), 1);
    drop(passed);
    watch.set_read_timeout(Some(LIMIT)).expect("set");
    assert_eq!(watch.read(&mut [0]).expect("the end"), 0, "nobody has them");
}

#[test]
fn a_peer_that_sends_nothing_or_closes_blocks_nobody() {
    let process = start(Duration::from_millis(50));
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let late = process.receive(USER, ours.as_fd(), || Ok(())).expect_err("nothing came");
    assert!(matches!(late, ReceiveError::TimedOut(_)) && !late.leaves_connection_usable(), "{late}");
    drop((ours, theirs));
    let process = process.with_limit(LIMIT);
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let closed = process
        .receive(USER, ours.as_fd(), || {
            drop(theirs);
            Ok(())
        })
        .expect_err("closed");
    assert!(matches!(closed, ReceiveError::Closed) && !closed.leaves_connection_usable(), "{closed}");
    let (ours, _theirs) = UnixStream::pair().expect("sockets");
    let unasked = process.receive(USER, ours.as_fd(), || Err(io::ErrorKind::BrokenPipe.into())).expect_err("not asked");
    assert!(matches!(unasked, ReceiveError::NotAsked(_)) && !unasked.leaves_connection_usable(), "{unasked}");
}

#[test]
fn a_user_receives_four_at_once_and_others_are_not_affected() {
    let process = &start(LIMIT);
    let (entered, entries) = std::sync::mpsc::channel();
    let open: Vec<_> = (0..4).map(|_| UnixStream::pair().expect("sockets")).collect();
    thread::scope(|scope| {
        for (ours, _) in &open {
            let entered = entered.clone();
            let ready = move || entered.send(()).map_err(io::Error::other);
            scope.spawn(move || process.receive(USER, ours.as_fd(), ready).map(byte_of).expect("at last"));
        }
        entries.iter().take(open.len()).for_each(drop);
        let (fifth, _) = receive(process, &[memory(1).as_fd()]);
        let refused = fifth.expect_err("too many");
        assert!(matches!(refused, ReceiveError::TooMany) && refused.leaves_connection_usable(), "{refused}");
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let sent = || send_with_fds(&theirs, b"x", &[memory(9).as_fd()]).map(drop);
        assert_eq!(byte_of(process.receive(USER + 1, ours.as_fd(), sent).expect("of another user")), 9);
        for (_, theirs) in &open {
            send_with_fds(theirs, b"x", &[memory(2).as_fd()]).expect("sent");
        }
    });
    let (received, _) = receive(process, &[memory(3).as_fd()]);
    assert_eq!(byte_of(received.expect("there is room again")), 3);
}

#[test]
fn descriptors_are_accepted_only_while_one_is_received() {
    let process = start(LIMIT);
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    if spin_shm::take_no_fds(&ours).is_err() {
        // Kernels before Linux 6.16 do not have the option.
        return;
    }
    let send = || send_with_fds(&theirs, b"x", &[memory(1).as_fd()]).map(drop);
    send().expect_err("not yet");
    process.receive(USER, ours.as_fd(), send).expect("received");
    send().expect_err("no more");
    let nothing = File::open("/dev/null").expect("it is there");
    let plain = || send_with_fds(&theirs, b"x", &[nothing.as_fd()]).map(drop);
    process.receive(USER, ours.as_fd(), plain).expect_err("no memory file");
    send().expect_err("no more after a refusal");
}
