//! The descriptor process, and its children.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::fcntl_get_seals;
use rustix::io::retry_on_intr;
use spin_shm::{Forker, MAX_FDS, recv_with_fds, send_with_fds, take_fds, take_no_fds};

use super::report::Report;

/// Starts a child for each pair of a connection and a socket for its reports, until spind has ended.
///
/// # Errors
/// The socket to spind failed.
pub fn serve(spind: &UnixStream, forker: &Forker) -> io::Result<()> {
    loop {
        let received = recv_with_fds(spind, &mut [0], 2)?;
        if received.len == 0 {
            return Ok(());
        }
        if let Ok(sockets) = <[OwnedFd; 2]>::try_from(received.fds) {
            // Without a child, spind reads the end of the reports.
            let _ = forker.run(sockets, receive);
        }
    }
}

/// Receives one descriptor, in a child. spind counts the child until the socket for reports closes.
fn receive([connection, reports]: [OwnedFd; 2]) {
    let send = |report: Report, fd: Option<&OwnedFd>| {
        send_with_fds(&reports, &[report as u8], fd.map(AsFd::as_fd).as_slice()).map(drop)
    };
    if take_fds(&connection).and_then(|()| send(Report::Ready, None)).is_err() {
        return;
    }
    let received = wait(&connection, &reports).map(|()| receive_from(&connection));
    // Kernels before Linux 6.16 do not support the option.
    let _ = take_no_fds(&connection);
    drop(connection);
    if let Some((report, fds)) = received {
        // spind may have stopped waiting.
        let _ = send(report, fds.first().filter(|_| report == Report::Memory));
        // This may block.
        drop(fds);
    }
}

/// Waits until the connection has a byte, or has closed. `None` when spind has stopped waiting.
fn wait(connection: &OwnedFd, reports: &OwnedFd) -> Option<()> {
    let mut sockets = [PollFd::new(reports, PollFlags::IN), PollFd::new(connection, PollFlags::IN)];
    retry_on_intr(|| poll(&mut sockets, None)).ok()?;
    sockets[0].revents().is_empty().then_some(())
}

/// Receives one byte with descriptors, and says what the first one is. The others are closed later, because that may block.
fn receive_from(connection: &OwnedFd) -> (Report, Vec<OwnedFd>) {
    let Ok(received) = recv_with_fds(connection, &mut [0], MAX_FDS) else { return (Report::Closed, Vec::new()) };
    let report = match received.fds.first() {
        _ if received.len == 0 => Report::Closed,
        None => Report::NoDescriptor,
        // The file system of another file is not asked, so this does not block.
        Some(fd) if fcntl_get_seals(fd).is_ok() => Report::Memory,
        Some(_) => Report::NotMemory,
    };
    (report, received.fds)
}
