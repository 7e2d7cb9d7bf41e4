//! Commands. Handlers store type and words just before they issue a command, so the stored values are mostly known at
//! translation. The host is then called with these values and need not wait until the words have left the store buffer.
//! Most handlers end afterwards, or store all words again for the next command. Nothing else can then read the words,
//! and they are not stored at all.
//!
//! A send that is a handler's last action is left to the caller of the function: the function then needs neither a call
//! nor what a calling function must save.

use std::mem::offset_of;

use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{AbiParam, InstBuilder, SourceLoc, Value};
use spin_abi::map::RETURN_ADDRESS;
use spin_abi::regs::{COMMAND_WORD_COUNT, INFO_DMA, INFO_SEND};

use super::Emitter;
use crate::inst::{Format, Inst, Op};
use crate::jit::commands::{self, Parts, WORDS, issues, may_read, register};
use crate::jit::convention::LAST_SEND;
use crate::jit::facts::Known;
use crate::jit::pc_map::HANDLER_RETURN;
use crate::jit::plan::{Block, BlockId, End, Target};
use crate::jit::state::HostCalls;

/// What was stored to the command registers since the block began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stored {
    words: [Option<Value>; WORDS],
    /// What is known of them.
    known: [Option<u32>; WORDS],
    info: Option<u32>,
}

impl Stored {
    /// Notes a store of `value`, which may be known, to register `index`, in the order of
    /// [`CommandRegisters`](crate::device::CommandRegisters).
    pub(super) const fn note(&mut self, index: usize, value: Value, known: Option<u32>) {
        if index < WORDS {
            (self.words[index], self.known[index]) = (Some(value), known);
        } else if index == COMMAND_WORD_COUNT {
            self.info = known;
        }
    }

    /// The words of what is issued now, if they are all, and the field of [`HostCalls`] that takes them.
    fn command(&self) -> Option<(usize, Vec<Value>)> {
        let [Some(first), Some(second), Some(third), Some(fourth), Some(fifth)] = self.words else { return None };
        let all = vec![first, second, third, fourth, fifth];
        match (self.info?, self.known) {
            // A raw send of NIC memory: neither destination nor queue pair, nor an address of the host.
            (INFO_SEND, [Some(0), Some(0), _, Some(0), _]) => {
                Some((offset_of!(HostCalls, send_plain), vec![third, fifth]))
            }
            (INFO_SEND, _) => Some((offset_of!(HostCalls, send), all)),
            (INFO_DMA, [.., Some(direction)]) if direction & 1 == 1 => {
                Some((offset_of!(HostCalls, dma_to_host), vec![first, second, third, fourth]))
            }
            (INFO_DMA, _) => Some((offset_of!(HostCalls, dma), all)),
            _ => None,
        }
    }
}

/// A send that is left to the caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastSend {
    pc: u32,
    address: Value,
    length: Value,
}

/// Whether the words of a block's commands need not be stored for what the block itself does: all of each is stored in it, and from the
/// first store on to the command's issue nothing is left to the interpreter; or, if a command has words of the one before, to the
/// block's end.
fn hides_commands(block: &Block, known: &Known, exact: bool) -> bool {
    let stores = block.body.iter().filter(|(_, decoded)| decoded.inst.op == Op::Sw).count();
    stores > WORDS && (hides(block, known, true, exact) || hides(block, known, false, exact))
}

fn hides(block: &Block, known: &Known, apart: bool, exact: bool) -> bool {
    let (mut known, mut stored, mut info, mut begun, mut any) = (known.clone(), Parts::default(), None, false, false);
    for (index, (_, decoded)) in block.body.iter().enumerate() {
        let inst = &decoded.inst;
        let offset = register(inst, &known);
        match offset.map(|offset| Parts::part(offset).filter(|_| inst.op == Op::Sw)) {
            Some(Some(part)) => {
                stored.add(part);
                info = if part == WORDS { known.constant(inst.rs2) } else { info };
                begun = true;
            }
            Some(None) => return false,
            None if issues(inst, &known) => {
                if !stored.are_all() || !matches!(info, Some(INFO_SEND | INFO_DMA)) {
                    return false;
                }
                any = true;
                if apart {
                    (stored, info, begun) = (Parts::default(), None, false);
                }
            }
            None if begun && !computes(inst) || any && may_read(inst, &known, exact) => return false,
            None => {}
        }
        // What the interpreter goes on with then is not known.
        if (begun || any) && block.restored(index).is_some() {
            return false;
        }
        known.step_in(block, index);
    }
    any && !(apart && begun)
}

/// Whether an instruction does no more than compute, or go elsewhere.
const fn computes(inst: &Inst) -> bool {
    let format = inst.op.format();
    format.computes() || matches!(format, Format::J | Format::JumpRegister | Format::Branch)
}

impl Emitter<'_> {
    /// Whether the words of commands in a block, at whose start `self.known` is known, need not be stored.
    pub(super) fn hides_commands(&mut self, id: BlockId) -> bool {
        let is_told = self.any_device || self.retired.is_some() || self.registers.in_state();
        let block = &self.plan.blocks[id];
        let exact = self.exact();
        if is_told || !hides_commands(block, &self.known, exact) {
            return false;
        }
        let live = self.commands_live.get_or_insert_with(|| commands::live_behind(self.plan, self.facts, exact));
        !live[id]
    }

    /// Index of the last instruction of a block that does more than compute, if behind that the handler returns.
    pub(super) fn last(&self, id: BlockId) -> Option<usize> {
        let block = &self.plan.blocks[id];
        let End::Goto(Target { block: Some(to), .. }) = block.end else { return None };
        let behind = &self.plan.blocks[to];
        let returns = behind.body.is_empty() && matches!(behind.end, End::Fetch(RETURN_ADDRESS)) && !self.is_apart(to);
        let last = block.body.iter().rposition(|(_, decoded)| !computes(&decoded.inst))?;
        // Where the return address is looked at that a frame held, there is a way to elsewhere.
        let expected = (last..block.body.len()).any(|index| block.restored(index).is_some());
        (returns && !expected).then_some(last)
    }

    /// Whether a send that `inst` issues may be left to the caller: nobody wants its handle, and it is the function's own caller that is to
    /// come.
    fn sends_last(&self, inst: &Inst) -> bool {
        self.last == Some(self.index) && self.is_untold(inst) && !self.part.is_aside()
    }

    /// Returns from the handler, but for what is to be sent.
    pub(super) fn return_sending(&mut self, LastSend { pc, address, length }: LastSend) {
        self.save(self.facts.results);
        let [address, length] = [address, length].map(|word| self.zero_extended(word));
        let above = self.builder.ins().ishl_imm_u(length, 32);
        let what = self.builder.ins().bor(above, address);
        let how = self.builder.ins().iconst(I64, LAST_SEND | i64::from(pc));
        let results = &mut self.builder.func.signature.returns;
        if results.len() < 2 {
            results.push(AbiParam::new(I64));
        }
        // Not of the body, as where functions return.
        self.builder.set_srcloc(SourceLoc::new(HANDLER_RETURN));
        self.builder.ins().return_(&[how, what]);
    }

    /// The handle of the command that `inst` issues.
    pub(super) fn issue(&mut self, inst: &Inst) -> Value {
        let stored = self.registers.stored();
        let length = stored.known[3];
        let result = match stored.command() {
            Some((field, words)) if field == offset_of!(HostCalls, dma_to_host) && self.is_untold(inst) => {
                self.copy_to_host(&words, length);
                return self.constant(0);
            }
            Some((field, words)) if field == offset_of!(HostCalls, send_plain) && self.sends_last(inst) => {
                let &[address, length] = &*words else { unreachable!("address and length") };
                self.begins.command |= !self.hides_commands;
                self.last_send = Some(LastSend { pc: self.pc, address, length });
                return self.constant(0);
            }
            Some((field, words)) => self.device_call(field, &words),
            None if self.hides_commands => unreachable!("such a block has all words of each command"),
            None => self.device_call(offset_of!(HostCalls, issue), &[]),
        };
        self.builder.ins().ireduce(I32, result)
    }
}
