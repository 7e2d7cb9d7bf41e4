//! Regions of array maps of BPF. They need root.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags};
use spin_abi::map::PAGE;

use super::layout::FaultOutcome;
use super::{Access, Region, Space, SpaceError, TaskStart};
use crate::view::RegionKind;

const L1: u32 = 0x1040_0000;
const L2: u32 = 0x1c40_0000;
/// bpf(2), its command to make a map, the kind of a map, and the flag of one that can be mapped (linux/bpf.h).
const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_F_MMAPABLE: u32 = 1 << 10;

/// An array map with one value of `len` bytes.
fn array_map(len: u32) -> Option<OwnedFd> {
    if !rustix::process::geteuid().is_root() {
        spin_testing::skip("needs root");
        return None;
    }
    // Kind, size of keys and of values, number of entries, flags.
    let attributes = [BPF_MAP_TYPE_ARRAY, 4, len, 1, BPF_F_MMAPABLE];
    // SAFETY: the attributes have the given size, and the kernel takes those behind as zero.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_CREATE, attributes.as_ptr(), size_of_val(&attributes)) };
    let fd = i32::try_from(fd).expect("a descriptor");
    let error = std::io::Error::last_os_error();
    if fd < 0 && error.raw_os_error() == Some(libc::ENOSYS) {
        spin_testing::skip("qemu's user emulation has no bpf(2)");
        return None;
    }
    assert!(fd >= 0, "{error}");
    // SAFETY: the descriptor is new, and belongs to nobody else.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A region of `pages` of an array map, and another one of the same bytes.
fn regions(pages: u32) -> Option<[Arc<Region>; 2]> {
    let map = array_map(pages * PAGE)?;
    let again = map.try_clone().expect("a descriptor");
    Some([map, again].map(|map| Region::adopt(map, (pages * PAGE) as usize).expect("a region")))
}

fn read<const N: usize>(region: &Region, offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    region.read(offset, &mut bytes).map(|()| bytes).expect("inside")
}

#[test]
fn a_region_has_the_bytes_of_the_map() {
    let Some([one, other]) = regions(2) else { return };
    one.write(PAGE as usize - 2, b"shared").expect("inside");
    assert_eq!(read(&other, PAGE as usize - 2), *b"shared");
    let map = array_map(5000).expect("root");
    let region = Region::adopt(map.try_clone().expect("a descriptor"), 5000).expect("whole pages");
    assert_eq!(region.len(), 2 * PAGE as usize);
    assert!(matches!(Region::adopt(map, 3 * PAGE as usize), Err(SpaceError::System { what: "map shared memory", .. })));
    let other = std::fs::File::open("/dev/null").expect("it exists");
    assert!(matches!(Region::adopt(other.into(), 4096), Err(SpaceError::System { .. })));
}

#[test]
fn parts_of_a_map_are_mapped_at_guest_addresses() {
    let Some([region, other]) = regions(4) else { return };
    let mut space = Space::new().expect("a space");
    space.map(RegionKind::Data, 0x5010, &region, PAGE + 0x10, 32, Access::Write).expect("mapped");
    // The same page may become writable later.
    space.map(RegionKind::Data, 0x9000, &region, 3 * PAGE, 16, Access::Read).expect("mapped");
    space.map(RegionKind::Data, 0x9010, &region, 3 * PAGE + 16, 16, Access::Write).expect("mapped");
    space.copy_in(0x5010, b"by the guest").expect("writable");
    assert_eq!(read(&other, PAGE as usize + 0x10), *b"by the guest");
    other.write(3 * PAGE as usize, b"by the map").expect("inside");
    let mut bytes = [0; 10];
    space.copy_out(0x9000, &mut bytes).expect("readable");
    assert_eq!((&bytes, space.copy_in(0x9000, b"x")), (b"by the map", None));
    space.copy_in(0x9010, b"more").expect("writable");
    // Translated code accesses the same bytes.
    let at = |address: u32| space.base().wrapping_add(address as usize);
    // SAFETY: the pages are mapped, and nobody else writes meanwhile.
    let seen = unsafe { (at(0x5010).read_volatile(), at(0x9010).read_volatile()) };
    assert_eq!(seen, (b'b', b'm'));
}

#[test]
fn closed_windows_of_the_packet_open() {
    let Some([region, other]) = regions(2) else { return };
    let mut space = Space::new().expect("a space");
    space.map_packet_in(&region, (L1, 0), (L2, PAGE)).expect("mapped");
    space.set_l1_alias(L1, PAGE).expect("an alias");
    space.set_len(RegionKind::Packet, 4).expect("room");
    let base = space.base();
    let mut frame = *b"abcd";
    space.with_packet(&mut frame, TaskStart::New, |layout, _| {
        assert_eq!(layout.resolve_fault(L1, Access::Write), FaultOutcome::Retry);
        assert_eq!(layout.resolve_fault(L2, Access::Read), FaultOutcome::Retry);
        assert_eq!(layout.resolve_fault(L2, Access::Write), FaultOutcome::Retry);
        for address in [L1, L2] {
            let at = base.wrapping_add(address as usize);
            // SAFETY: the window has been opened for reading and writing, and nobody else accesses it.
            unsafe {
                assert_eq!(at.read_volatile(), b'a', "{address:#x}");
                at.write_volatile(b'z');
            }
        }
    });
    assert_eq!((frame, read(&other, 0), read(&other, PAGE as usize)), (*b"zbcd", *b"zbcd", *b"zbcd"));
}

/// Why closed windows are mapped writable first.
#[test]
fn the_kernel_gives_no_write_access_to_a_map_that_was_mapped_without() {
    let Some(map) = array_map(PAGE) else { return };
    let open = |protection| map_then_open(map.as_fd(), protection);
    assert_eq!(open(ProtFlags::empty()), Err(rustix::io::Errno::ACCESS));
    assert_eq!(open(ProtFlags::READ), Err(rustix::io::Errno::ACCESS));
    assert_eq!(open(ProtFlags::READ | ProtFlags::WRITE), Ok(()));
}

fn map_then_open(map: BorrowedFd<'_>, protection: ProtFlags) -> Result<(), rustix::io::Errno> {
    use rustix::mm::{MprotectFlags, mmap, mprotect, munmap};
    let len = PAGE as usize;
    // SAFETY: a mapping of its own, which nobody accesses.
    unsafe {
        let at = mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, map, 0).expect("mapped");
        mprotect(at, len, MprotectFlags::empty()).expect("closed");
        let opened = mprotect(at, len, MprotectFlags::READ | MprotectFlags::WRITE);
        munmap(at, len).expect("unmapped");
        opened
    }
}
