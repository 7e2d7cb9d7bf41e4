//! The interpreter on the memory of an attacker in the hook.

use hpu_vm::bpf::layout::THREAD_POINTER;
use hpu_vm::{Exit, Hart, Memory as Bytes, Range, Reg, View, run};
use spin_abi::map::{HANDLER_ARGS, TASK_BLOCK};

use super::memory::{Memory, Part};
use crate::attack::{Attack, LIMIT};
use crate::device::Recorder;
use crate::guest::{CODE, MACHINE, OWN};

/// How the interpreter ends.
pub struct Interpreted {
    pub exit: Exit,
    /// a0.
    pub result: u32,
}

/// Runs an attack on `memory`, in the slot of a processor. Its window in L1 holds the packet.
pub fn interpret(attack: &Attack, memory: &mut Memory, processor: u32) -> Interpreted {
    let slot = memory.slot(processor);
    let thread_pointer = u32::from_le_bytes(*slot[THREAD_POINTER as usize..].first_chunk().expect("a word"));
    let frame = memory.frame.clone();
    let mut parts = memory.parts(processor);
    parts[1].bytes.copy_from_slice(&frame);
    let mut view = View::new();
    view.set_l1_alias(MACHINE.l1_base(OWN.cluster), MACHINE.l1_size);
    view.set_task_alias(OWN.stack_end() - TASK_BLOCK);
    for Part { kind, base, bytes, writable } in parts {
        let memory = if writable { Bytes::ReadWrite(bytes) } else { Bytes::ReadOnly(bytes) };
        view.push(Range { kind, base, memory }).expect("ranges are disjoint");
    }
    let mut hart = Hart::new(0);
    hart.begin(CODE, OWN.stack_end() - TASK_BLOCK, OWN.stack_end() - HANDLER_ARGS);
    hart.set(Reg::TP, thread_pointer);
    let mut device = Recorder::default();
    let exit = run(&mut hart, &attack.program.code(), &mut view, &mut device, LIMIT);
    Interpreted { exit, result: hart.get(Reg::A0) }
}
