//! Passing descriptors over a Unix socket (`SCM_RIGHTS`, unix(7)).

use core::ffi::c_int;
use core::mem::MaybeUninit;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::ioctl::{Getter, Opcode, ioctl};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Maximum number of descriptors in one message.
pub const MAX_FDS: usize = 16;
const SPACE: usize = rustix::cmsg_space!(ScmRights(MAX_FDS));

/// Received bytes and descriptors.
#[derive(Debug)]
pub struct Received {
    /// Number of bytes in the buffer; 0 when the peer has closed its end.
    pub len: usize,
    /// Descriptors, close-on-exec; at most the requested number.
    pub fds: Vec<OwnedFd>,
    /// Whether more descriptors were sent; these have been closed.
    pub closed_surplus: bool,
}

/// Sends `bytes`; the first byte carries `fds`, of which the peer gets duplicates. Returns the number of bytes sent. On
/// a stream it may be smaller than requested; the rest must then be sent without descriptors.
///
/// # Errors
/// The errors of sendmsg(2), never a signal; `InvalidInput` for more than [`MAX_FDS`] descriptors, or for descriptors
/// without a byte to carry them.
pub fn send_with_fds(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    if fds.len() > MAX_FDS {
        return Err(invalid(format!("{} descriptors in one message, at most {MAX_FDS} fit", fds.len())));
    }
    if bytes.is_empty() && !fds.is_empty() {
        return Err(invalid("descriptors need at least one byte to travel with".to_owned()));
    }
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(invalid("the descriptors do not fit a message".to_owned()));
    }
    Ok(retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL))?)
}

/// Receives into `buffer`, with at most `max_fds` (and [`MAX_FDS`]) descriptors. Surplus descriptors are closed.
///
/// # Errors
/// The errors of recvmsg(2).
pub fn recv_with_fds(socket: impl AsFd, buffer: &mut [u8], max_fds: usize) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message =
        retry_on_intr(|| recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let mut received =
        Received { len: message.bytes, fds: Vec::new(), closed_surplus: message.flags.contains(ReturnFlags::CTRUNC) };
    for message in control.drain() {
        let RecvAncillaryMessage::ScmRights(fds) = message else { continue };
        for fd in fds {
            if received.fds.len() < max_fds {
                received.fds.push(fd);
            } else {
                // Dropping the descriptor closes it: a peer must not fill our descriptor table.
                received.closed_surplus = true;
            }
        }
    }
    Ok(received)
}

/// `SIOCOUTQ` (linux/sockios.h), which is `TIOCOUTQ` (asm-generic/ioctls.h).
const UNREAD: Opcode = 0x5411;

/// Returns the memory in bytes of sent data that the peer has not received (unix(7)). Descriptors carried by that data
/// are still in flight.
///
/// # Errors
/// The errors of ioctl(2).
pub fn unread(socket: impl AsFd) -> io::Result<u64> {
    // SAFETY: this request writes an int and nothing else.
    let unread = unsafe { ioctl(&socket, Getter::<UNREAD, c_int>::new()) };
    Ok(u64::try_from(unread?).unwrap_or(0))
}

/// Socket option of asm-generic/socket.h, in Linux 6.16 and later.
const SO_PASSRIGHTS: c_int = 83;

/// Makes the kernel reject descriptors sent to a socket, or to sockets accepted from a listening one. Otherwise
/// dropping the last reference to a file may block on its owner, even if the descriptor was never received.
///
/// # Errors
/// The errors of setsockopt(2): ENOPROTOOPT if the kernel does not support the option.
pub fn take_no_fds(socket: impl AsFd) -> io::Result<()> {
    pass_rights(socket.as_fd(), false)
}

/// Undoes [`take_no_fds`] for one socket.
///
/// # Errors
/// The errors of setsockopt(2), but none if the kernel does not support the option: it never rejects descriptors then.
pub fn take_fds(socket: impl AsFd) -> io::Result<()> {
    match pass_rights(socket.as_fd(), true) {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
        set => set,
    }
}

fn pass_rights(socket: BorrowedFd<'_>, pass: bool) -> io::Result<()> {
    let (value, fd) = (c_int::from(pass), socket.as_raw_fd());
    // SAFETY: the option's value is an int, and the kernel reads the size of an int.
    let set = unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw const value).cast(), size_of_val(&value) as u32)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::{MAX_FDS, recv_with_fds, send_with_fds, take_fds, take_no_fds, unread};
    use crate::Region;
    use std::io::{ErrorKind, Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixListener, UnixStream};

    fn pair() -> (UnixStream, UnixStream) {
        let (a, b) = UnixStream::pair().expect("a socket pair");
        for socket in [&a, &b] {
            socket.set_nonblocking(true).expect("non-blocking");
        }
        (a, b)
    }

    #[test]
    fn a_region_travels() {
        let (ours, theirs) = pair();
        let region = Region::create(4096).expect("a region");
        region.write(8, b"hello").expect("within bounds");
        assert_eq!(send_with_fds(&ours, b"take this", &[region.fd()]).expect("sent"), 9);
        let mut buffer = [0; 64];
        let mut received = recv_with_fds(&theirs, &mut buffer, 1).expect("received");
        assert_eq!((&buffer[..received.len], received.closed_surplus), (&b"take this"[..], false));
        let fd = received.fds.pop().expect("a descriptor");
        assert!(rustix::io::fcntl_getfd(&fd).expect("flags").contains(rustix::io::FdFlags::CLOEXEC));
        let mapped = Region::from_fd(fd, 4096).expect("a region");
        let mut bytes = [0; 5];
        mapped.read(8, &mut bytes).expect("within bounds");
        assert_eq!(&bytes, b"hello");
    }

    /// Sends `count` duplicates of one socket and receives at most `max`. The last element of the result tells whether
    /// all others are closed.
    fn surplus(count: usize, max: usize) -> (usize, bool, bool) {
        let (ours, theirs) = pair();
        let (passed, mut watch) = pair();
        send_with_fds(&ours, b"x", &vec![passed.as_fd(); count]).expect("sent");
        drop(passed);
        let received = recv_with_fds(&theirs, &mut [0; 8], max).expect("received");
        let (fds, closed_surplus) = (received.fds.len(), received.closed_surplus);
        drop(received);
        // End of file arrives only when no duplicate is left open.
        let all_closed = matches!(watch.read(&mut [0; 1]), Ok(0));
        (fds, closed_surplus, all_closed)
    }

    #[test]
    fn who_takes_none_is_sent_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("it listens");
        if let Err(error) = take_no_fds(&listener) {
            // Kernels before Linux 6.16 do not support the option.
            return assert_eq!(error.raw_os_error(), Some(libc::ENOPROTOOPT));
        }
        let early = UnixStream::connect(&path).expect("connects");
        let (accepted, _) = listener.accept().expect("accepts");
        let late = UnixStream::connect(&path).expect("connects");
        for sender in [&early, &late] {
            let refused = send_with_fds(sender, b"x", &[listener.as_fd()]).map_err(|error| error.kind());
            assert_eq!(refused, Err(ErrorKind::PermissionDenied));
            assert_eq!(send_with_fds(sender, b"x", &[]).expect("sent"), 1);
        }
        send_with_fds(&accepted, b"x", &[listener.as_fd()]).expect("the other way they go");
        take_fds(&accepted).expect("set");
        send_with_fds(&early, b"x", &[listener.as_fd()]).expect("accepted from now on");
        assert!(send_with_fds(&late, b"x", &[listener.as_fd()]).is_err(), "another socket");
    }

    #[test]
    fn what_was_not_received_is_known() {
        let (ours, theirs) = pair();
        assert_eq!(unread(&ours).expect("told"), 0);
        send_with_fds(&ours, b"take this", &[theirs.as_fd()]).expect("sent");
        assert!(unread(&ours).expect("told") > 0);
        let mut buffer = [0; 64];
        assert_eq!(recv_with_fds(&theirs, &mut buffer, 1).expect("received").fds.len(), 1);
        assert_eq!(unread(&ours).expect("told"), 0);
    }

    #[test]
    fn descriptors_not_asked_for_are_closed() {
        assert_eq!(surplus(3, 1), (1, true, true));
        assert_eq!(surplus(2, 0), (0, true, true));
        assert_eq!(surplus(MAX_FDS, MAX_FDS), (MAX_FDS, false, true));
        assert_eq!(surplus(MAX_FDS, usize::MAX), (MAX_FDS, false, true));
    }

    #[test]
    fn more_than_the_kernel_has_room_for_is_noticed() {
        let (ours, theirs) = pair();
        let fds = [ours.as_fd(); MAX_FDS + 2];
        let mut space = [core::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS + 2))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds)));
        let bytes = [std::io::IoSlice::new(b"x")];
        rustix::net::sendmsg(&ours, &bytes, &mut control, rustix::net::SendFlags::empty()).expect("sent");
        let received = recv_with_fds(&theirs, &mut [0; 8], MAX_FDS).expect("received");
        assert_eq!((received.fds.len(), received.closed_surplus), (MAX_FDS, true));
    }

    #[test]
    fn refusals_and_ends() {
        let (mut ours, theirs) = pair();
        let fd = theirs.as_fd();
        assert_eq!(send_with_fds(&ours, b"", &[fd]).map_err(|e| e.kind()), Err(ErrorKind::InvalidInput));
        let many = [fd; MAX_FDS + 1];
        assert_eq!(send_with_fds(&ours, b"x", &many).map_err(|e| e.kind()), Err(ErrorKind::InvalidInput));
        let none = recv_with_fds(&theirs, &mut [0; 8], 1).map(|received| received.len);
        assert_eq!(none.map_err(|e| e.kind()), Err(ErrorKind::WouldBlock));
        ours.write_all(b"plain").expect("sent");
        drop(ours);
        let mut buffer = [0; 8];
        let received = recv_with_fds(&theirs, &mut buffer, 1).expect("received");
        assert_eq!((&buffer[..received.len], received.fds.len()), (&b"plain"[..], 0));
        assert_eq!(recv_with_fds(&theirs, &mut buffer, 1).expect("the end").len, 0);
        let gone = send_with_fds(&theirs, b"x", &[]).map_err(|e| e.kind());
        assert_eq!(gone, Err(ErrorKind::BrokenPipe), "an error, not a signal");
    }
}
