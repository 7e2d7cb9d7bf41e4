//! The map of AF_XDP sockets, by a descriptor of another process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::sys;
use crate::error::NicError;

/// A map of AF_XDP sockets (`BPF_MAP_TYPE_XSKMAP`). Programs give it packets for user space.
#[derive(Debug)]
pub struct SocketMap {
    map: OwnedFd,
}

impl SocketMap {
    /// The map of this descriptor.
    ///
    /// # Errors
    /// [`NicError::Config`] when the descriptor is of another map, [`NicError::System`] when it is of no map.
    pub fn new(map: OwnedFd) -> Result<Self, NicError> {
        match sys::is_socket_map(map.as_fd()) {
            Ok(true) => Ok(Self { map }),
            Ok(false) => Err(NicError::Config {
                what: "the map of sockets",
                value: "another map".to_owned(),
                must: "give one of AF_XDP sockets (BPF_MAP_TYPE_XSKMAP)",
            }),
            Err(error) => Err(NicError::system("describe a map", error)),
        }
    }
}

impl AsFd for SocketMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}
