//! The bpf calls of this module.
#![allow(unsafe_code, reason = "bpf calls take pointers to instructions, descriptors, frames and logs")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use libbpf_rs::libbpf_sys::{
    BPF_MAP_TYPE_PROG_ARRAY, BPF_MAP_TYPE_XSKMAP, BPF_PROG_TYPE_XDP, BPF_XDP, bpf_map_delete_elem,
    bpf_map_get_info_by_fd, bpf_map_info, bpf_map_update_elem, bpf_prog_get_info_by_fd, bpf_prog_info, bpf_prog_load,
    bpf_prog_load_opts, bpf_prog_test_run_opts, bpf_test_run_opts,
};

/// As the compiled programs of this crate have it.
const LICENSE: &CStr = c"Dual MIT/GPL";

/// What the verifier logs (`BPF_LOG_*`, include/linux/bpf_verifier.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum LogLevel {
    /// Nothing.
    Off = 0,
    /// The instructions on the path to the error, and the statistics.
    Path = 1 | 4,
    /// The error, and the statistics. Costs no time: a load of 600,003 processed instructions takes 0.45 s with and
    /// without.
    Statistics = 4,
}

/// The result of [`load`].
pub(super) struct Loading {
    /// The program, or the error number.
    pub result: Result<OwnedFd, i32>,
    /// The end of the verifier's log.
    pub log: String,
}

/// Loads an XDP program. The log keeps at most `log_size` bytes. Kernels before 6.4 keep its begin, later ones its end.
/// A log that does not fit makes the kernel refuse the program with ENOSPC.
///
/// Each index of a map in `instructions` must be below the length of `maps`: the kernel would read descriptors behind the
/// list.
pub(super) fn load(
    name: &CStr,
    instructions: &[[u8; 8]],
    maps: &[RawFd],
    log_level: LogLevel,
    log_size: usize,
) -> Loading {
    let mut log = vec![0_u8; if log_level == LogLevel::Off { 0 } else { log_size }];
    let mut options = bpf_prog_load_opts {
        sz: size_of::<bpf_prog_load_opts>() as u64,
        expected_attach_type: BPF_XDP,
        fd_array: if maps.is_empty() { ptr::null() } else { maps.as_ptr() },
        log_level: log_level as u32,
        // Sizes of logs are constants below 4 GiB.
        log_size: log.len() as u32,
        log_buf: if log.is_empty() { ptr::null_mut() } else { log.as_mut_ptr().cast() },
        ..Default::default()
    };
    let first = instructions.as_ptr().cast();
    // SAFETY: Name and license end with NUL. `first` points at as many instructions of eight bytes as given; libbpf passes
    // the pointer on to the kernel, which copies from any alignment. `options` has the size it claims. `log_buf` points at
    // `log_size` writable bytes, or both are zero. The kernel reads `fd_array` at the indices of the instructions, which
    // the caller has checked. Everything lives during the call, and the kernel keeps no pointer.
    let result = unsafe {
        let options = &raw mut options;
        bpf_prog_load(BPF_PROG_TYPE_XDP, name.as_ptr(), LICENSE.as_ptr(), first, instructions.len() as u64, options)
    };
    let result = if result < 0 {
        Err(-result)
    } else {
        // SAFETY: A result that is not negative is a new descriptor, which belongs to nobody else.
        Ok(unsafe { OwnedFd::from_raw_fd(result) })
    };
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    Loading { result, log: String::from_utf8_lossy(&log[..end]).into_owned() }
}

/// The kernel's description of a program.
pub(super) fn info(program: BorrowedFd<'_>) -> io::Result<bpf_prog_info> {
    let mut info = bpf_prog_info::default();
    let mut size = size_of::<bpf_prog_info>() as u32;
    // SAFETY: `info` has `size` bytes, all zero: it asks for no array, so the kernel writes to `info` alone.
    let result = unsafe { bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut size) };
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(info) }
}

/// The kernel's description of a map.
pub(crate) fn map_info(map: BorrowedFd<'_>) -> io::Result<bpf_map_info> {
    let mut info = bpf_map_info::default();
    let mut size = size_of::<bpf_map_info>() as u32;
    // SAFETY: `info` has `size` bytes, and the kernel writes to `info` alone.
    done(unsafe { bpf_map_get_info_by_fd(map.as_raw_fd(), &raw mut info, &raw mut size) })?;
    Ok(info)
}

/// Sets an entry of a map of programs.
pub(super) fn set_program(map: &OwnedFd, index: u32, program: BorrowedFd<'_>) -> io::Result<()> {
    let value = program.as_raw_fd();
    let (key, value) = (&raw const index, &raw const value);
    check_table(map)?;
    // SAFETY: key and value of a map of programs have four bytes each, which live during the call.
    done(unsafe { bpf_map_update_elem(map.as_raw_fd(), key.cast(), value.cast(), 0) })
}

/// Removes an entry of a map of programs.
pub(super) fn remove_program(map: &OwnedFd, index: u32) -> io::Result<()> {
    check_table(map)?;
    let key = &raw const index;
    // SAFETY: the key of a map of programs has four bytes, which live during the call.
    done(unsafe { bpf_map_delete_elem(map.as_raw_fd(), key.cast()) })
}

/// Keys and values of other maps may be longer, and the kernel would read behind those given.
fn check_table(map: &OwnedFd) -> io::Result<()> {
    let is_table = map_info(map.as_fd())?.type_ == BPF_MAP_TYPE_PROG_ARRAY;
    if is_table { Ok(()) } else { Err(io::Error::other("the map is not one of programs")) }
}

/// Whether a map is one of AF_XDP sockets.
pub(super) fn is_socket_map(map: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(map_info(map)?.type_ == BPF_MAP_TYPE_XSKMAP)
}

/// The result of a call without a value.
fn done(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

/// Runs a program on a frame, `repeat` times. Writes the frame that the last run left to `output`, unless that is empty. Returns the
/// program's result, the length of that frame, and the average nanoseconds of a run.
pub(crate) fn test_run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    output: &mut [u8],
    repeat: u32,
) -> io::Result<(u32, usize, u32)> {
    let size = |length: usize| u32::try_from(length).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL));
    let mut options = bpf_test_run_opts {
        sz: size_of::<bpf_test_run_opts>() as u64,
        data_in: frame.as_ptr().cast(),
        // The kernel takes a size of 0 for no bound.
        data_out: if output.is_empty() { ptr::null_mut() } else { output.as_mut_ptr().cast() },
        data_size_in: size(frame.len())?,
        data_size_out: size(output.len())?,
        // The caller gives at most i32::MAX.
        repeat: repeat.cast_signed(),
        ..Default::default()
    };
    // SAFETY: `options` has the size it claims. `data_in` points at `data_size_in` readable bytes, and `data_out` at
    // `data_size_out` writable bytes, or is null. All other pointers are null with size 0.
    let result = unsafe { bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    Ok((options.retval, options.data_size_out as usize, options.duration))
}
