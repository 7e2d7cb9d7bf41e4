//! The execution context's descriptor in host memory: a thread's page of it. See [`spin_abi::events`].

use std::sync::Arc;

use spin_abi::events::{Event, PAGE};
use spin_shm::{Region, RegionError};

/// Where a thread tells a context's application what happened.
#[derive(Debug)]
pub struct Descriptor {
    region: Arc<Region>,
    /// Offset of the thread's page.
    page: u64,
    written: u64,
}

impl Descriptor {
    /// Memory for a machine of so many clusters.
    ///
    /// # Errors
    /// See [`RegionError`].
    pub fn create(clusters: u32) -> Result<Arc<Region>, RegionError> {
        Region::create(u64::from(clusters) * PAGE).map(Arc::new)
    }

    /// The page of the thread whose first cluster is `cluster`.
    #[must_use]
    pub fn new(region: Arc<Region>, cluster: u32) -> Self {
        Self { region, page: u64::from(cluster) * PAGE, written: 0 }
    }

    /// The memory, to hand to the application.
    #[must_use]
    pub const fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Writes an event: the record first, then the count, so that what is counted is there.
    #[cold]
    pub fn tell(&mut self, event: Event) {
        let number = self.written;
        self.written += 1;
        let record = self.region.write(self.page + Event::place(number), &event.encode(number));
        let count = self.region.write(self.page, &self.written.to_le_bytes());
        debug_assert!(record.is_ok() && count.is_ok(), "a page for each cluster");
    }
}
