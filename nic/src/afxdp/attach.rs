//! Attaches the XDP program to an interface.
//!
//! A bpf_link is used: the kernel detaches the program when the last descriptor is closed, however the process ends.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use libbpf_rs::libbpf_sys::{BPF_XDP, bpf_link_create, bpf_link_create_opts};
use libbpf_rs::{Xdp, XdpFlags};
use rustix::io::Errno;

use super::config::Mode;
use super::filter::Filter;
use super::interface::Interface;
use crate::error::NicError;

/// Longest wait for another program to be detached: the program of a killed process stays until the kernel closes the
/// files of that process.
const BUSY_TIMEOUT: Duration = Duration::from_millis(1500);

/// An attached program. Dropping it detaches.
pub(crate) struct Attached {
    _link: OwnedFd,
    /// Attached in native mode, otherwise generic.
    pub(super) native: bool,
}

/// Attaches `filter` to `interface`.
pub(super) fn attach(filter: &Filter, interface: &Interface, mode: Mode) -> Result<Attached, NicError> {
    attach_either([filter.program(), filter.generic()], interface, mode)
}

/// Attaches the first program in native mode, or the second in generic mode.
pub(crate) fn attach_either(
    programs: [BorrowedFd<'_>; 2],
    interface: &Interface,
    mode: Mode,
) -> Result<Attached, NicError> {
    if mode != Mode::Generic {
        match attach_as(programs[0], interface, XdpFlags::DRV_MODE, "native") {
            Err(NicError::Attach { source, .. }) if mode == Mode::Auto => {
                tracing::info!(interface = interface.name, reason = %source, "no native XDP here, using generic mode");
            }
            Err(error) => return Err(error),
            Ok(link) => {
                tracing::info!(interface = interface.name, "XDP program attached in native mode");
                return Ok(Attached { _link: link, native: true });
            }
        }
    }
    let link = attach_as(programs[1], interface, XdpFlags::SKB_MODE, "generic")?;
    tracing::info!(interface = interface.name, "XDP program attached in generic mode");
    Ok(Attached { _link: link, native: false })
}

fn attach_as(
    program: BorrowedFd<'_>,
    interface: &Interface,
    flags: XdpFlags,
    mode: &'static str,
) -> Result<OwnedFd, NicError> {
    let begin = Instant::now();
    loop {
        let errno = match link(program, interface.index, flags.bits()) {
            Ok(link) => return Ok(link),
            Err(errno) => errno,
        };
        match errno {
            Errno::BUSY | Errno::EXIST if begin.elapsed() < BUSY_TIMEOUT => sleep(Duration::from_millis(20)),
            Errno::BUSY | Errno::EXIST => {
                let id = attached_id(program, interface.index);
                return Err(NicError::AlreadyAttached { name: interface.name.clone(), id });
            }
            Errno::PERM | Errno::ACCESS => {
                return Err(NicError::Privileges { action: "attach an XDP program to the interface" });
            }
            errno => {
                let (name, hint) = (interface.name.clone(), hint(errno));
                return Err(NicError::Attach { name, mode, source: errno.into(), hint });
            }
        }
    }
}

fn link(program: BorrowedFd<'_>, index: u32, flags: u32) -> Result<OwnedFd, Errno> {
    let options = bpf_link_create_opts { sz: size_of::<bpf_link_create_opts>() as u64, flags, ..Default::default() };
    // The kernel represents an interface index as a positive int.
    let index = i32::try_from(index).map_err(|_| Errno::NODEV)?;
    // SAFETY: `options` has the size it claims, lives during the call, and contains no pointers.
    let fd = unsafe { bpf_link_create(program.as_raw_fd(), index, BPF_XDP, &raw const options) };
    if fd < 0 {
        return Err(Errno::from_raw_os_error(fd.checked_neg().unwrap_or(libc::EINVAL)));
    }
    // SAFETY: a non-negative result is a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The usual remedy for an error of a driver, in particular of veth (drivers/net/veth.c, `veth_xdp_set`).
fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::RANGE | Errno::INVAL => "; lower its MTU, and that of its peer if it is a veth, or use generic mode",
        Errno::NOSPC => "; give both ends of a veth equally many queues, or use generic mode",
        Errno::OPNOTSUPP => "; its driver has no native XDP, use generic mode",
        _ => "",
    }
}

/// Id of the attached program. 0 when it has been detached. `program` is any XDP program.
fn attached_id(program: BorrowedFd<'_>, index: u32) -> u32 {
    let Ok(index) = i32::try_from(index) else { return 0 };
    let ids = Xdp::new(program).query(index, XdpFlags::NONE);
    let ids = ids.map(|answer| [answer.prog_id, answer.drv_prog_id, answer.skb_prog_id, answer.hw_prog_id]);
    ids.unwrap_or_default().into_iter().find(|&id| id != 0).unwrap_or(0)
}
