//! Sends frames through a packet socket, byte for byte, as tcpreplay and scapy do.
#![allow(dead_code, reason = "each test file uses its part of this")]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::common::within;

/// A packet socket on an interface.
pub struct PacketSocket {
    socket: OwnedFd,
    index: u32,
}

impl PacketSocket {
    /// Opens a socket on an interface of a namespace.
    pub fn open(namespace: &str, interface: &str) -> Self {
        let name = std::ffi::CString::new(interface).expect("no zero byte");
        within(namespace, || {
            // SAFETY: a zero-terminated string, which lives during the call.
            let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
            // SAFETY: no pointers are passed.
            let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
            assert!(fd >= 0, "{}", std::io::Error::last_os_error());
            // SAFETY: a new descriptor, which nothing else owns.
            Self { socket: unsafe { OwnedFd::from_raw_fd(fd) }, index }
        })
    }

    /// Sends a frame. Returns whether the interface took it.
    pub fn send(&self, frame: &[u8]) -> bool {
        // SAFETY: integers and arrays of integers, for which zero is a valid value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = self.index as i32;
        let (to, len) = (std::ptr::from_ref(&address).cast(), size_of::<libc::sockaddr_ll>() as u32);
        // SAFETY: the bytes of the frame and the address are readable for the given lengths.
        let sent = unsafe { libc::sendto(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0, to, len) };
        sent == frame.len() as isize
    }
}

/// Opens a socket that receives all frames of an interface of a namespace. A read waits a short time at most.
pub fn listen(namespace: &str, interface: &str) -> OwnedFd {
    let PacketSocket { socket, index } = PacketSocket::open(namespace, interface);
    // SAFETY: integers and arrays of integers, for which zero is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let wait = libc::timeval { tv_sec: 0, tv_usec: 200_000 };
    let (buffer, yes): (i32, i32) = (4 << 20, 1);
    let set = |level, name, value: *const libc::c_void, len: usize| {
        // SAFETY: the value is readable for its length.
        assert_eq!(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, len as u32) }, 0);
    };
    set(libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const wait).cast(), size_of_val(&wait));
    set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, (&raw const buffer).cast(), size_of_val(&buffer));
    set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, (&raw const yes).cast(), size_of_val(&yes));
    // SAFETY: the address is readable for its length.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32) };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    socket
}

/// The next frame of a [listening](listen) socket; `None` when none has arrived for a while.
pub fn receive(socket: &OwnedFd) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 1 << 16];
    // SAFETY: the buffer is writable for its length.
    let len = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    buffer.truncate(usize::try_from(len).ok()?);
    Some(buffer)
}

/// Sends one frame on an interface of a namespace.
pub fn send(namespace: &str, interface: &str, frame: &[u8]) {
    let sent = PacketSocket::open(namespace, interface).send(frame);
    assert!(sent, "{}", std::io::Error::last_os_error());
}

/// Number of frames that an interface has received.
pub fn received(namespace: &str, interface: &str) -> u64 {
    let args = ["netns", "exec", namespace, "cat"];
    let path = format!("/sys/class/net/{interface}/statistics/rx_packets");
    let output = std::process::Command::new("ip").args(args).arg(path).output().expect("ip runs");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
}
