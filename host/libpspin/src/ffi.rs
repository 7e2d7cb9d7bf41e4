//! The functions of `include/pspinsim.h` and `include/spin.h`: pointers become references, errors `SPIN_ERR` and a line on stderr.
//!
//! No function unwinds. Pointers that are null where something has to be are refused; of all others the headers' promises hold.
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
/// Bytes of every function, as [`spin_find_handler_by_name`] tells: as many as PsPIN's.
pub const HANDLER_SIZE: usize = 4096;
/// No memory of the NIC has more bytes.
const MOST_NICMEM: usize = 1 << 26;

/// `pkt_out_cb_t`: a packet has left.
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

/// Changes the callbacks. None of them runs meanwhile on this thread.
fn set(change: impl FnOnce(&mut Callbacks)) -> c_int {
    change(&mut CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner));
    SPIN_SUCCESS
}

/// A copy: they may change each other.
fn callbacks() -> Callbacks {
    *CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The C program.
struct Program;

impl Host for Program {
    fn send(&mut self, packet: &mut [u8]) {
        if let Some(callback) = callbacks().pkt_out {
            // SAFETY: the program set it with this type; the bytes are valid for the call.
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
            // SAFETY: as in `send`; the callback fills at most as many bytes as it is told.
            unsafe { callback(address, data.as_mut_ptr(), data.len()) }
        }
    }

    fn released(&mut self, user: u64, times: Times) {
        if let Some(callback) = callbacks().pkt_feedback {
            // SAFETY: the program set it with this type.
            unsafe { callback(user, times.nic_arrival, times.pspin_arrival, times.feedback) }
        }
    }

    fn accessed(&mut self, access: Access, user: usize) {
        let callback = match access {
            Access::Write => callbacks().pcie_mst_write,
            Access::Read => callbacks().pcie_mst_read,
        };
        if let Some(callback) = callback {
            // SAFETY: the program set it with this type; the pointer is the one that it gave, and only passed on.
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

/// Prints a line where the program's own go: in order with them.
fn print(line: &[u8]) {
    // A zero would end it.
    let line: Vec<u8> = line.iter().map(|&byte| if byte == 0 { b' ' } else { byte }).collect();
    if let Ok(line) = CString::new(line) {
        // SAFETY: it is a string that lives for the call.
        let _ = unsafe { libc::puts(line.as_ptr()) };
    }
}

/// Prints a line for people. If that is not possible nobody can be told.
fn report(problem: &str) {
    let _ = writeln!(std::io::stderr(), "libpspin: {problem}");
}

/// Carries out a function of the library: whatever goes wrong is told, and does not unwind.
fn outcome(function: &str, act: impl FnOnce() -> Result<(), Error>) -> c_int {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(())) => return SPIN_SUCCESS,
        Ok(Err(error)) => report(&format!("{function}: {error}")),
        Err(_) => report(&format!("{function}: an error of the library's own, told above")),
    }
    SPIN_ERR
}

/// The path that a program names.
///
/// # Safety
/// It is null or a string that lives long enough.
unsafe fn path<'p>(path: *const c_char) -> Result<&'p Path, Error> {
    if path.is_null() {
        return Err(Error::Argument("a path is NULL"));
    }
    // SAFETY: as the caller says.
    Ok(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes())))
}

/// Fills a configuration with the defaults.
///
/// # Safety
/// `conf` is null or points at a configuration that may be overwritten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pspinsim_default_conf(conf: *mut Conf) -> c_int {
    outcome("pspinsim_default_conf", || {
        if conf.is_null() {
            return Err(Error::Argument("conf is NULL"));
        }
        // SAFETY: as the caller says.
        unsafe { conf.write(Conf::default()) };
        Ok(())
    })
}

/// Begins a simulation. `conf` may be null, for the defaults; the program's arguments are not looked at.
///
/// # Safety
/// `conf` is null or points at a configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pspinsim_init(_argc: c_int, _argv: *mut *mut c_char, conf: *const Conf) -> c_int {
    outcome("pspinsim_init", || {
        // SAFETY: as the caller says.
        let conf = unsafe { conf.as_ref() }.copied().unwrap_or_default();
        library::init(&conf)
    })
}

/// Runs until all packets are through.
#[unsafe(no_mangle)]
pub extern "C" fn pspinsim_run() -> c_int {
    outcome("pspinsim_run", || library::run(&mut Program))
}

/// Runs for a cycle, and says whether all is done.
///
/// # Safety
/// `done` is null or points at a byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pspinsim_run_tick(done: *mut u8) -> c_int {
    outcome("pspinsim_run_tick", || {
        if done.is_null() {
            return Err(Error::Argument("done is NULL"));
        }
        let ended = library::run_tick(&mut Program)?;
        // SAFETY: as the caller says.
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
        // SAFETY: as the caller says.
        let (packets, data) = unsafe { (path(packets)?, path(data)?) };
        library::packet_trace_read(packets, data)
    })
}

/// Adds a packet, whose bytes are copied.
///
/// # Safety
/// `ec` is null or points at a context, `data` is null or points at `len` bytes.
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
        // SAFETY: as the caller says; a context may lie at any address.
        let (ec, bytes) = unsafe { (ec.read_unaligned(), slice::from_raw_parts(data, len)) };
        library::packet_add(&NewPacket { ec: &ec, msgid, bytes, l1_len, eom: eom != 0, wait_cycles, user })
    })
}

/// No more packets come.
#[unsafe(no_mangle)]
pub extern "C" fn pspinsim_packet_eos() -> c_int {
    outcome("pspinsim_packet_eos", library::packet_eos)
}

/// Sets what is called with each packet that leaves; null for nothing.
#[unsafe(no_mangle)]
pub extern "C" fn pspinsim_cb_set_pkt_out(callback: Option<PktOut>) -> c_int {
    set(|callbacks| callbacks.pkt_out = callback)
}

/// Sets what is called when handlers write host memory.
#[unsafe(no_mangle)]
pub extern "C" fn pspinsim_cb_set_pcie_slv_write(callback: Option<PcieSlave>) -> c_int {
    set(|callbacks| callbacks.pcie_slv_write = callback)
}

/// Sets what is called when handlers read host memory.
#[unsafe(no_mangle)]
pub extern "C" fn pspinsim_cb_set_pcie_slv_read(callback: Option<PcieSlave>) -> c_int {
    set(|callbacks| callbacks.pcie_slv_read = callback)
}

/// Sets what is called when a write of NIC memory is complete.
#[unsafe(no_mangle)]
pub extern "C" fn pspinsim_cb_set_pcie_mst_write_completion(callback: Option<PcieMaster>) -> c_int {
    set(|callbacks| callbacks.pcie_mst_write = callback)
}

/// Sets what is called when a read of NIC memory is complete.
#[unsafe(no_mangle)]
pub extern "C" fn pspinsim_cb_set_pcie_mst_read_completion(callback: Option<PcieMaster>) -> c_int {
    set(|callbacks| callbacks.pcie_mst_read = callback)
}

/// Sets what is called when a packet is released.
#[unsafe(no_mangle)]
pub extern "C" fn pspinsim_cb_set_pkt_feedback(callback: Option<PktFeedback>) -> c_int {
    set(|callbacks| callbacks.pkt_feedback = callback)
}

/// Writes NIC memory.
///
/// # Safety
/// `data` is null or points at `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_nicmem_write(address: u32, data: *const c_void, size: usize, user: *mut c_void) -> c_int {
    outcome("spin_nicmem_write", || {
        check_buffer(data, size)?;
        // SAFETY: as the caller says.
        let bytes = unsafe { slice::from_raw_parts(data.cast(), size) };
        library::nicmem_write(address, bytes, user.expose_provenance())
    })
}

/// Reads NIC memory.
///
/// # Safety
/// `data` is null or points at `size` bytes that may be overwritten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_nicmem_read(address: u32, data: *mut c_void, size: usize, user: *mut c_void) -> c_int {
    outcome("spin_nicmem_read", || {
        check_buffer(data, size)?;
        // Into memory of our own first: the program's may hold nothing yet.
        let mut bytes = vec![0; size];
        library::nicmem_read(address, &mut bytes, user.expose_provenance())?;
        // SAFETY: as the caller says; the two do not overlap.
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

/// Loads an image, unless it is loaded, and finds a function of it. Of a name that is not there only people are told.
///
/// # Safety
/// Both strings are null or strings; `address` and `size` are null or point at something to be overwritten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_find_handler_by_name(
    elf: *const c_char,
    name: *const c_char,
    address: *mut u32,
    size: *mut usize,
) -> c_int {
    outcome("spin_find_handler_by_name", || {
        // SAFETY: as the caller says.
        let elf = unsafe { path(elf)? };
        if name.is_null() {
            return Err(Error::Argument("name is NULL"));
        }
        // SAFETY: as the caller says.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let Some(found) = library::find_handler(elf, &name)? else {
            report(&format!("{}: no function {name:?}: the handler stays as it was", elf.display()));
            return Ok(());
        };
        if !address.is_null() {
            // SAFETY: as the caller says.
            unsafe { address.write(found) };
        }
        if !size.is_null() {
            // SAFETY: as the caller says.
            unsafe { size.write(HANDLER_SIZE) };
        }
        Ok(())
    })
}
