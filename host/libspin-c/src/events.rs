//! Event rings.

use std::ffi::{CString, c_char, c_int};
use std::os::fd::AsRawFd;
use std::time::Duration;

use libspin::{Event, EventFd, What};
use spin_abi::command::Direction;

use crate::call::{Out, exclusive, free, guarded, guarded_or};
use crate::client::{Connection, locked};
use crate::status::{Error, c_string};

/// A context's event ring, the description of its last event, and its descriptor if there is one.
pub struct Events {
    ring: libspin::Events,
    event_fd: Option<EventFd>,
    text: CString,
}

/// An event, for C.
#[repr(C)]
#[derive(Debug)]
pub struct EventInfo {
    kind: u32,
    flow: u32,
    stage: u32,
    cause: u32,
    pc: u32,
    address: u32,
    length: u32,
    reserved: u32,
    host: u64,
}

/// The header's size: `tests/header.c` checks it there.
const _: () = assert!(size_of::<EventInfo>() == 40);

impl From<Event> for EventInfo {
    fn from(Event { flow, what }: Event) -> Self {
        let none = Self { kind: 0, flow, stage: 0, cause: 0, pc: 0, address: 0, length: 0, reserved: 0, host: 0 };
        match what {
            What::Fault { stage, fault } => {
                Self { kind: 1, stage, cause: fault.cause.code(), pc: fault.pc, address: fault.address, ..none }
            }
            What::TimedOut => Self { kind: 2, ..none },
            What::Evicted => Self { kind: 3, ..none },
            What::Killed => Self { kind: 4, ..none },
            What::Copied { direction: Direction::ToHost, host, length } => Self { kind: 5, host, length, ..none },
            What::Copied { direction: Direction::FromHost, host, length } => Self { kind: 6, host, length, ..none },
        }
    }
}

/// See `spin_client.h`.
///
/// # Safety
/// `client` is null or a valid handle; `events` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_events_open(client: *const Connection, context: u32, events: *mut *mut Events) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        let out = unsafe { Out::handle("events", events)? };
        // SAFETY: guaranteed by the caller.
        let ring = unsafe { locked(client)? }.events(context)?;
        out.give(Events { ring, event_fd: None, text: CString::default() });
        Ok(())
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `events` is null, or a handle of [`spin_events_open`] that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_events_close(events: *mut Events) {
    // SAFETY: guaranteed by the caller.
    unsafe { free(events) };
}

/// See `spin_client.h`.
///
/// # Safety
/// `events` is null, or a valid handle that no other thread uses during the call; `event` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_events_poll(events: *mut Events, event: *mut EventInfo) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        let (events, out) = unsafe { (exclusive("events", events)?, Out::new("event", event)?) };
        let next = events.ring.next().ok_or(Error::NoEvent)?;
        events.text = c_string(&next.to_string());
        out.set(next.into());
        Ok(())
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `events` is null, or a valid handle that no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_events_wait(events: *mut Events, timeout_us: u64) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        let events = unsafe { exclusive("events", events)? };
        events.ring.wait(Duration::from_micros(timeout_us)).then_some(()).ok_or(Error::NoEvent)
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `events` is null, or a valid handle that no other thread uses during the call; `fd` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_events_fd(events: *mut Events, fd: *mut c_int) -> c_int {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        let (events, out) = unsafe { (exclusive("events", events)?, Out::new("fd", fd)?) };
        let event_fd = match events.event_fd.take() {
            Some(event_fd) => event_fd,
            None => events.ring.eventfd()?,
        };
        out.set(events.event_fd.insert(event_fd).as_raw_fd());
        Ok(())
    })
}

/// See `spin_client.h`.
///
/// # Safety
/// `events` is null, or a valid handle that no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_events_text(events: *mut Events) -> *const c_char {
    // SAFETY: guaranteed by the caller.
    guarded_or(c"".as_ptr(), || Ok(unsafe { exclusive("events", events)? }.text.as_ptr()))
}

/// See `spin_client.h`.
///
/// # Safety
/// `events` is null, or a valid handle that no other thread uses during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_events_lost(events: *mut Events) -> u64 {
    // SAFETY: guaranteed by the caller.
    guarded_or(0, || Ok(unsafe { exclusive("events", events)? }.ring.lost()))
}

#[cfg(test)]
mod tests {
    use super::EventInfo;
    use libspin::{Event, What};
    use spin_abi::command::Direction;
    use spin_abi::fault::{Cause, Fault};
    use std::mem::{offset_of, size_of};

    /// Returns all words of an event at the offsets of the header: see `tests/header.c`.
    fn words(what: What) -> [u64; 9] {
        let info = EventInfo::from(Event { flow: 9, what });
        let EventInfo { kind, flow, stage, cause, pc, address, length, reserved, host } = info;
        let [a, b, c, d, e, f, g, h] = [kind, flow, stage, cause, pc, address, length, reserved].map(u64::from);
        [a, b, c, d, e, f, g, h, host]
    }

    #[test]
    fn fields_are_at_the_offsets_of_the_header() {
        let offsets = [
            offset_of!(EventInfo, kind),
            offset_of!(EventInfo, flow),
            offset_of!(EventInfo, stage),
            offset_of!(EventInfo, cause),
            offset_of!(EventInfo, pc),
            offset_of!(EventInfo, address),
            offset_of!(EventInfo, length),
            offset_of!(EventInfo, reserved),
            offset_of!(EventInfo, host),
            size_of::<EventInfo>(),
        ];
        assert_eq!(offsets, [0, 4, 8, 12, 16, 20, 24, 28, 32, 40]);
    }

    #[test]
    fn each_kind_has_its_fields() {
        let cause = Cause::ALL[1];
        let fault = Fault { cause, pc: 4, address: 5 };
        assert_eq!(words(What::Fault { stage: 2, fault }), [1, 9, 2, cause.code().into(), 4, 5, 0, 0, 0]);
        for (what, kind) in [(What::TimedOut, 2), (What::Evicted, 3), (What::Killed, 4)] {
            assert_eq!(words(what), [kind, 9, 0, 0, 0, 0, 0, 0, 0]);
        }
        for (direction, kind) in [(Direction::ToHost, 5), (Direction::FromHost, 6)] {
            let copied = What::Copied { direction, host: 1 << 40, length: 7 };
            assert_eq!(words(copied), [kind, 9, 0, 0, 0, 0, 7, 0, 1 << 40]);
        }
    }
}
