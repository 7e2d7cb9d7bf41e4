//! Host memory of a context, at the addresses by which its handlers know it.

use std::sync::Arc;

use hpu_vm::HostBytes;
use spin_shm::Region;

/// Host memory by the addresses the application knows: the context's IOMMU.
#[derive(Debug)]
pub struct HostMemory {
    /// The shared bytes.
    pub region: Arc<Region>,
    /// Address by which handlers name the first of them.
    pub address: u64,
}

impl HostMemory {
    /// The bytes, and where handlers find them.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> HostBytes<'_> {
        HostBytes::new(self.address, self.region.bytes())
    }

    /// Offset in the region of `len` bytes at host address `address`, if all of them are inside.
    #[must_use]
    pub fn offset(&self, address: u64, len: usize) -> Option<u64> {
        let offset = address.checked_sub(self.address)?;
        let end = offset.checked_add(len as u64)?;
        (end <= self.region.len()).then_some(offset)
    }
}
