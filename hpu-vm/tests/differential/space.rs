//! The interpreter on the memory that translated code runs on, and how programs get there.

use hpu_vm::memory::{Access, Region, Space, SpaceError};
use hpu_vm::{RegionKind, run};

use crate::device::Recorder;
use crate::engine::{Engine, Outcome, begin, outcome};
use crate::memory::{Block, CLUSTER, MACHINE, task};
use crate::program::Program;

/// The interpreter on a [`Space`].
pub struct Mapped;

impl Engine for Mapped {
    fn run(&mut self, program: &Program) -> Outcome {
        let (mut space, mut kept) = map(program).unwrap_or_else(|error| panic!("seed {}: {error}", program.seed));
        let (mut hart, mut recorder) = (begin(program), Recorder::default());
        let exit = space.offer_l2(&mut kept.frame, |_, view| {
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
        if block.kind == RegionKind::L2Packet {
            space.map_l2_packet(block.base)?;
            kept.frame = block.bytes[..block.len as usize].to_vec();
        } else {
            let region = Region::around(block.base, &block.bytes)?;
            let access = if block.writable { Access::Write } else { Access::Read };
            let pages = u32::try_from(block.bytes.len()).unwrap();
            space.map(block.kind, block.base, &region, 0, block.len, access)?;
            kept.whole.map(block.kind, block.base, &region, 0, pages, access)?;
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
