//! The functions that C programs call.
//!
//! Pointers of programs are followed here and nowhere else. None of these functions lets a panic out; a null pointer or a bad value is
//! refused with a line on standard error. That other pointers are what the header says they are is the program's part of the contract:
//! this is what `SAFETY` comments below call the caller's promise.
#![allow(unsafe_code, reason = "the boundary to C")]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::fmt::Display;
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libspin::Area;

use crate::dump;
use crate::layout::{Counter, Ctx, Flag, MemArea, NUM_HPUS, NUM_RULESETS, Ruleset, SlmpSock};
use crate::session::{Loaded, Session, SessionError};
use crate::slmp::{Sender, SlmpError};

unsafe extern "C" {
    fn puts(text: *const c_char) -> c_int;
}

/// Why a function did nothing.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0} is NULL")]
    Null(&'static str),
    #[error("{0} is negative")]
    Negative(&'static str),
    #[error("{0} rulesets: between 1 and {NUM_RULESETS}")]
    Count(c_int),
    #[error("the context was not made by fpspin_init, or fpspin_exit has ended it")]
    NoContext,
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Slmp(#[from] SlmpError),
}

/// Does the work of a function, and says why if it is not done. Panics end here.
fn guarded<T>(function: &str, otherwise: T, work: impl FnOnce() -> Result<T, Error>) -> T {
    // Nothing of what the work has touched is looked at after a panic without its lock's say.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => {
            say(function, &error);
            otherwise
        }
        Err(_) => {
            say(function, &"internal error");
            otherwise
        }
    }
}

fn say(function: &str, what: &dyn Display) {
    use std::io::Write;
    // Whoever closed standard error does not want to know.
    let _ = writeln!(std::io::stderr(), "{function}: {what}");
}

/// Sessions by their descriptors, which contexts have.
fn sessions() -> MutexGuard<'static, BTreeMap<c_int, Arc<Session>>> {
    static SESSIONS: Mutex<BTreeMap<c_int, Arc<Session>>> = Mutex::new(BTreeMap::new());
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The session of a context.
///
/// # Safety
/// `ctx` is null or points to a context that nobody changes meanwhile.
unsafe fn session(ctx: *const Ctx) -> Result<Arc<Session>, Error> {
    if ctx.is_null() {
        return Err(Error::Null("ctx"));
    }
    // SAFETY: not null, so the caller's promise.
    let fd = unsafe { (*ctx).fd };
    sessions().get(&fd).cloned().ok_or(Error::NoContext)
}

/// # Safety
/// `text` is null or a string.
unsafe fn path(name: &'static str, text: *const c_char) -> Result<PathBuf, Error> {
    if text.is_null() {
        return Err(Error::Null(name));
    }
    // SAFETY: not null, so the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())).to_path_buf())
}

/// # Safety
/// `rs` is null or points to `count` rulesets.
unsafe fn rulesets(rs: *const Ruleset, count: c_int) -> Result<Vec<Ruleset>, Error> {
    if rs.is_null() {
        return Err(Error::Null("rs"));
    }
    let len = usize::try_from(count).ok().filter(|len| (1..=NUM_RULESETS).contains(len)).ok_or(Error::Count(count))?;
    // SAFETY: not null, so the caller's promise; all bit patterns are rulesets.
    Ok(unsafe { slice::from_raw_parts(rs, len) }.to_vec())
}

const fn area(Area { address, size }: Area) -> MemArea {
    MemArea { addr: address, size }
}

/// Tells a program what it has loaded, or that it has nothing.
///
/// # Safety
/// `ctx` points to a context of which nobody else uses these fields meanwhile.
unsafe fn describe(ctx: *mut Ctx, loaded: Option<&Loaded>) {
    let host = loaded.and_then(|loaded| loaded.host.as_ref());
    let areas = loaded.map(|loaded| loaded.areas).unwrap_or_default();
    let [hh, ph, th] = areas.handlers.map(area);
    // SAFETY: the caller's promise. Fields are written one by one: others may be in use.
    unsafe {
        (*ctx).cpu_addr = host.map_or(null_mut(), |host| host.as_ptr().cast());
        // A mapping's length.
        (*ctx).mmap_len = host.map_or(0, |host| usize::try_from(host.len()).unwrap_or(0));
        (*ctx).dma_idx = [0; NUM_HPUS];
        (*ctx).host_data_ptr = loaded.map_or(0, |loaded| loaded.host_data.into());
        ((*ctx).hh, (*ctx).ph, (*ctx).th) = (hh, ph, th);
        (*ctx).handler_mem = area(areas.handler_mem);
    }
}

/// Connects, installs, and tells the program about it; see `fpspin.h`.
///
/// # Safety
/// As the header says: `ctx` points to a context, `dev` and `img` to strings, `rs` to `num_rs` rulesets, or they are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_init(
    ctx: *mut Ctx,
    dev: *const c_char,
    img: *const c_char,
    dest_ctx: c_int,
    rs: *const Ruleset,
    num_rs: c_int,
    hostdma_pages: c_int,
) -> bool {
    guarded("fpspin_init", false, || {
        if ctx.is_null() {
            return Err(Error::Null("ctx"));
        }
        if dest_ctx < 0 {
            return Err(Error::Negative("dest_ctx"));
        }
        // SAFETY: the caller's promise.
        let (dev, img, rs) = unsafe { (path("dev", dev)?, path("img", img)?, rulesets(rs, num_rs)?) };
        let session = Session::connect(&dev, rs)?;
        let loaded = session.load(&img, hostdma_pages)?;
        // SAFETY: not null, so the caller's promise; what `app_data` holds is the program's.
        unsafe {
            (*ctx).ctx_id = dest_ctx;
            (*ctx).fd = session.fd();
            describe(ctx, Some(&loaded));
        }
        sessions().insert(session.fd(), Arc::new(session));
        Ok(true)
    })
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context that nobody else uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_exit(ctx: *mut Ctx) {
    guarded("fpspin_exit", (), || {
        // SAFETY: the caller's promise.
        let session = unsafe { session(ctx)? };
        // Its descriptor is free for others when it is dropped, not before.
        sessions().remove(&session.fd());
        let unloaded = session.unload();
        // SAFETY: it is not null, so the caller's promise.
        unsafe {
            describe(ctx, None);
            (*ctx).fd = -1;
        }
        Ok(unloaded?)
    });
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context that nobody else uses meanwhile, `img` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_load(ctx: *mut Ctx, img: *const c_char, hostdma_pages: c_int) -> bool {
    guarded("fpspin_load", false, || {
        // SAFETY: the caller's promise.
        let (session, img) = unsafe { (session(ctx)?, path("img", img)?) };
        let loaded = session.load(&img, hostdma_pages);
        // SAFETY: it is not null, so the caller's promise.
        unsafe { describe(ctx, loaded.as_ref().ok().map(|loaded| &**loaded)) };
        loaded?;
        Ok(true)
    })
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context that nobody else uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_unload(ctx: *mut Ctx) {
    guarded("fpspin_unload", (), || {
        // SAFETY: the caller's promise.
        let session = unsafe { session(ctx)? };
        let unloaded = session.unload();
        // SAFETY: it is not null, so the caller's promise.
        unsafe { describe(ctx, None) };
        Ok(unloaded?)
    });
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context, `rs` is null or points to `num_rs` rulesets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_prog_me(ctx: *mut Ctx, rs: *const Ruleset, num_rs: c_int) -> bool {
    guarded("fpspin_prog_me", false, || {
        // SAFETY: the caller's promise.
        let (session, rs) = unsafe { (session(ctx)?, rulesets(rs, num_rs)?) };
        session.set_rulesets(rs)?;
        Ok(true)
    })
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context, `rs` is null or points to a ruleset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_set_me_ruleset(ctx: *mut Ctx, id: c_int, rs: *const Ruleset) -> bool {
    guarded("fpspin_set_me_ruleset", false, || {
        // SAFETY: the caller's promise.
        let (session, rs) = unsafe { (session(ctx)?, rulesets(rs, 1)?) };
        rs.into_iter().try_for_each(|ruleset| session.set_ruleset(id, ruleset))?;
        Ok(true)
    })
}

/// Fills a ruleset.
///
/// # Safety
/// `rs` is null or points to where a ruleset can be written.
unsafe fn fill(function: &str, rs: *mut Ruleset, ruleset: Ruleset) {
    guarded(function, (), || {
        if rs.is_null() {
            return Err(Error::Null("rs"));
        }
        // SAFETY: not null, so the caller's promise.
        unsafe { rs.write(ruleset) };
        Ok(())
    });
}

/// See `fpspin.h`.
///
/// # Safety
/// `rs` is null or points to where a ruleset can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_ruleset_bypass(rs: *mut Ruleset) {
    // SAFETY: the caller's promise.
    unsafe { fill("fpspin_ruleset_bypass", rs, Ruleset::BYPASS) }
}

/// See `fpspin.h`.
///
/// # Safety
/// `rs` is null or points to where a ruleset can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_ruleset_match(rs: *mut Ruleset) {
    // SAFETY: the caller's promise.
    unsafe { fill("fpspin_ruleset_match", rs, Ruleset::MATCH) }
}

/// See `fpspin.h`.
///
/// # Safety
/// `rs` is null or points to where a ruleset can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_ruleset_udp(rs: *mut Ruleset) {
    // SAFETY: the caller's promise.
    unsafe { fill("fpspin_ruleset_udp", rs, Ruleset::UDP) }
}

/// See `fpspin.h`.
///
/// # Safety
/// `rs` is null or points to where a ruleset can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_ruleset_slmp(rs: *mut Ruleset) {
    // SAFETY: the caller's promise.
    unsafe { fill("fpspin_ruleset_slmp", rs, Ruleset::SLMP) }
}

/// What the program says registers are at: never followed.
static REGS_BASE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// See `fpspin.h`.
#[unsafe(no_mangle)]
pub extern "C" fn fpspin_set_regs_base(base: *mut c_void) {
    REGS_BASE.store(base, Relaxed);
}

/// See `fpspin.h`.
#[unsafe(no_mangle)]
pub extern "C" fn fpspin_get_regs_base() -> *mut c_void {
    REGS_BASE.load(Relaxed)
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context of which nobody else takes this HPU's requests meanwhile; `flag` is null or points to where one
/// can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_pop_req(ctx: *mut Ctx, hpu_id: c_int, flag: *mut Flag) -> *mut c_void {
    guarded("fpspin_pop_req", null_mut(), || {
        // SAFETY: the caller's promise.
        let session = unsafe { session(ctx)? };
        if flag.is_null() {
            return Err(Error::Null("flag"));
        }
        let hpu = hpu(hpu_id)?;
        // SAFETY: `ctx` is not null, so the caller's promise; this element of the array is this HPU's.
        let taken = unsafe { &raw mut (*ctx).dma_idx[hpu] };
        // SAFETY: as above.
        let Some((asked, payload)) = session.request(hpu_id, unsafe { taken.read() })? else {
            return Ok(null_mut());
        };
        // SAFETY: as above; `flag` is not null, so the caller's promise: it has no alignment.
        unsafe {
            taken.write(asked.dma_id);
            flag.write_unaligned(asked);
        }
        Ok(payload.cast())
    })
}

/// The number of an HPU.
fn hpu(id: c_int) -> Result<usize, SessionError> {
    usize::try_from(id).ok().filter(|&hpu| hpu < NUM_HPUS).ok_or(SessionError::Hpu(id))
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context of which nobody else takes this HPU's requests meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_push_resp(ctx: *mut Ctx, hpu_id: c_int, flag: Flag) {
    guarded("fpspin_push_resp", (), || {
        // SAFETY: the caller's promise.
        let session = unsafe { session(ctx)? };
        let hpu = hpu(hpu_id)?;
        // SAFETY: `ctx` is not null, so the caller's promise.
        let dma_id = unsafe { (&raw const (*ctx).dma_idx[hpu]).read() };
        Ok(session.respond(hpu_id, Flag { dma_id, ..flag })?)
    });
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_get_counter(ctx: *mut Ctx, id: c_int) -> Counter {
    // SAFETY: the caller's promise.
    guarded("fpspin_get_counter", Counter::default(), || Ok(unsafe { session(ctx)? }.counter(id)?))
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_get_cycles(ctx: *mut Ctx, id: c_int) -> f64 {
    // SAFETY: the caller's promise.
    guarded("fpspin_get_cycles", 0.0, || Ok(unsafe { session(ctx)? }.counter(id)?.average()))
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_get_avg_cycles(ctx: *mut Ctx) -> f64 {
    // SAFETY: the caller's promise.
    guarded("fpspin_get_avg_cycles", 0.0, || Ok(unsafe { session(ctx)? }.counter(0)?.average()))
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_clear_counter(ctx: *mut Ctx, id: c_int) {
    // SAFETY: the caller's promise.
    guarded("fpspin_clear_counter", (), || Ok(unsafe { session(ctx)? }.clear_counter(id)?));
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context, `src` is null or points to `size` bytes that nobody changes meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_write_memory(ctx: *mut Ctx, addr: u32, src: *const c_void, size: usize) -> bool {
    guarded("fpspin_write_memory", false, || {
        // SAFETY: the caller's promise.
        let (session, bytes) = unsafe { (session(ctx)?, bytes("src", src, size)?) };
        session.write_memory(addr, bytes)?;
        Ok(true)
    })
}

/// The bytes of a buffer; null is one of no bytes.
///
/// # Safety
/// `data` is null or points to `size` bytes that nobody changes as long as these are looked at.
unsafe fn bytes<'b>(name: &'static str, data: *const c_void, size: usize) -> Result<&'b [u8], Error> {
    match (data.is_null(), size) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Error::Null(name)),
        // A slice cannot be longer, and no buffer is.
        (false, size) if isize::try_from(size).is_err() => Err(SessionError::Long(size).into()),
        // SAFETY: neither null nor too long, so the caller's promise.
        (false, _) => Ok(unsafe { slice::from_raw_parts(data.cast(), size) }),
    }
}

/// See `fpspin.h`.
///
/// # Safety
/// `data` is null or points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hexdump(data: *const c_void, size: usize) {
    guarded("hexdump", (), || {
        if data.is_null() && size > 0 {
            return Err(Error::Null("data"));
        }
        // Others may write them meanwhile: each is read once.
        // SAFETY: not null, so the caller's promise.
        let bytes: Vec<u8> = (0..size).map(|at| unsafe { data.cast::<u8>().add(at).read_volatile() }).collect();
        let text = dump::lines(&bytes);
        // There are no zeroes in the lines.
        let text = CString::new(text.trim_end_matches('\n')).unwrap_or_default();
        if size > 0 {
            // The program's own output is in C's buffer: this comes behind it.
            // SAFETY: a string.
            unsafe { puts(text.as_ptr()) };
        }
        Ok(())
    });
}

/// See `fpspin.h`.
///
/// # Safety
/// `sock` is null or points to where a socket can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slmp_socket(
    sock: *mut SlmpSock,
    wnd_sz: c_int,
    align: c_int,
    fc_us: c_int,
    num_threads: c_int,
) -> c_int {
    guarded("slmp_socket", -1, || {
        if sock.is_null() {
            return Err(Error::Null("sock"));
        }
        Sender::new(wnd_sz, align, fc_us, num_threads)?;
        let made = SlmpSock { parallel: num_threads > 1, wnd_sz, align, fc_us, num_threads };
        // SAFETY: not null, so the caller's promise.
        unsafe { sock.write(made) };
        Ok(0)
    })
}

/// See `fpspin.h`.
///
/// # Safety
/// `sock` is null or points to a socket that `slmp_socket` has made, `buf` is null or points to `sz` bytes that nobody changes meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slmp_sendmsg(
    sock: *mut SlmpSock,
    server: u32,
    msgid: c_int,
    buf: *mut c_void,
    sz: usize,
) -> c_int {
    guarded("slmp_sendmsg", -1, || {
        if sock.is_null() {
            return Err(Error::Null("sock"));
        }
        // SAFETY: not null, so the caller's promise; `parallel`, whose bits a program may have garbled, is not read.
        let (window, align, gap, threads) =
            unsafe { ((*sock).wnd_sz, (*sock).align, (*sock).fc_us, (*sock).num_threads) };
        // SAFETY: the caller's promise.
        let bytes = unsafe { bytes("buf", buf, sz)? };
        // `in_addr_t` is in network order.
        let server = Ipv4Addr::from(server.to_ne_bytes());
        Sender::new(window, align, gap, threads)?.send(server, msgid.cast_unsigned(), bytes)?;
        Ok(0)
    })
}

/// See `fpspin.h`.
///
/// # Safety
/// `sock` is null or points to a socket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slmp_close(sock: *mut SlmpSock) -> c_int {
    guarded("slmp_close", -1, || {
        if sock.is_null() {
            return Err(Error::Null("sock"));
        }
        // Each message has a socket of its own: nothing is open.
        Ok(0)
    })
}
