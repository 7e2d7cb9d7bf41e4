//! Memory of a context's tasks: NIC memory, and the context's own windows.

use std::sync::Arc;

use hpu_vm::RegionKind;
use hpu_vm::memory::{Access, Region, Space, SpaceError};
use spin_abi::map::{PAGE, STACK_WINDOW, TASK_BLOCK};
use spin_pspin::hpu::memory::{HpuId, TaskMemory, WINDOWS, packet_windows};

use crate::image::Loaded;
use crate::{CLUSTERS, MACHINE};

/// Memory as one context's tasks see it.
#[derive(Debug)]
pub struct ContextMemory {
    image: Arc<Loaded>,
    /// Stacks and packets of all HPUs.
    windows: Arc<Region>,
    handler: (u32, u32),
    /// Offset and size in bytes of the scratchpad in each cluster.
    scratchpads: [(u32, u32); CLUSTERS],
}

impl ContextMemory {
    /// Makes the memory. The caller has checked that handler memory and scratchpads lie within the NIC's memories.
    ///
    /// # Errors
    /// See [`SpaceError`].
    pub fn new(
        image: Arc<Loaded>,
        handler: (u32, u32),
        offsets: [u32; CLUSTERS],
        sizes: [u32; CLUSTERS],
    ) -> Result<Self, SpaceError> {
        let hpus = MACHINE.clusters * MACHINE.hpus_per_cluster;
        let windows = Region::new((hpus * WINDOWS * PAGE) as usize)?;
        let scratchpads = std::array::from_fn(|cluster| (offsets[cluster], sizes[cluster]));
        Ok(Self { image, windows, handler, scratchpads })
    }

    const fn window(own: HpuId) -> u32 {
        (own.cluster * MACHINE.hpus_per_cluster + own.hpu) * WINDOWS * PAGE
    }
}

impl TaskMemory for ContextMemory {
    fn space(&self, own: HpuId) -> Result<Space, SpaceError> {
        let mut space = Space::new()?;
        let (nic, HpuId { cluster, hpu }, first) = (&self.image.memory, own, Self::window(own));
        // Windows that change from task to task come first: lookups search in this order.
        let [l1, l2] = packet_windows(&MACHINE, own, first);
        space.map_packet_in(&self.windows, l1, l2)?;
        let (stack, write) = (MACHINE.stack_base(cluster, hpu), Access::Write);
        space.map(RegionKind::Stack, stack, &self.windows, first, STACK_WINDOW, write)?;
        for other in 0..MACHINE.clusters {
            let (base, len) = self.scratchpad(other, own);
            nic.show(&mut space, RegionKind::Scratchpad, base, len, write)?;
        }
        nic.show_image(&mut space, &self.image.image, self.handler)?;
        space.set_l1_alias(MACHINE.l1_base(cluster), MACHINE.l1_size)?;
        space.set_task_alias(stack + STACK_WINDOW - TASK_BLOCK);
        Ok(space)
    }

    fn handler(&self) -> (u32, u32) {
        self.handler
    }

    fn scratchpad(&self, cluster: u32, _: HpuId) -> (u32, u32) {
        let (offset, len) = self.scratchpads[cluster as usize];
        (MACHINE.scratchpad_base(cluster).wrapping_add(offset), len)
    }

    fn windows(&self, own: HpuId) -> (Arc<Region>, u32) {
        (self.windows.clone(), Self::window(own))
    }
}
