//! Copies to host memory without a call of the device: see [`crate::jit::host_copy`].

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8X16, I32, I64};
use cranelift_codegen::ir::{self, InstBuilder, Type, Value};
use spin_abi::map::PACKET_WINDOW;

use super::access::{GUEST, offset};
use super::device::device_call;
use super::emitter::Emitter;
use super::peephole::{join_halves, zero_extended};
use super::zero_copy::{is_in_packet, packet_base};
use crate::analysis::regs::Regs;
use crate::inst::{Inst, Reg};
use crate::jit::host_copy::{ALIGNMENT, HostCopy, LENGTHS};
use crate::jit::state::{HostCalls, State};

/// The pieces of a copy: their type, and the offset of each. The last piece may overlap the one before.
fn pieces(len: u32) -> (Type, impl Iterator<Item = u32> + Clone) {
    let kind = match len {
        16.. => I8X16,
        8.. => I64,
        _ => I32,
    };
    let size = kind.bytes();
    (kind, (0..len / size).map(move |piece| piece * size).chain((!len.is_multiple_of(size)).then(|| len - size)))
}

/// Whether the device may learn of the command that `inst` issues later: nothing uses the handle, and what commands cost is
/// not counted.
pub(super) fn is_deferrable(emitter: &Emitter<'_>, inst: &Inst) -> bool {
    let live = emitter.at.block.map_or(Regs::ALL, |id| emitter.input.facts.live(id, emitter.at.index + 1));
    let is_used = inst.rd != Reg::ZERO && live.has(inst.rd);
    !is_used && !emitter.is_watched()
}

/// Issues a copy. `words` are the arguments of [`HostCalls::dma_to_host`]; `len` is the length, if it is a constant. A short
/// copy is made inline where the host keeps the order of stores, which readers of host memory rely on.
pub(super) fn copy_to_host(emitter: &mut Emitter<'_>, words: &[Value], len: Option<u32>) {
    // A copy of no bytes counts, too.
    let longest = &mut emitter.outcome.longest_copy;
    *longest = len.unwrap_or(PACKET_WINDOW).max(*longest).max(1);
    match len.filter(|len| emitter.input.stores_in_order && LENGTHS.contains(len)) {
        Some(len) => copy_here(emitter, words, len),
        None => {
            device_call(emitter, offset_of!(HostCalls, copy_to_host), words);
        }
    }
}

/// Copies `len` bytes from the packet in L1 to an aligned place in host memory; the host makes other copies.
fn copy_here(emitter: &mut Emitter<'_>, words: &[Value], len: u32) {
    let &[low, high, nic, _] = words else { unreachable!("addresses and length") };
    let (otherwise, done) = (emitter.builder.create_block(), emitter.builder.create_block());
    emitter.builder.set_cold_block(otherwise);
    let at = place_in_host(emitter, low, high);
    // A misaligned address, rotated, is beyond all places.
    let place = emitter.builder.ins().rotr_imm_u(at, i64::from(ALIGNMENT.trailing_zeros()));
    let places = direct(emitter, I64, offset_of!(HostCopy, places));
    let beyond = emitter.builder.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, place, places);
    go_if(emitter, beyond, otherwise);
    let inside = is_in_packet(emitter, nic, len);
    let beyond = emitter.builder.ins().icmp_imm_u(IntCC::Equal, inside, 0);
    go_if(emitter, beyond, otherwise);

    let (nic, base) = (zero_extended(emitter, nic), packet_base(emitter));
    let from = emitter.builder.ins().iadd(base, nic);
    let to = direct(emitter, I64, offset_of!(HostCopy, host));
    let to = emitter.builder.ins().iadd(to, at);
    copy_pieces(emitter, from, to, len);
    count_copy(emitter, len);
    emitter.builder.ins().jump(done, &[]);

    emitter.builder.seal_block(otherwise);
    emitter.builder.switch_to_block(otherwise);
    emitter.apart(|emitter| {
        device_call(emitter, offset_of!(HostCalls, copy_to_host), words);
    });
    emitter.cache.forget_packet();
    emitter.builder.ins().jump(done, &[]);
    emitter.join(done);
}

/// Distance of an address, given by its halves, from the first byte of host memory.
fn place_in_host(emitter: &mut Emitter<'_>, low: Value, high: Value) -> Value {
    let host = join_halves(emitter, low, high);
    let first = direct(emitter, I64, offset_of!(HostCopy, address));
    emitter.builder.ins().isub(host, first)
}

fn count_copy(emitter: &mut Emitter<'_>, len: u32) {
    for (field, more) in [(offset_of!(HostCopy, copies), 1), (offset_of!(HostCopy, bytes), len)] {
        let at = offset_of!(State, host_copy) + field;
        let sum = emitter.load_state(I64, at);
        let sum = emitter.builder.ins().iadd_imm_u(sum, i64::from(more));
        emitter.store_state(sum, at);
    }
}

/// Copies from the packet to host memory. The processor writes the part of a store that lies in one cache line at once:
/// readers see aligned words of eight bytes, or of four if the pieces have four, as a whole.
fn copy_pieces(emitter: &mut Emitter<'_>, from: Value, to: Value, len: u32) {
    let (kind, places) = pieces(len);
    let at = |place: u32| offset(place as usize);
    let values: Vec<Value> =
        places.clone().map(|place| emitter.builder.ins().load(kind, GUEST, from, at(place))).collect();
    for (value, place) in values.into_iter().zip(places) {
        emitter.builder.ins().store(GUEST.with_notrap(), value, to, at(place));
    }
}

/// A field of [`HostCopy`] that does not change while a task runs.
fn direct(emitter: &mut Emitter<'_>, kind: Type, field: usize) -> Value {
    emitter.load_fixed(kind, offset_of!(State, host_copy) + field)
}

/// Goes to a block when `condition` holds; otherwise continues.
fn go_if(emitter: &mut Emitter<'_>, condition: Value, to: ir::Block) {
    let go_on = emitter.builder.create_block();
    emitter.builder.ins().brif(condition, to, &[], go_on, &[]);
    emitter.join(go_on);
}

#[cfg(test)]
mod tests {
    use super::pieces;
    use crate::jit::host_copy::LENGTHS;

    #[test]
    fn pieces_are_all_of_a_copy_and_nothing_else() {
        for len in LENGTHS {
            let (kind, places) = pieces(len);
            let mut copied = vec![0; len as usize];
            for place in places {
                copied[place as usize..][..kind.bytes() as usize].iter_mut().for_each(|byte| *byte += 1);
            }
            assert!(copied.iter().all(|times| (1..=2).contains(times)), "{len}: {copied:?}");
        }
    }
}
