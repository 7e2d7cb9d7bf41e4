//! Copies to host memory without a call of the device: see [`host_copy`](crate::jit::host_copy).

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8X16, I32, I64};
use cranelift_codegen::ir::{self, InstBuilder, Type, Value};
use spin_abi::map::PACKET_WINDOW;

use super::{Emitter, GUEST, offset};
use crate::inst::{Inst, Reg};
use crate::jit::host_copy::{ALIGNMENT, HostCopy, LENGTHS};
use crate::jit::state::{HostCalls, State};

/// The pieces of a copy: their type, and where each begins. The last one may begin in the one before.
fn pieces(len: u32) -> (Type, impl Iterator<Item = u32> + Clone) {
    let kind = match len {
        16.. => I8X16,
        8.. => I64,
        _ => I32,
    };
    let size = kind.bytes();
    (kind, (0..len / size).map(move |piece| piece * size).chain((!len.is_multiple_of(size)).then(|| len - size)))
}

impl Emitter<'_> {
    /// Whether the device need not be asked at once for what `inst` issues: nobody wants its handle, and it is not watched what commands cost.
    pub(super) fn is_untold(&self, inst: &Inst) -> bool {
        let is_wanted = inst.rd != Reg::ZERO && self.live[self.index + 1].has(inst.rd);
        let is_watched = self.options.observe || self.retired.is_some() || self.registers.in_state();
        !is_wanted && !is_watched
    }

    /// Issues a copy of which `words` are what [`HostCalls::dma_to_host`] takes, and `len` is what is known of its length. Where stores are seen
    /// in their order, as who reads host memory relies on, a short one is made here.
    pub(super) fn copy_to_host(&mut self, words: &[Value], len: Option<u32>) {
        // Also of none: that is a copy.
        self.copies = self.copies.max(len.unwrap_or(PACKET_WINDOW)).max(1);
        match len.filter(|len| self.stores_in_order && LENGTHS.contains(len)) {
            Some(len) => self.copy_here(words, len),
            None => {
                self.device_call(offset_of!(HostCalls, copy_to_host), words);
            }
        }
    }

    /// Makes a copy of `len` bytes unless something is not as most often.
    fn copy_here(&mut self, words: &[Value], len: u32) {
        let &[low, high, nic, _] = words else { unreachable!("addresses and length") };
        let (otherwise, done) = (self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(otherwise);
        let at = self.place_in_host(low, high);
        // What is not aligned is far beyond all places.
        let place = self.builder.ins().rotr_imm_u(at, i64::from(ALIGNMENT.trailing_zeros()));
        let places = self.direct(I64, offset_of!(HostCopy, places));
        let beyond = self.builder.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, place, places);
        self.go_if(beyond, otherwise);
        let inside = self.is_in_packet(nic, len);
        let beyond = self.builder.ins().icmp_imm_u(IntCC::Equal, inside, 0);
        self.go_if(beyond, otherwise);

        let (nic, base) = (self.zero_extended(nic), self.packet_base());
        let from = self.builder.ins().iadd(base, nic);
        let to = self.direct(I64, offset_of!(HostCopy, host));
        let to = self.builder.ins().iadd(to, at);
        self.copy_pieces(from, to, len);
        self.count_copy(len);
        self.builder.ins().jump(done, &[]);

        self.builder.seal_block(otherwise);
        self.builder.switch_to_block(otherwise);
        let cached = self.registers.clone();
        self.device_call(offset_of!(HostCalls, copy_to_host), words);
        self.registers = cached;
        self.registers.found.clear();
        self.builder.ins().jump(done, &[]);
        self.join(done);
    }

    /// How far from the first byte of host memory an address is, given by its halves.
    fn place_in_host(&mut self, low: Value, high: Value) -> Value {
        let host = self.joined(low, high);
        let first = self.direct(I64, offset_of!(HostCopy, address));
        self.builder.ins().isub(host, first)
    }

    fn count_copy(&mut self, len: u32) {
        for (field, more) in [(offset_of!(HostCopy, copies), 1), (offset_of!(HostCopy, bytes), len)] {
            let at = offset_of!(State, host_copy) + field;
            let sum = self.load_state(I64, at);
            let sum = self.builder.ins().iadd_imm_u(sum, i64::from(more));
            self.store_state(sum, at);
        }
    }

    /// Copies from the packet to host memory. These processors write at once what a store has of a cache line: so others see aligned words as a
    /// whole, of eight bytes, or of four where pieces are as long.
    fn copy_pieces(&mut self, from: Value, to: Value, len: u32) {
        let (kind, places) = pieces(len);
        let at = |place: u32| offset(place as usize);
        let values: Vec<Value> =
            places.clone().map(|place| self.builder.ins().load(kind, GUEST, from, at(place))).collect();
        for (value, place) in values.into_iter().zip(places) {
            self.builder.ins().store(GUEST.with_notrap(), value, to, at(place));
        }
    }

    /// A field of [`HostCopy`] that stays as it is as long as a task runs.
    fn direct(&mut self, kind: Type, field: usize) -> Value {
        self.load_fixed(kind, offset_of!(State, host_copy) + field)
    }

    /// Goes to a block when `condition` holds, and on else.
    fn go_if(&mut self, condition: Value, to: ir::Block) {
        let go_on = self.builder.create_block();
        self.builder.ins().brif(condition, to, &[], go_on, &[]);
        self.join(go_on);
    }
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
