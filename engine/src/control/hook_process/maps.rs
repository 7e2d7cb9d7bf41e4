//! Maps of the hook process, by their tokens.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use spin_nic::hook::{ArrayMap, SocketMap};

use super::message::MapToken;

/// Maximum size of a map, in bytes.
pub(super) const MAX_MAP: u32 = 64 << 20;

/// A map.
pub(super) enum Map {
    /// An array map that this process made.
    Memory(ArrayMap),
    /// Sockets that spind has.
    Sockets(SocketMap),
}

/// Content of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MapKind {
    /// So many bytes.
    Memory(u32),
    /// AF_XDP sockets.
    Sockets,
}

impl Map {
    pub(super) fn kind(&self) -> MapKind {
        match self {
            Self::Memory(map) => MapKind::Memory(u32::try_from(map.value_size()).unwrap_or(0)),
            Self::Sockets(_) => MapKind::Sockets,
        }
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Memory(map) => map.as_fd(),
            Self::Sockets(map) => map.as_fd(),
        }
    }
}

/// All maps.
#[derive(Default)]
pub(super) struct MapStore {
    maps: BTreeMap<MapToken, Map>,
    /// Number of maps so far, which is the next token.
    count: u64,
}

impl MapStore {
    /// Makes an array map with a value of `len` bytes. Returns a further descriptor of it, too.
    pub(super) fn make(&mut self, name: &str, len: u32) -> io::Result<(MapToken, OwnedFd)> {
        if len > MAX_MAP {
            return Err(io::Error::other(format!("a map of {len} B: at most {MAX_MAP} B")));
        }
        let map = ArrayMap::new(name, len).map_err(io::Error::other)?;
        let fd = map.as_fd().try_clone_to_owned()?;
        Ok((self.add(Map::Memory(map)), fd))
    }

    /// Adds a map of sockets.
    pub(super) fn add_sockets(&mut self, fd: Option<OwnedFd>) -> io::Result<MapToken> {
        let fd = fd.ok_or_else(|| io::Error::other("no map of sockets was given"))?;
        Ok(self.add(Map::Sockets(SocketMap::new(fd).map_err(io::Error::other)?)))
    }

    fn add(&mut self, map: Map) -> MapToken {
        let token = MapToken(self.count);
        self.count += 1;
        self.maps.insert(token, map);
        token
    }

    /// Closes maps.
    pub(super) fn free(&mut self, tokens: &[MapToken]) -> io::Result<()> {
        // All that exist, whatever else is among them.
        let freed = tokens.iter().filter(|token| self.maps.remove(token).is_some()).count();
        if freed == tokens.len() { Ok(()) } else { Err(io::Error::other("a map to be freed does not exist")) }
    }

    /// The map of a token.
    pub(super) fn get(&self, token: MapToken) -> io::Result<&Map> {
        let MapToken(number) = token;
        self.maps.get(&token).ok_or_else(|| io::Error::other(format!("map {number} does not exist")))
    }
}
