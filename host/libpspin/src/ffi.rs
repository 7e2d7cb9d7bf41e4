//! The functions of `include/pspinsim.h` and `include/spin.h`. Pointers become references; an error becomes `SPIN_ERR`
//! and a line on stderr.
//!
//! No function unwinds. Null pointers are refused where a value is required. For all other pointers the caller
//! guarantees what the headers require.
#![allow(unsafe_code, reason = "the boundary to C: follows the pointers that programs pass, and calls their callbacks")]

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr;
use std::slice;
use std::sync::{Mutex, PoisonError};

use crate::MAX_PACKET;
use crate::conf::Conf;
use crate::ec::Ec;
use crate::host::{Access, Host, Times};
use crate::library::{self, Error, NewPacket};

/// `SPIN_SUCCESS`.
pub const SPIN_SUCCESS: c_int = 0;
/// `SPIN_ERR`.
pub const SPIN_ERR: c_int = 1;
/// Size that [`spin_find_handler_by_name`] reports for every function; the value is PsPIN's.
pub const HANDLER_SIZE: usize = 4096;
/// Upper bound of every NIC memory's size in bytes.
const MOST_NICMEM: usize = 1 << 26;

/// `pkt_out_cb_t`: a packet was sent.
pub type PktOut = unsafe extern "C" fn(*mut u8, usize);
/// `pcie_slv_cb_t`: an access to host memory.
pub type PcieSlave = unsafe extern "C" fn(u64, *mut u8, usize);
/// `pcie_mst_cb_t`: an access to NIC memory is complete.
pub type PcieMaster = unsafe extern "C" fn(*mut c_void);
/// `pkt_feedback_cb_t`: a packet is released.
pub type PktFeedback = unsafe extern "C" fn(u64, u64, u64, u64);

#[derive(Clone, Copy)]
struct Callbacks {
    pkt_out: Option<PktOut>,
    pcie_slv_write: Option<PcieSlave>,
    pcie_slv_read: Option<PcieSlave>,
    pcie_mst_write: Option<PcieMaster>,
    pcie_mst_read: Option<PcieMaster>,
    pkt_feedback: Option<PktFeedback>,
}

impl Callbacks {
    const NONE: Self = Self {
        pkt_out: None,
        pcie_slv_write: None,
        pcie_slv_read: None,
        pcie_mst_write: None,
        pcie_mst_read: None,
        pkt_feedback: None,
    };
}

static CALLBACKS: Mutex<Callbacks> = Mutex::new(Callbacks::NONE);

/// Changes the callbacks. No callback runs on this thread during the change.
fn set(change: impl FnOnce(&mut Callbacks)) -> c_int {
    change(&mut CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner));
    SPIN_SUCCESS
}

/// Returns a copy, since callbacks may change the callbacks.
fn callbacks() -> Callbacks {
    *CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The C program as a [`Host`].
struct Program;

impl Host for Program {
    fn send(&mut self, packet: &mut [u8]) {
        if let Some(callback) = callbacks().pkt_out {
            // SAFETY: the program set the callback with this type; the bytes are valid for the call.
            unsafe { callback(packet.as_mut_ptr(), packet.len()) }
        }
    }

    fn write(&mut self, address: u64, data: &mut [u8]) {
        if let Some(callback) = callbacks().pcie_slv_write {
            // SAFETY: as in `send`.
            unsafe { callback(address, data.as_mut_ptr(), data.len()) }
        }
    }

    fn read(&mut self, address: u64, data: &mut [u8]) {
        if let Some(callback) = callbacks().pcie_slv_read {
            // SAFETY: as in `send`; the callback fills at most the given number of bytes.
            unsafe { callback(address, data.as_mut_ptr(), data.len()) }
        }
    }

    fn released(&mut self, user: u64, times: Times) {
        if let Some(callback) = callbacks().pkt_feedback {
            // SAFETY: the program set the callback with this type.
            unsafe { callback(user, times.nic_arrival, times.pspin_arrival, times.feedback) }
        }
    }

    fn accessed(&mut self, access: Access, user: usize) {
        let callback = match access {
            Access::Write => callbacks().pcie_mst_write,
            Access::Read => callbacks().pcie_mst_read,
        };
        if let Some(callback) = callback {
            // SAFETY: the program set the callback with this type; the pointer is the program's own and is only passed
            // back.
            unsafe { callback(ptr::with_exposed_provenance_mut(user)) }
        }
    }

    fn print(&mut self, line: &[u8]) {
        print(line);
    }

    fn report(&mut self, problem: &str) {
        report(problem);
    }
}

/// Prints a line through C's standard output, so that it is ordered with the program's own output.
fn print(line: &[u8]) {
    // A zero byte would end the C string.
    let line: Vec<u8> = line.iter().map(|&byte| if byte == 0 { b' ' } else { byte }).collect();
    if let Ok(line) = CString::new(line) {
        // SAFETY: a zero-terminated string that lives for the call.
        let _ = unsafe { libc::puts(line.as_ptr()) };
    }
}

/// Prints a line to stderr. A failure to print is ignored.
fn report(problem: &str) {
    let _ = writeln!(std::io::stderr(), "libpspin: {problem}");
}

/// Runs a library function. Errors and panics are reported; nothing unwinds.
fn outcome(function: &str, act: impl FnOnce() -> Result<(), Error>) -> c_int {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(())) => return SPIN_SUCCESS,
        Ok(Err(error)) => report(&format!("{function}: {error}")),
        Err(_) => report(&format!("{function}: an error of the library's own, told above")),
    }
    SPIN_ERR
}

/// Converts a path argument.
///
/// # Safety
/// `path` is null or a string that outlives the returned path.
unsafe fn path<'p>(path: *const c_char) -> Result<&'p Path, Error> {
    if path.is_null() {
        return Err(Error::Argument("a path is NULL"));
    }
    // SAFETY: guaranteed by the caller.
    Ok(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes())))
}

/// Fills a configuration with the defaults.
///
/// # Safety
/// `conf` is null or points to a configuration that may be overwritten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pspinsim_default_conf(conf: *mut Conf) -> c_int {
    outcome("pspinsim_default_conf", || {
        if conf.is_null() {
            return Err(Error::Argument("conf is NULL"));
        }
        // SAFETY: guaranteed by the caller.
        unsafe { conf.write(Conf::default()) };
        Ok(())
    })
}

/// Begins a simulation. `conf` may be null for the defaults; the program's arguments are ignored.
///
/// # Safety
/// `conf` is null or points to a configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pspinsim_init(_argc: c_int, _argv: *mut *mut c_char, conf: *const Conf) -> c_int {
    outcome("pspinsim_init", || {
        // SAFETY: guaranteed by the caller.
        let conf = unsafe { conf.as_ref() }.copied().unwrap_or_default();
        library::init(&conf)
    })
}

/// Runs until all packets are processed.
#[unsafe(no_mangle)]
pub extern "C" fn pspinsim_run() -> c_int {
    outcome("pspinsim_run", || library::run(&mut Program))
}

/// Runs one cycle and reports whether all packets are processed.
///
/// # Safety
/// `done` is null or points to a byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pspinsim_run_tick(done: *mut u8) -> c_int {
    outcome("pspinsim_run_tick", || {
        if done.is_null() {
            return Err(Error::Argument("done is NULL"));
        }
        let ended = library::run_tick(&mut Program)?;
        // SAFETY: guaranteed by the caller.
        unsafe { done.write(ended.into()) };
        Ok(())
    })
}

/// Ends the simulation and prints the statistics.
#[unsafe(no_mangle)]
pub extern "C" fn pspinsim_fini() -> c_int {
    outcome("pspinsim_fini", || {
        let statistics = library::fini()?;
        print(statistics.as_bytes());
        set(|callbacks| *callbacks = Callbacks::NONE);
        Ok(())
    })
}

/// Adds all packets of a trace.
///
/// # Safety
/// Both are null or strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pspinsim_packet_trace_read(packets: *const c_char, data: *const c_char) -> c_int {
    outcome("pspinsim_packet_trace_read", || {
        // SAFETY: guaranteed by the caller.
        let (packets, data) = unsafe { (path(packets)?, path(data)?) };
        library::packet_trace_read(packets, data)
    })
}

/// Adds a packet; its bytes are copied.
///
/// # Safety
/// `ec` is null or points to a context; `data` is null or points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pspinsim_packet_add(
    ec: *const Ec,
    msgid: u32,
    data: *const u8,
    len: usize,
    l1_len: usize,
    eom: u8,
    wait_cycles: u32,
    user: u64,
) -> c_int {
    outcome("pspinsim_packet_add", || {
        if ec.is_null() {
            return Err(Error::Argument("ec is NULL"));
        }
        if data.is_null() {
            return Err(Error::Argument("data is NULL"));
        }
        if len > MAX_PACKET {
            return Err(Error::Length(len));
        }
        // SAFETY: guaranteed by the caller; the context may be unaligned.
        let (ec, bytes) = unsafe { (ec.read_unaligned(), slice::from_raw_parts(data, len)) };
        library::packet_add(&NewPacket { ec: &ec, msgid, bytes, l1_len, eom: eom != 0, wait_cycles, user })
    })
}

/// Marks the end of the packet stream.
#[unsafe(no_mangle)]
pub extern "C" fn pspinsim_packet_eos() -> c_int {
    outcome("pspinsim_packet_eos", library::packet_eos)
}

/// Accepts the priority of a queue, which is not modelled.
#[unsafe(no_mangle)]
pub const extern "C" fn pspinsim_set_fmq_prio(_id: u32, _prio: u8) {}

/// Sets the callback for sent packets; null for none.
#[unsafe(no_mangle)]
pub extern "C" fn pspinsim_cb_set_pkt_out(callback: Option<PktOut>) -> c_int {
    set(|callbacks| callbacks.pkt_out = callback)
}

/// Sets the callback for handlers' writes to host memory.
#[unsafe(no_mangle)]
pub extern "C" fn pspinsim_cb_set_pcie_slv_write(callback: Option<PcieSlave>) -> c_int {
    set(|callbacks| callbacks.pcie_slv_write = callback)
}

/// Sets the callback for handlers' reads of host memory.
#[unsafe(no_mangle)]
pub extern "C" fn pspinsim_cb_set_pcie_slv_read(callback: Option<PcieSlave>) -> c_int {
    set(|callbacks| callbacks.pcie_slv_read = callback)
}

/// Sets the callback for completed writes to NIC memory.
#[unsafe(no_mangle)]
pub extern "C" fn pspinsim_cb_set_pcie_mst_write_completion(callback: Option<PcieMaster>) -> c_int {
    set(|callbacks| callbacks.pcie_mst_write = callback)
}

/// Sets the callback for completed reads of NIC memory.
#[unsafe(no_mangle)]
pub extern "C" fn pspinsim_cb_set_pcie_mst_read_completion(callback: Option<PcieMaster>) -> c_int {
    set(|callbacks| callbacks.pcie_mst_read = callback)
}

/// Sets the callback for released packets.
#[unsafe(no_mangle)]
pub extern "C" fn pspinsim_cb_set_pkt_feedback(callback: Option<PktFeedback>) -> c_int {
    set(|callbacks| callbacks.pkt_feedback = callback)
}

/// Writes NIC memory.
///
/// # Safety
/// `data` is null or points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_nicmem_write(address: u32, data: *const c_void, size: usize, user: *mut c_void) -> c_int {
    outcome("spin_nicmem_write", || {
        check_buffer(data, size)?;
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { slice::from_raw_parts(data.cast(), size) };
        library::nicmem_write(address, bytes, user.expose_provenance())
    })
}

/// Reads NIC memory.
///
/// # Safety
/// `data` is null or points to `size` bytes that may be overwritten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_nicmem_read(address: u32, data: *mut c_void, size: usize, user: *mut c_void) -> c_int {
    outcome("spin_nicmem_read", || {
        check_buffer(data, size)?;
        // Read into our own memory first, since the program's buffer may be uninitialised.
        let mut bytes = vec![0; size];
        library::nicmem_read(address, &mut bytes, user.expose_provenance())?;
        // SAFETY: guaranteed by the caller; the buffers do not overlap.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), data.cast(), size) };
        Ok(())
    })
}

fn check_buffer(data: *const c_void, size: usize) -> Result<(), Error> {
    if data.is_null() {
        Err(Error::Argument("data is NULL"))
    } else if size > MOST_NICMEM {
        Err(Error::Argument("size is more than NIC memory has"))
    } else {
        Ok(())
    }
}

/// Loads an image unless it is loaded, and looks up a function of it. An unknown name is reported on stderr only.
///
/// # Safety
/// The strings `elf` and `name` may be null; `address` and `size` are null or point to memory that may be overwritten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_find_handler_by_name(
    elf: *const c_char,
    name: *const c_char,
    address: *mut u32,
    size: *mut usize,
) -> c_int {
    outcome("spin_find_handler_by_name", || {
        // SAFETY: guaranteed by the caller.
        let elf = unsafe { path(elf)? };
        if name.is_null() {
            return Err(Error::Argument("name is NULL"));
        }
        // SAFETY: guaranteed by the caller.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let Some(found) = library::find_handler(elf, &name)? else {
            report(&format!("{}: no function {name:?}: the handler stays as it was", elf.display()));
            return Ok(());
        };
        if !address.is_null() {
            // SAFETY: guaranteed by the caller.
            unsafe { address.write(found) };
        }
        if !size.is_null() {
            // SAFETY: guaranteed by the caller.
            unsafe { size.write(HANDLER_SIZE) };
        }
        Ok(())
    })
}
