//! What spind and its machine can do.

use std::ffi::{c_char, c_int};
use std::ptr;

use crate::call::guarded;
use crate::client::{Connection, locked};
use crate::status::Error;

/// Capabilities, for C. New fields are added at the end.
#[repr(C)]
#[derive(Debug)]
pub struct Capabilities {
    protocol: u32,
    threads: u32,
    clusters: u32,
    hpus_per_cluster: u32,
    max_frame: u32,
    max_payload: u32,
    handler_memory: u32,
    scratchpad: u32,
    contexts: u64,
    queues: u64,
    host_memory: u64,
    image: u64,
    watchdog_us: u64,
    guarantees: u64,
    version: [c_char; 32],
    units: u64,
}

/// The header's size: `tests/header.c` checks it there.
const _: () = assert!(size_of::<Capabilities>() == 120);

impl From<libspin::Capabilities> for Capabilities {
    fn from(from: libspin::Capabilities) -> Self {
        let (machine, limits) = (from.machine, from.limits);
        Self {
            protocol: from.protocol.into(),
            threads: from.threads,
            clusters: machine.clusters,
            hpus_per_cluster: machine.hpus_per_cluster,
            max_frame: from.max_frame,
            max_payload: from.max_payload,
            handler_memory: machine.handler_mem,
            scratchpad: machine.scratchpad,
            contexts: limits.contexts,
            queues: limits.queues,
            host_memory: limits.host_mem,
            image: limits.image,
            watchdog_us: limits.watchdog_us,
            guarantees: guarantees(from.guarantees),
            version: version(&from.version),
            units: from.units.into(),
        }
    }
}

fn guarantees(from: libspin::Guarantees) -> u64 {
    let bits = [
        from.header_first,
        from.in_order_delivery,
        from.in_order,
        from.reliable,
        from.unmatched_to_kernel,
        from.matched_to_kernel,
    ];
    bits.into_iter().zip(0..).map(|(holds, bit)| u64::from(holds) << bit).sum()
}

/// Copies a text, cut so that a zero follows.
fn version(text: &str) -> [c_char; 32] {
    let mut copy = [0; 32];
    for (to, byte) in copy[..31].iter_mut().zip(text.bytes()) {
        *to = c_char::from_ne_bytes([byte]);
    }
    copy
}

/// See `spin_client.h`.
///
/// # Safety
/// `client` is null or a valid handle; `capabilities` is null or `size` bytes from there may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spin_capabilities_read(
    client: *const Connection,
    capabilities: *mut Capabilities,
    size: usize,
) -> c_int {
    guarded(|| {
        if capabilities.is_null() {
            return Err(Error::Null("capabilities"));
        }
        // SAFETY: guaranteed by the caller.
        let known: Capabilities = unsafe { locked(client)? }.capabilities()?.into();
        let to = capabilities.cast::<u8>();
        let copied = size.min(size_of::<Capabilities>());
        // SAFETY: the caller guarantees `size` bytes. A program compiled against another version of the header has a
        // shorter or longer structure; the part that this library does not know is zero.
        unsafe {
            ptr::copy_nonoverlapping((&raw const known).cast(), to, copied);
            ptr::write_bytes(to.wrapping_add(copied), 0, size - copied);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::{guarantees, version};
    use libspin::Guarantees;

    #[test]
    fn the_header_has_the_bits() {
        let header = include_str!("../include/spin_client.h");
        let none = Guarantees::default();
        for (name, held) in [
            ("HEADER_FIRST", Guarantees { header_first: true, ..none }),
            ("IN_ORDER_DELIVERY", Guarantees { in_order_delivery: true, ..none }),
            ("IN_ORDER", Guarantees { in_order: true, ..none }),
            ("RELIABLE", Guarantees { reliable: true, ..none }),
            ("UNMATCHED_TO_KERNEL", Guarantees { unmatched_to_kernel: true, ..none }),
            ("MATCHED_TO_KERNEL", Guarantees { matched_to_kernel: true, ..none }),
        ] {
            let line = format!("    SPIN_{name} = {},", guarantees(held));
            assert!(header.contains(&line), "{line}");
        }
    }

    #[test]
    fn a_version_ends_with_a_zero() {
        assert_eq!(version("0.1")[..4].iter().map(|byte| byte.cast_unsigned()).collect::<Vec<_>>(), b"0.1\0");
        assert_eq!(version(&"1".repeat(40)).iter().filter(|byte| **byte == 0).count(), 1);
    }
}
