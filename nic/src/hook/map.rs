//! Array maps with one value.

use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::libbpf_sys::{BPF_F_MMAPABLE, BPF_F_RDONLY_PROG, bpf_map_create_opts};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use super::name::{NAME_RULE, is_name};
use crate::bpf::{log_messages, system};
use crate::error::NicError;

const KEY: [u8; 4] = 0_u32.to_ne_bytes();

/// An array map with one value, which user space may map. Programs use the address of the value. Dropping it closes the
/// descriptor; the map stays as long as a program or a mapping uses it.
pub struct ArrayMap {
    handle: MapHandle,
    name: String,
    is_frozen: bool,
}

impl ArrayMap {
    /// Creates a map that programs may read and write. All bytes are zero.
    ///
    /// # Errors
    /// [`NicError::Config`] for a name or a size that no map can have, [`NicError::Privileges`], or no memory.
    pub fn new(name: &str, value_size: u32) -> Result<Self, NicError> {
        Self::create(name, value_size, 0)
    }

    /// Creates a map with these bytes, which programs may only read. User space may still write.
    ///
    /// # Errors
    /// As [`ArrayMap::new`].
    pub fn read_only(name: &str, bytes: &[u8]) -> Result<Self, NicError> {
        // A size beyond u32 becomes one that the kernel refuses.
        let map = Self::create(name, u32::try_from(bytes.len()).unwrap_or(u32::MAX), BPF_F_RDONLY_PROG)?;
        map.write(bytes)?;
        Ok(map)
    }

    fn create(name: &str, value_size: u32, flags: u32) -> Result<Self, NicError> {
        if !is_name(name) {
            return Err(NicError::Config { what: "the name of a map", value: name.to_owned(), must: NAME_RULE });
        }
        if value_size == 0 {
            return Err(NicError::Config {
                what: "the size of a map's value",
                value: "0".into(),
                must: "give 1 or more",
            });
        }
        log_messages();
        let options = bpf_map_create_opts {
            sz: size_of::<bpf_map_create_opts>() as u64,
            map_flags: BPF_F_MMAPABLE | flags,
            ..Default::default()
        };
        let handle = MapHandle::create(MapType::Array, Some(name), 4, value_size, 1, &options);
        let handle = handle.map_err(|error| system("create an array map", &error))?;
        Ok(Self { handle, name: name.to_owned(), is_frozen: false })
    }

    /// Forbids further writes by user space. The verifier then treats the values of a read-only map as constants: loops
    /// that begin at such a value are unrolled as those that begin at an immediate.
    ///
    /// # Errors
    /// The kernel refuses, because the map is mapped for writing.
    pub fn freeze(&mut self) -> Result<(), NicError> {
        self.handle.freeze().map_err(|error| system("freeze an array map; unmap it first", &error))?;
        self.is_frozen = true;
        Ok(())
    }

    /// The size of the value.
    #[must_use]
    pub fn value_size(&self) -> usize {
        self.handle.value_size() as usize
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bytes of the value. A program that writes meanwhile may be seen in parts.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn read(&self) -> Result<Vec<u8>, NicError> {
        let value = self.handle.lookup(&KEY, MapFlags::ANY).map_err(|error| system("read an array map", &error))?;
        // The only key of an array of one entry is always there.
        Ok(value.unwrap_or_default())
    }

    /// Writes all bytes of the value.
    ///
    /// # Errors
    /// [`NicError::Config`] when the number of bytes is not the size of the value, or the map is frozen.
    pub fn write(&self, bytes: &[u8]) -> Result<(), NicError> {
        let config = |value, must| Err(NicError::Config { what: "the bytes to write to a map", value, must });
        if bytes.len() != self.value_size() {
            let value = format!("{} B for {} of {} B", bytes.len(), self.name, self.value_size());
            return config(value, "give as many as the value has");
        }
        if self.is_frozen {
            return config(format!("for {}, which is frozen", self.name), "write before the map is frozen");
        }
        self.handle.update(&KEY, bytes, MapFlags::ANY).map_err(|error| system("write an array map", &error))
    }
}

impl AsFd for ArrayMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}
