//! Commands: handlers store type and words just before they issue one, so what is issued is mostly known by the values that they
//! stored. The host is called with those then, and need not wait until the words have left the store buffer. Most handlers end with
//! that: then nobody else could read the words, and they are not stored at all.

use std::mem::offset_of;

use cranelift_codegen::ir::types::I32;
use cranelift_codegen::ir::{InstBuilder, Value};
use spin_abi::map::{DRIVER_BASE, RETURN_ADDRESS};
use spin_abi::regs::{COMMAND_ISSUE, COMMAND_WORD_COUNT, INFO_DMA, INFO_SEND};

use super::Emitter;
use crate::device::CommandRegisters;
use crate::inst::{Format, Inst, Op};
use crate::jit::accesses::size;
use crate::jit::facts::Known;
use crate::jit::plan::{Block, End, Plan};
use crate::jit::state::Calls;

/// Blocks that are looked at for what is behind one.
const MOST_BLOCKS: usize = 4;
/// Words that say what a send or a copy is.
const WORDS: usize = 5;

/// What was stored to the command registers since the block began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stored {
    words: [Option<Value>; WORDS],
    /// Those that are zero for certain, a bit each.
    zeroes: u32,
    info: Option<u32>,
}

/// All that a raw send of NIC memory has but an address and a length: neither destination nor queue pair, nor an address of the host.
const PLAIN: u32 = 0b01011;

impl Stored {
    /// Notes a store of `value`, which may be known, to register `index`, in the order of
    /// [`CommandRegisters`](crate::device::CommandRegisters).
    pub(super) const fn note(&mut self, index: usize, value: Value, known: Option<u32>) {
        if index < WORDS {
            self.words[index] = Some(value);
            let zero = matches!(known, Some(0)) as u32;
            self.zeroes = self.zeroes & !(1 << index) | zero << index;
        } else if index == COMMAND_WORD_COUNT {
            self.info = known;
        }
    }

    /// The words of what is issued now, if they are all, and the field of [`Calls`] that takes them.
    fn command(&self) -> Option<(usize, Vec<Value>)> {
        let [Some(first), Some(second), Some(third), Some(fourth), Some(fifth)] = self.words else { return None };
        let all = vec![first, second, third, fourth, fifth];
        match self.info? {
            INFO_SEND if self.zeroes & PLAIN == PLAIN => Some((offset_of!(Calls, send_plain), vec![third, fifth])),
            INFO_SEND => Some((offset_of!(Calls, send), all)),
            INFO_DMA => Some((offset_of!(Calls, dma), all)),
            _ => None,
        }
    }
}

/// Whether a block ends the handler with commands whose words nobody could read but who issues them: all of each is stored in the block,
/// and from the first store on nothing is left to the interpreter.
fn ends_with_commands(plan: &Plan, block: &Block, known: &Known) -> bool {
    if !returns(plan, block) {
        return false;
    }
    let (mut known, mut stored, mut info, mut begun) = (known.clone(), 0_u32, None, false);
    for (index, (_, decoded)) in block.body.iter().enumerate() {
        let inst = &decoded.inst;
        let register = register(inst, &known);
        match register {
            Some(at) if inst.op == Op::Sw && at / 4 < WORDS => stored |= 1 << (at / 4),
            Some(at) if inst.op == Op::Sw && at / 4 == COMMAND_WORD_COUNT => info = known.constant(inst.rs2),
            Some(_) => return false,
            None if issues(inst, &known) => {
                let whole = stored + 1 == 1 << WORDS && matches!(info, Some(INFO_SEND | INFO_DMA));
                if !whole {
                    return false;
                }
            }
            None if begun && !computes(inst) => return false,
            None => {}
        }
        begun |= register.is_some();
        if begun && block.restored(index).is_some() {
            return false;
        }
        known.step_in(block, index);
    }
    begun
}

/// Whether the handler returns behind a block, at once or by way of blocks that have no more than returns have in common.
fn returns<'p>(plan: &'p Plan, mut block: &'p Block) -> bool {
    for _ in 0..MOST_BLOCKS {
        let target = match &block.end {
            End::Goto(target) => target,
            end => return *end == End::Fetch(RETURN_ADDRESS),
        };
        if target.pc == RETURN_ADDRESS {
            return true;
        }
        let next = target.block.map(|id| &plan.blocks[id]);
        let Some(next) = next.filter(|next| next.body.iter().all(|(_, decoded)| computes(&decoded.inst))) else {
            return false;
        };
        block = next;
    }
    false
}

/// Offset in the [`CommandRegisters`] of the one that is accessed, if it is known to be one.
pub(super) fn register(inst: &Inst, known: &Known) -> Option<usize> {
    CommandRegisters::offset(known.address(inst)?, size(inst)?)
}

/// Whether an instruction issues a command, for certain.
pub(super) fn issues(inst: &Inst, known: &Known) -> bool {
    inst.op == Op::Lw && known.address(inst) == Some(DRIVER_BASE + COMMAND_ISSUE)
}

/// Whether an instruction does no more than compute, or return.
const fn computes(inst: &Inst) -> bool {
    matches!(inst.op.format(), Format::R | Format::I | Format::Shift | Format::U | Format::J | Format::JumpRegister)
}

impl Emitter<'_> {
    /// Whether the words of commands in a block, at whose start `self.known` is known, need not be stored.
    pub(super) fn ends_with_commands(&self, block: &Block) -> bool {
        let is_told = self.any_device || self.retired.is_some() || self.registers.in_state();
        !is_told && ends_with_commands(self.plan, block, &self.known)
    }

    /// The handle of the command that is issued.
    pub(super) fn issue(&mut self) -> Value {
        let result = match self.registers.stored().command() {
            Some((field, words)) => self.device_call(field, &words),
            None if self.ends_with_commands => unreachable!("such a block has all words of each command"),
            None => self.device_call(offset_of!(Calls, issue), &[]),
        };
        self.builder.ins().ireduce(I32, result)
    }
}
