//! Commands. Handlers store type and words just before they issue a command, so that they are mostly known: the host is
//! called with them, and need not wait until the words have left the store buffer.
//!
//! A send that is a handler's last action is left to the caller of the function. The function then needs neither a call
//! nor to save what a call would overwrite.

use std::mem::offset_of;

use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{AbiParam, InstBuilder, SourceLoc, Value};
use spin_abi::regs::{INFO_DMA, INFO_SEND};

use super::cache::StoredCommand;
use super::device::device_call;
use super::emitter::{Emitter, LastSend};
use super::host_copy::{copy_to_host, is_deferrable};
use super::peephole::zero_extended;
use crate::inst::Inst;
use crate::jit::convention::LAST_SEND;
use crate::jit::pc_map::HANDLER_RETURN;
use crate::jit::state::HostCalls;

/// The handle of the command that `inst` issues.
pub(super) fn issue(emitter: &mut Emitter<'_>, inst: &Inst) -> Value {
    let stored = emitter.cache.command;
    let is_hidden = emitter.at.block.is_some_and(|id| emitter.input.plan.commands.hidden[id]);
    let result = match call_of(&stored) {
        Some((field, words)) if field == offset_of!(HostCalls, dma_to_host) && is_deferrable(emitter, inst) => {
            copy_to_host(emitter, &words, stored.known[3]);
            return emitter.constant(0);
        }
        Some((field, words)) if field == offset_of!(HostCalls, send_plain) && sends_last(emitter, inst) => {
            let &[address, length] = &*words else { unreachable!("address and length") };
            emitter.ways.prologue.command |= !is_hidden;
            emitter.outcome.last_send = Some(LastSend { pc: emitter.at.pc, address, length });
            return emitter.constant(0);
        }
        Some((field, words)) => device_call(emitter, field, &words),
        None if is_hidden => unreachable!("such a block stores all words of each command"),
        None => device_call(emitter, offset_of!(HostCalls, issue), &[]),
    };
    emitter.builder.ins().ireduce(I32, result)
}

/// The field of [`HostCalls`] that issues a command, and the words it takes; `None` unless all words are known.
fn call_of(stored: &StoredCommand) -> Option<(usize, Vec<Value>)> {
    let [Some(first), Some(second), Some(third), Some(fourth), Some(fifth)] = stored.words else { return None };
    let all = vec![first, second, third, fourth, fifth];
    match (stored.info?, stored.known) {
        // A raw send of NIC memory has neither destination nor queue pair, nor a host address.
        (INFO_SEND, [Some(0), Some(0), _, Some(0), _]) => Some((offset_of!(HostCalls, send_plain), vec![third, fifth])),
        (INFO_SEND, _) => Some((offset_of!(HostCalls, send), all)),
        (INFO_DMA, [.., Some(direction)]) if direction & 1 == 1 => {
            Some((offset_of!(HostCalls, dma_to_host), vec![first, second, third, fourth]))
        }
        (INFO_DMA, _) => Some((offset_of!(HostCalls, dma), all)),
        _ => None,
    }
}

/// Whether a send that `inst` issues may be left to the caller.
fn sends_last(emitter: &Emitter<'_>, inst: &Inst) -> bool {
    let last = emitter.at.block.and_then(|id| emitter.input.plan.commands.last_action[id]);
    last == Some(emitter.at.index) && is_deferrable(emitter, inst)
}

/// Returns from the handler, and leaves a send to the caller.
pub(super) fn return_sending(emitter: &mut Emitter<'_>, LastSend { pc, address, length }: LastSend) {
    let results = emitter.input.facts.results;
    emitter.save(results);
    let [address, length] = [address, length].map(|word| zero_extended(emitter, word));
    let above = emitter.builder.ins().ishl_imm_u(length, 32);
    let what = emitter.builder.ins().bor(above, address);
    let how = emitter.builder.ins().iconst(I64, LAST_SEND | i64::from(pc));
    let results = &mut emitter.builder.func.signature.returns;
    if results.len() < 2 {
        results.push(AbiParam::new(I64));
    }
    // Not part of the body, like all returns.
    emitter.builder.set_srcloc(SourceLoc::new(HANDLER_RETURN));
    emitter.builder.ins().return_(&[how, what]);
}
