//! What is said to a view behind its space's back is not done to the host.

use hpu_vm::RegionKind;
use hpu_vm::jit::{Slot, TaskDescriptor};
use hpu_vm::memory::Space;
use hpu_vm::view::{Memory, Range};
use spin_abi::map::{PAGE, TASK_BLOCK};

const STACK: u32 = 0x1000_0000;

#[test]
fn a_task_is_described_where_memory_is_mapped_only() {
    let mut space = Space::new().expect("a space");
    let bytes = Box::leak(vec![0; PAGE as usize].into_boxed_slice());
    space.view().push(Range { kind: RegionKind::Stack, base: STACK, memory: Memory::ReadWrite(bytes) }).expect("room");
    space.set_task_alias(STACK + PAGE - TASK_BLOCK);
    let mut slot = Slot::new(0, space);
    slot.describe(&TaskDescriptor::new(STACK + PAGE, 5, 0, 0), [(0x10, 1)]);
    let mut block = [1; TASK_BLOCK as usize];
    slot.space().copy_out(STACK + PAGE - TASK_BLOCK, &mut block).expect("readable");
    assert_eq!(block, [0; TASK_BLOCK as usize]);
}
