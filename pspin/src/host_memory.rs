//! Host memory of a context, at the addresses by which its handlers know it: the context's IOMMU.

use std::ops::Deref;
use std::sync::Arc;

use hpu_vm::HostBytes;
use spin_shm::{Attached, Mapping, Region};

/// Maximum number of attached regions of a context.
pub const MAX_ATTACHED: usize = 16;

/// Reason why a region gets no addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The region would reach beyond the last address.
    #[error("{len} bytes at host address {address:#x} reach beyond the last address")]
    Wraps {
        /// Host address of the first byte.
        address: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Some of the addresses belong to another region.
    #[error("host addresses from {address:#x} on overlap those of another region of the context, from {other:#x} on")]
    Overlap {
        /// Host address of the first byte.
        address: u64,
        /// Host address of the other region's first byte.
        other: u64,
    },
    /// The context has as many attached regions as it may have.
    #[error("the context has {MAX_ATTACHED} attached regions, the most possible: detach one first")]
    Full,
    /// No region begins there.
    #[error("no attached region begins at host address {0:#x}")]
    NoRegion(u64),
}

/// The host memory of a context: a region of spind, and regions of the application. Their addresses do not overlap.
#[derive(Debug, Default)]
pub struct HostMemory {
    own: Option<Window<Region>>,
    attached: Vec<Window<Attached>>,
}

/// A region, and the host address of its first byte.
#[derive(Debug)]
struct Window<R> {
    address: u64,
    region: Arc<R>,
}

impl<R: Deref<Target = Mapping>> Window<R> {
    /// The region and the offset of `len` bytes at host address `address`, if all of them are inside.
    #[inline]
    fn part(&self, address: u64, len: usize) -> Option<(&Mapping, u64)> {
        let offset = address.checked_sub(self.address)?;
        let end = offset.checked_add(len as u64)?;
        (end <= self.region.len()).then_some((&**self.region, offset))
    }
}

impl HostMemory {
    /// Host memory with the region of spind at `address`, if there is one.
    #[must_use]
    pub fn new(own: Option<Arc<Region>>, address: u64) -> Self {
        Self { own: own.map(|region| Window { address, region }), attached: Vec::new() }
    }

    /// The region of spind, and the host address of its first byte.
    #[must_use]
    pub fn own(&self) -> Option<(&Arc<Region>, u64)> {
        self.own.as_ref().map(|window| (&window.region, window.address))
    }

    /// The region of spind with its host address, for copies without commands.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> Option<HostBytes<'_>> {
        self.own.as_ref().map(|window| HostBytes::new(window.address, window.region.bytes()))
    }

    /// The region that has all of `len` bytes at host address `address`, and their offset there. None, if its pages were lost.
    #[must_use]
    #[inline]
    pub fn find(&self, address: u64, len: usize) -> Option<(&Mapping, u64)> {
        self.own.as_ref().and_then(|own| own.part(address, len)).or_else(|| self.find_attached(address, len))
    }

    fn find_attached(&self, address: u64, len: usize) -> Option<(&Mapping, u64)> {
        let there = self.attached.iter().filter(|window| !window.region.is_lost());
        there.filter_map(|window| window.part(address, len)).next()
    }

    /// Sets the host address of the region of spind.
    ///
    /// # Errors
    /// See [`AddressError`]; nothing has changed then.
    pub fn move_own(&mut self, address: u64) -> Result<(), AddressError> {
        if let Some(len) = self.own.as_ref().map(|own| own.region.len()) {
            self.check(address, len, self.attached_ranges())?;
        }
        if let Some(own) = &mut self.own {
            own.address = address;
        }
        Ok(())
    }

    /// Attaches a region of the application.
    ///
    /// # Errors
    /// See [`AddressError`]; nothing has changed then.
    pub fn attach(&mut self, address: u64, region: Arc<Attached>) -> Result<(), AddressError> {
        if self.attached.len() == MAX_ATTACHED {
            return Err(AddressError::Full);
        }
        let own = self.own.iter().map(|own| (own.address, own.region.len()));
        self.check(address, region.len(), own.chain(self.attached_ranges()))?;
        self.attached.push(Window { address, region });
        Ok(())
    }

    /// Detaches the region that begins at a host address. Unmapping it may take long.
    ///
    /// # Errors
    /// [`AddressError::NoRegion`].
    pub fn detach(&mut self, address: u64) -> Result<Arc<Attached>, AddressError> {
        let index = self.attached.iter().position(|window| window.address == address);
        index.map(|index| self.attached.remove(index).region).ok_or(AddressError::NoRegion(address))
    }

    fn attached_ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.attached.iter().map(|window| (window.address, window.region.len()))
    }

    /// Checks that addresses exist and are not among `others`, given as first address and length.
    fn check(&self, address: u64, len: u64, mut others: impl Iterator<Item = (u64, u64)>) -> Result<(), AddressError> {
        let end = address.checked_add(len).ok_or(AddressError::Wraps { address, len })?;
        // Ranges that exist do not wrap.
        match others.find(|&(other, len)| other < end && address < other + len) {
            Some((other, _)) => Err(AddressError::Overlap { address, other }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spin_shm::{Attached, Region};

    use super::{AddressError, HostMemory, MAX_ATTACHED};

    const PAGE: u64 = 4096;

    fn attached(pages: u64) -> Arc<Attached> {
        let region = Region::create(pages * PAGE).expect("memory");
        let fd = region.share().expect("a descriptor");
        Arc::new(Attached::new(&fd, pages * PAGE, Box::new(())).expect("attached"))
    }

    #[test]
    fn each_access_is_of_one_region() {
        let own = Arc::new(Region::create(PAGE).expect("memory"));
        let mut memory = HostMemory::new(Some(own), 0x10_0000);
        // Two regions side by side: an access that crosses their border is of neither.
        for (address, pages) in [(0x7000_0000, 1), (0x7000_1000, 2)] {
            memory.attach(address, attached(pages)).expect("free addresses");
        }
        let found = |address, len| memory.find(address, len).map(|(region, offset)| (region.len() / PAGE, offset));
        assert_eq!(found(0x10_0ffc, 4), Some((1, 0xffc)));
        assert_eq!(found(0x7000_0fff, 1), Some((1, 0xfff)));
        assert_eq!(found(0x7000_1000, 8192), Some((2, 0)));
        for (address, len) in [(0x10_0ffd, 4), (0xf_ffff, 1), (0x7000_0fff, 2), (0x7000_3000, 1), (u64::MAX, 2)] {
            assert_eq!(found(address, len), None, "{len} bytes at {address:#x}");
        }
        memory.detach(0x7000_0000).expect("attached");
        assert!(memory.find(0x7000_0000, 1).is_none() && memory.find(0x7000_1000, 1).is_some());
        assert_eq!(memory.detach(0x7000_0000).err(), Some(AddressError::NoRegion(0x7000_0000)));
    }

    #[test]
    fn addresses_belong_to_one_region() {
        let own = Arc::new(Region::create(2 * PAGE).expect("memory"));
        let mut memory = HostMemory::new(Some(own), 0x10_0000);
        memory.attach(0x20_0000, attached(2)).expect("free addresses");
        for (address, other) in [(0x10_1000, 0x10_0000), (0xf_f000, 0x10_0000), (0x20_1fff, 0x20_0000)] {
            assert_eq!(memory.attach(address, attached(2)), Err(AddressError::Overlap { address, other }));
        }
        let wraps = AddressError::Wraps { address: u64::MAX - 100, len: 2 * PAGE };
        assert_eq!(memory.attach(u64::MAX - 100, attached(2)), Err(wraps));
        let moved = memory.move_own(0x20_1000);
        assert_eq!(moved, Err(AddressError::Overlap { address: 0x20_1000, other: 0x20_0000 }));
        assert_eq!(memory.move_own(0x20_2000), Ok(()));
        assert!(memory.find(0x10_0000, 1).is_none() && memory.find(0x20_2000, 8192).is_some());
        let region = attached(1);
        for index in 1..MAX_ATTACHED as u64 {
            memory.attach(index << 32, region.clone()).expect("free addresses");
        }
        assert_eq!(memory.attach(1 << 50, region), Err(AddressError::Full));
    }
}
