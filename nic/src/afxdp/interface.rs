//! Properties of an interface. Ioctls ask the network namespace of the calling thread. Sysfs, used where a driver answers no
//! ioctl, shows the namespace it was mounted in.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::{fs, io};

use libc::{c_char, c_int, c_ulong, c_void, ifreq};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::error::NicError;

/// linux/ethtool.h. libc does not define it.
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_channels`, linux/ethtool.h.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// An interface that is up.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(super) mtu: u32,
    /// Receive queues, at least 1.
    pub(super) queues: u32,
    /// Transmit queues, at least 1.
    pub(super) transmit: u32,
}

/// MAC address of an interface, in the network namespace of the calling thread.
///
/// # Errors
/// No such interface.
pub fn mac_address(name: &str) -> Result<[u8; 6], NicError> {
    let (query, mut request) = Query::about(name)?;
    query.mac(&mut request)
}

impl Interface {
    /// Finds the interface `name`.
    pub(crate) fn find(name: &str) -> Result<Self, NicError> {
        let (query, mut request) = Query::about(name)?;
        let index = query.index(&mut request)?;
        if !query.is_up(&mut request)? {
            return Err(NicError::Down { name: name.to_owned() });
        }
        let mtu = query.mtu(&mut request)?;
        let [queues, transmit] = query.queues(&mut request).or_else(|| sysfs_queues(name, index)).unwrap_or([1; 2]);
        Ok(Self { name: name.to_owned(), index, mtu, queues, transmit })
    }
}

/// A request for the interface. `None` when the name is too long or has a zero byte.
fn request(name: &str) -> Option<ifreq> {
    // SAFETY: all fields of the C struct are integers, arrays or unions of them, for which zero is a valid value.
    let mut request: ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero to end the name.
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    Some(request)
}

struct Query<'a> {
    socket: OwnedFd,
    name: &'a str,
}

impl<'a> Query<'a> {
    fn about(name: &'a str) -> Result<(Self, ifreq), NicError> {
        let action = "open a socket to ask for the interface";
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .map_err(|errno| NicError::system(action, errno))?;
        let request = request(name).ok_or_else(|| no_interface(name))?;
        Ok((Self { socket, name }, request))
    }

    /// Calls an interface ioctl. The argument of `code` must be a `struct ifreq`, and the kernel must not keep a pointer to it.
    fn ask(&self, code: c_ulong, request: &mut ifreq) -> io::Result<()> {
        // SAFETY: the descriptor is open. This file passes only SIOC[GS]IF* and SIOCETHTOOL codes. For these the kernel reads
        // and writes one ifreq, and for the last also the target of `ifr_data`, which `queues` keeps alive.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), code as _, std::ptr::from_mut(request)) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn index(&self, request: &mut ifreq) -> Result<u32, NicError> {
        self.ask(libc::SIOCGIFINDEX as c_ulong, request).map_err(|_| no_interface(self.name))?;
        // SAFETY: SIOCGIFINDEX wrote this variant, an integer.
        Ok(unsafe { request.ifr_ifru.ifru_ifindex } as u32)
    }

    fn is_up(&self, request: &mut ifreq) -> Result<bool, NicError> {
        let ask = self.ask(libc::SIOCGIFFLAGS as c_ulong, request);
        ask.map_err(|error| NicError::system("read the interface's flags", error))?;
        // SAFETY: SIOCGIFFLAGS wrote this variant, an integer.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        Ok(c_int::from(flags) & libc::IFF_UP != 0)
    }

    fn mtu(&self, request: &mut ifreq) -> Result<u32, NicError> {
        let ask = self.ask(libc::SIOCGIFMTU as c_ulong, request);
        ask.map_err(|error| NicError::system("read the interface's MTU", error))?;
        // SAFETY: SIOCGIFMTU wrote this variant, an integer.
        Ok(unsafe { request.ifr_ifru.ifru_mtu }.unsigned_abs())
    }

    fn mac(&self, request: &mut ifreq) -> Result<[u8; 6], NicError> {
        self.ask(libc::SIOCGIFHWADDR as c_ulong, request).map_err(|_| no_interface(self.name))?;
        // SAFETY: SIOCGIFHWADDR wrote this variant, an array of integers.
        let [a, b, c, d, e, f, ..] = unsafe { request.ifr_ifru.ifru_hwaddr }.sa_data;
        Ok([a, b, c, d, e, f].map(|byte| byte as u8))
    }

    /// Numbers of receive and transmit queues: combined and separate channels. `None` when the driver does not support this.
    fn queues(&self, request: &mut ifreq) -> Option<[u32; 2]> {
        let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
        request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut channels).cast::<c_void>().cast();
        self.ask(libc::SIOCETHTOOL as c_ulong, request).ok()?;
        Some([channels.rx, channels.tx].map(|pure| channels.combined.saturating_add(pure).max(1)))
    }
}

/// Numbers of receive and transmit queues from sysfs. `None` when sysfs shows an interface of another namespace.
fn sysfs_queues(name: &str, index: u32) -> Option<[u32; 2]> {
    let folder = Path::new("/sys/class/net").join(name);
    let sysfs_index = fs::read_to_string(folder.join("ifindex")).ok()?;
    if sysfs_index.trim().parse() != Ok(index) {
        return None;
    }
    let queues = fs::read_dir(folder.join("queues")).ok()?;
    let names: Vec<_> = queues.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    let count = |kind: &str| names.iter().filter(|name| name.starts_with(kind)).count();
    Some(["rx-", "tx-"].map(|kind| u32::try_from(count(kind)).unwrap_or(u32::MAX).max(1)))
}

fn no_interface(name: &str) -> NicError {
    NicError::NoInterface { name: name.to_owned(), existing: names() }
}

/// Names of all interfaces of this network namespace.
fn names() -> Vec<String> {
    // SAFETY: no arguments; the result is null or a list that if_freenameindex releases.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return Vec::new();
    }
    let mut names = Vec::new();
    let mut entry = list;
    loop {
        // SAFETY: `entry` lies within the list, which ends with an entry of index 0, where this loop stops.
        let item = unsafe { &*entry };
        if item.if_index == 0 || item.if_name.is_null() {
            break;
        }
        // SAFETY: the name of an entry is a zero-terminated string, which lives as long as the list.
        names.push(unsafe { CStr::from_ptr(item.if_name) }.to_string_lossy().into_owned());
        // SAFETY: this entry is not the last, so a next one exists.
        entry = unsafe { entry.add(1) };
    }
    // SAFETY: `list` comes from if_nameindex, is released once and not used afterwards.
    unsafe { libc::if_freenameindex(list) };
    names
}

#[cfg(test)]
mod tests {
    use super::{Interface, mac_address, names, request, sysfs_queues};
    use crate::error::NicError;

    #[test]
    fn the_loopback_has_an_address_of_zeros() {
        assert_eq!(mac_address("lo").expect("it exists"), [0; 6]);
        assert!(matches!(mac_address("nosuchif0"), Err(NicError::NoInterface { .. })));
    }

    #[test]
    fn every_network_namespace_has_a_loopback() {
        assert!(names().contains(&"lo".to_owned()));
    }

    #[test]
    fn sysfs_is_used_for_the_same_interface_only() {
        assert_eq!(sysfs_queues("lo", 1), Some([1, 1]));
        assert_eq!(sysfs_queues("lo", 2), None, "another namespace's");
        assert_eq!(sysfs_queues("nosuchif0", 1), None);
    }

    #[test]
    fn unknown_and_invalid_names_list_the_interfaces() {
        for name in ["nosuchif0", "", "a name that is longer than any", "nul\0byte"] {
            match Interface::find(name) {
                Err(NicError::NoInterface { existing, .. }) => assert!(existing.contains(&"lo".to_owned())),
                other => panic!("{name:?}: {other:?}"),
            }
        }
        assert!(request("fifteen_letters").is_some() && request("sixteen_letters_").is_none());
    }
}
