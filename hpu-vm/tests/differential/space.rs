//! The interpreter on the memory that translated code runs on, and how programs get there.

use hpu_vm::memory::{Access, Region, Space, SpaceError, TaskStart};
use hpu_vm::{RegionKind, run};
use spin_abi::map::PAGE;

use crate::device::Recorder;
use crate::engine::{Engine, Outcome, begin, outcome};
use crate::memory::{Block, CLUSTER, HPU, MACHINE, task};
use crate::program::Program;

/// The interpreter on a [`Space`].
pub struct Mapped;

impl Engine for Mapped {
    fn run(&mut self, program: &Program) -> Outcome {
        let (mut space, mut kept) = map(program).unwrap_or_else(|error| panic!("seed {}: {error}", program.seed));
        let (mut hart, mut recorder) = (begin(program), Recorder::default());
        let exit = space.with_packet(&mut kept.frame, TaskStart::New, |_, view| {
            run(&mut hart, program.image.code(), view, &mut recorder, program.start.limit)
        });
        outcome(exit, &hart, kept.blocks(program), recorder)
    }
}

/// What is needed to see a space's memory after a run.
pub struct Kept {
    /// The packet, to be offered in L2 during the run.
    pub frame: Vec<u8>,
    /// All other memory, to the end of each page.
    whole: Space,
}

/// A space with the program's memory.
///
/// # Errors
/// What the space refused.
pub fn map(program: &Program) -> Result<(Space, Kept), SpaceError> {
    let mut space = Space::new()?;
    let mut kept = Kept { frame: Vec::new(), whole: Space::new()? };
    for block in &program.blocks {
        let pages = u32::try_from(block.bytes.len()).unwrap();
        let access = if block.writable { Access::Write } else { Access::Read };
        match block.kind {
            // With the one in L1, which holds the same.
            RegionKind::L2Packet => kept.frame = block.bytes[..block.len as usize].to_vec(),
            RegionKind::Packet => {
                let windows = Region::new(2 * PAGE as usize)?;
                windows.write(0, &block.bytes).expect("a window is a page");
                let l2 = MACHINE.l2_packet_window(CLUSTER, HPU);
                space.map_packet_in(&windows, (block.base, 0), (l2, PAGE))?;
                space.set_len(RegionKind::Packet, block.len)?;
                kept.whole.map(block.kind, block.base, &windows, 0, pages, access)?;
            }
            _ => {
                let region = Region::around(block.base, &block.bytes)?;
                space.map(block.kind, block.base, &region, 0, block.len, access)?;
                kept.whole.map(block.kind, block.base, &region, 0, pages, access)?;
            }
        }
    }
    space.set_l1_alias(MACHINE.l1_base(CLUSTER), MACHINE.l1_size)?;
    space.set_task_alias(task());
    space.view().set_checks(program.checks);
    Ok((space, kept))
}

impl Kept {
    /// The memory as it is now.
    pub fn blocks(&self, program: &Program) -> Vec<Block> {
        let mut blocks = program.blocks.clone();
        for block in &mut blocks {
            match block.kind {
                RegionKind::L2Packet => block.bytes[..self.frame.len()].copy_from_slice(&self.frame),
                _ => self.whole.copy_out(block.base, &mut block.bytes).expect("a block is readable"),
            }
        }
        blocks
    }
}
