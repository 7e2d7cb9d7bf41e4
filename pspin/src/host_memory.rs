//! Host memory of a context, at the addresses by which its handlers know it.

use std::sync::Arc;

use hpu_vm::HostBytes;
use spin_shm::Region;

/// Host memory of a context, addressed as its application addresses it: the context's IOMMU.
#[derive(Debug)]
pub struct HostMemory {
    /// The shared bytes.
    pub region: Arc<Region>,
    /// Host address of the first byte.
    pub address: u64,
}

impl HostMemory {
    /// The bytes with their host address.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> HostBytes<'_> {
        HostBytes::new(self.address, self.region.bytes())
    }

    /// Offset in the region of `len` bytes at host address `address`, if all of them are inside.
    #[must_use]
    #[inline]
    pub fn offset(&self, address: u64, len: usize) -> Option<u64> {
        let offset = address.checked_sub(self.address)?;
        let end = offset.checked_add(len as u64)?;
        (end <= self.region.len()).then_some(offset)
    }
}
