//! Functions on contexts and rulesets.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libspin::Area;

use super::call::{Error, bytes, guarded, guarded_or_exit, path, rulesets, say, session, sessions};
use crate::layout::{Counter, Ctx, Flag, MemArea, NUM_HPUS, PAGE_SIZE, Ruleset};
use crate::session::{Loaded, Session, SessionError};

const fn area(Area { address, size }: Area) -> MemArea {
    MemArea { addr: address, size }
}

/// Writes the fields that describe the loaded image to the context, or clears them.
///
/// # Safety
/// `ctx` points to a context, and no other thread uses these fields during the call.
unsafe fn describe(ctx: *mut Ctx, loaded: Option<&Loaded>) {
    let host = loaded.and_then(|loaded| loaded.host.as_ref());
    let areas = loaded.map(|loaded| loaded.areas).unwrap_or_default();
    let [hh, ph, th] = areas.handlers.map(area);
    // SAFETY: guaranteed by the caller. Fields are written one by one, since other threads may use the other fields.
    unsafe {
        (*ctx).cpu_addr = host.map_or(null_mut(), |host| host.as_ptr().cast());
        // The length of a mapping fits `usize`.
        (*ctx).mmap_len = host.map_or(0, |host| usize::try_from(host.len()).unwrap_or(0));
        (*ctx).dma_idx = [0; NUM_HPUS];
        (*ctx).host_data_ptr = loaded.map_or(0, |loaded| loaded.host_data.into());
        ((*ctx).hh, (*ctx).ph, (*ctx).th) = (hh, ph, th);
        (*ctx).handler_mem = area(areas.handler_mem);
    }
}

/// Connects, installs the image, and fills the context; see `fpspin.h`.
///
/// # Safety
/// `ctx` points to a context, `dev` and `img` to strings, `rs` to `num_rs` rulesets; each may be null (see the header).
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
        // SAFETY: guaranteed by the caller.
        let (dev, img, rs) = unsafe { (path("dev", dev)?, path("img", img)?, rulesets(rs, num_rs)?) };
        let pages = u64::try_from(hostdma_pages).map_err(|_| SessionError::Pages(hostdma_pages))?;
        let session = Session::connect(&dev, dest_ctx, rs)?;
        let loaded = session.load(&img, pages * PAGE_SIZE as u64)?;
        loaded.warnings.iter().for_each(|warning| say("fpspin_init", warning));
        // SAFETY: checked not to be null; the caller guarantees the rest. `app_data` belongs to the program.
        unsafe {
            (*ctx).ctx_id = dest_ctx;
            (*ctx).fd = session.fd();
            describe(ctx, Some(&loaded));
        }
        sessions().push(Arc::new(session));
        Ok(true)
    })
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context that no other thread still uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_exit(ctx: *mut Ctx) {
    guarded("fpspin_exit", (), || {
        // SAFETY: guaranteed by the caller.
        let session = unsafe { session(ctx)? };
        // The descriptor number stays reserved until the session is dropped.
        sessions().retain(|other| other.fd() != session.fd());
        let unloaded = session.unload();
        // SAFETY: checked not to be null; the caller guarantees the rest.
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
/// `ctx` is null or points to a context that no other thread uses during the call; `elf` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_load(ctx: *mut Ctx, elf: *const c_char, _hostmem_ptr: u64, hostmem_size: u32) {
    guarded_or_exit("fpspin_load", || {
        // SAFETY: guaranteed by the caller.
        let (session, elf) = unsafe { (session(ctx)?, path("elf", elf)?) };
        let loaded = session.load(&elf, hostmem_size.into());
        // SAFETY: checked not to be null; the caller guarantees the rest.
        unsafe { describe(ctx, loaded.as_ref().ok().map(|loaded| &**loaded)) };
        loaded?.warnings.iter().for_each(|warning| say("fpspin_load", warning));
        Ok(())
    });
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context that no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_unload(ctx: *mut Ctx) {
    guarded("fpspin_unload", (), || {
        // SAFETY: guaranteed by the caller.
        let session = unsafe { session(ctx)? };
        let unloaded = session.unload();
        // SAFETY: checked not to be null; the caller guarantees the rest.
        unsafe { describe(ctx, None) };
        Ok(unloaded?)
    });
}

/// See `fpspin.h`.
///
/// # Safety
/// `rs` is null or points to `num_rs` rulesets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_prog_me(rs: *const Ruleset, num_rs: c_int) {
    guarded_or_exit("fpspin_prog_me", || {
        // SAFETY: guaranteed by the caller.
        let rs = unsafe { rulesets(rs, num_rs)? };
        let latest = sessions().last().cloned();
        Ok(latest.ok_or(Error::NoneYet)?.set_rulesets(rs)?)
    });
}

/// See `fpspin.h`.
///
/// # Safety
/// `rs` is null or points to a ruleset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_set_me_ruleset(ctx_id: c_int, rs: *const Ruleset) {
    guarded_or_exit("fpspin_set_me_ruleset", || {
        // SAFETY: guaranteed by the caller.
        let rs = unsafe { rulesets(rs, 1)? };
        let latest = sessions().iter().rfind(|session| session.ctx_id() == ctx_id).cloned();
        Ok(latest.ok_or(SessionError::NoContext(ctx_id))?.set_rulesets(rs)?)
    });
}

/// Writes a ruleset to the program's memory.
///
/// # Safety
/// `rs` is null or points to memory where a ruleset can be written.
unsafe fn fill(function: &str, rs: *mut Ruleset, ruleset: Ruleset) {
    guarded(function, (), || {
        if rs.is_null() {
            return Err(Error::Null("rs"));
        }
        // SAFETY: checked not to be null; the caller guarantees the rest.
        unsafe { rs.write(ruleset) };
        Ok(())
    });
}

/// See `fpspin.h`.
///
/// # Safety
/// `rs` is null or points to memory where a ruleset can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_ruleset_bypass(rs: *mut Ruleset) {
    // SAFETY: guaranteed by the caller.
    unsafe { fill("fpspin_ruleset_bypass", rs, Ruleset::BYPASS) }
}

/// See `fpspin.h`.
///
/// # Safety
/// `rs` is null or points to memory where a ruleset can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_ruleset_match(rs: *mut Ruleset) {
    // SAFETY: guaranteed by the caller.
    unsafe { fill("fpspin_ruleset_match", rs, Ruleset::MATCH) }
}

/// See `fpspin.h`.
///
/// # Safety
/// `rs` is null or points to memory where a ruleset can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_ruleset_udp(rs: *mut Ruleset) {
    // SAFETY: guaranteed by the caller.
    unsafe { fill("fpspin_ruleset_udp", rs, Ruleset::UDP) }
}

/// See `fpspin.h`.
///
/// # Safety
/// `rs` is null or points to memory where a ruleset can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_ruleset_slmp(rs: *mut Ruleset) {
    // SAFETY: guaranteed by the caller.
    unsafe { fill("fpspin_ruleset_slmp", rs, Ruleset::SLMP) }
}

/// Path of the registers that the program sets. The library only returns it; it is never dereferenced.
static REGS_BASE: AtomicPtr<c_char> = AtomicPtr::new(null_mut());

/// See `fpspin.h`.
#[unsafe(no_mangle)]
pub extern "C" fn fpspin_set_regs_base(base: *const c_char) {
    REGS_BASE.store(base.cast_mut(), Relaxed);
}

/// See `fpspin.h`.
#[unsafe(no_mangle)]
pub extern "C" fn fpspin_get_regs_base() -> *const c_char {
    REGS_BASE.load(Relaxed)
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context, and no other thread takes this HPU's requests during the call. `flag` is null
/// or points to memory where a flag can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_pop_req(ctx: *mut Ctx, hpu_id: c_int, flag: *mut Flag) -> *mut c_void {
    guarded("fpspin_pop_req", null_mut(), || {
        // SAFETY: guaranteed by the caller.
        let session = unsafe { session(ctx)? };
        if flag.is_null() {
            return Err(Error::Null("flag"));
        }
        let hpu = hpu(hpu_id)?;
        // SAFETY: `ctx` is not null, and the caller guarantees the rest. This array element belongs to this HPU.
        let taken = unsafe { &raw mut (*ctx).dma_idx[hpu] };
        // SAFETY: as above.
        let Some((asked, payload)) = session.request(hpu_id, unsafe { taken.read() })? else {
            return Ok(null_mut());
        };
        // SAFETY: as above. `flag` is not null, the caller guarantees the rest, and the type has no alignment
        // requirement.
        unsafe {
            taken.write(asked.parts.dma_id);
            flag.write_unaligned(asked);
        }
        Ok(payload.cast())
    })
}

/// Checks an HPU number.
fn hpu(id: c_int) -> Result<usize, SessionError> {
    usize::try_from(id).ok().filter(|&hpu| hpu < NUM_HPUS).ok_or(SessionError::Hpu(id))
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context, and no other thread takes this HPU's requests during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_push_resp(ctx: *mut Ctx, hpu_id: c_int, flag: Flag) {
    guarded("fpspin_push_resp", (), || {
        // SAFETY: guaranteed by the caller.
        let session = unsafe { session(ctx)? };
        let hpu = hpu(hpu_id)?;
        // SAFETY: `ctx` is not null; the caller guarantees the rest.
        let dma_id = unsafe { (&raw const (*ctx).dma_idx[hpu]).read() };
        Ok(session.respond(hpu_id, dma_id, flag.parts.len)?)
    });
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_get_counter(ctx: *mut Ctx, id: c_int) -> Counter {
    // SAFETY: guaranteed by the caller.
    guarded("fpspin_get_counter", Counter::default(), || Ok(unsafe { session(ctx)? }.counter(id)?))
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_get_cycles(ctx: *mut Ctx, id: c_int) -> f64 {
    // SAFETY: guaranteed by the caller.
    guarded("fpspin_get_cycles", 0.0, || Ok(unsafe { session(ctx)? }.counter(id)?.average()))
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_get_avg_cycles(ctx: *mut Ctx) -> u32 {
    // SAFETY: guaranteed by the caller.
    guarded("fpspin_get_avg_cycles", 0, || Ok(unsafe { session(ctx)? }.counter(0)?.whole_average()))
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_clear_counter(ctx: *mut Ctx, id: c_int) {
    // SAFETY: guaranteed by the caller.
    guarded("fpspin_clear_counter", (), || Ok(unsafe { session(ctx)? }.clear_counter(id)?));
}

/// See `fpspin.h`.
///
/// # Safety
/// `ctx` is null or points to a context. `src` is null or points to `size` bytes that do not change during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpspin_write_memory(ctx: *mut Ctx, addr: u32, src: *mut c_void, size: usize) {
    guarded_or_exit("fpspin_write_memory", || {
        // SAFETY: guaranteed by the caller.
        let (session, bytes) = unsafe { (session(ctx)?, bytes("src", src, size)?) };
        Ok(session.write_memory(addr, bytes)?)
    });
}
