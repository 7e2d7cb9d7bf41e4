//! Native versions of the handlers: `bench/native`, compiled for the host into shared libraries.

use super::case::Handler;
use super::command::Log;
use super::memory::{Memory, OwnedMemory};
use super::runner::Runner;
use super::work::Work;
use libloading::Library;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// `struct job` in `bench/native/native.h`.
#[repr(C)]
struct Job {
    packet: *mut u8,
    handler_mem: *mut u8,
    scratchpad: *mut u8,
    host_mem: *mut u8,
    device: *mut Log,
    packet_size: u32,
    handler_mem_size: u32,
    scratchpad_size: u32,
    host_mem_size: u32,
}

type Function = unsafe extern "C" fn(*mut Job);

/// A library of native versions, compiled in one way.
#[derive(Clone, Debug)]
pub struct Twins(Arc<Library>);

impl Twins {
    /// Loads a library.
    ///
    /// # Errors
    /// The file does not exist, or is not a library for this host.
    pub fn load(path: &Path) -> Result<Self, String> {
        // SAFETY: the library is built by `make bench-handlers` from bench/native: C without constructors, so loading
        // it runs no code. The user is responsible for any other path, as for any program to run.
        let library = unsafe { Library::new(path) };
        library
            .map(|library| Self(Arc::new(library)))
            .map_err(|error| format!("{}: {error}; `make bench-handlers` builds it", path.display()))
    }

    /// Returns the native version of the work's handler.
    ///
    /// # Errors
    /// The library has no such function.
    pub fn runner(&self, work: &Work) -> Result<Native, String> {
        let function = self.function(work.case.handler)?;
        let memory = OwnedMemory::new(work);
        let (stride, size) = (work.stride, work.case.size);
        Ok(Native { function, _library: Arc::clone(&self.0), memory, log: Log::new(), stride, size })
    }

    fn function(&self, handler: Handler) -> Result<Function, String> {
        // SAFETY: the functions of bench/native that are named as handlers have this type.
        let symbol = unsafe { self.0.get::<Function>(handler.symbol()) };
        symbol.map(|function| *function).map_err(|error| error.to_string())
    }
}

/// A native version with its memory.
#[derive(Debug)]
pub struct Native {
    function: Function,
    /// Keeps the code of `function` loaded.
    _library: Arc<Library>,
    memory: OwnedMemory,
    log: Box<Log>,
    stride: usize,
    size: usize,
}

impl Runner for Native {
    fn memory(&mut self) -> Memory<'_> {
        self.memory.parts()
    }

    fn log(&mut self) -> &mut Log {
        &mut self.log
    }

    fn packets_base(&mut self) -> u64 {
        self.memory.parts().packets.as_ptr().addr() as u64
    }

    fn run(&mut self, packets: Range<usize>) -> Result<(), String> {
        let memory = self.memory.parts();
        assert!(packets.end * self.stride <= memory.packets.len() && self.size <= self.stride, "no such packets");
        let size = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|error| error.to_string());
        let mut job = Job {
            packet: memory.packets.as_mut_ptr(),
            packet_size: u32::try_from(self.size).map_err(|error| error.to_string())?,
            handler_mem_size: size(memory.handler)?,
            handler_mem: memory.handler.as_mut_ptr(),
            scratchpad_size: size(memory.scratchpad)?,
            scratchpad: memory.scratchpad.as_mut_ptr(),
            host_mem_size: size(memory.host)?,
            host_mem: memory.host.as_mut_ptr(),
            device: &raw mut *self.log,
        };
        let first = job.packet;
        for packet in packets {
            job.packet = first.wrapping_add(packet * self.stride);
            // SAFETY: the function has this type and is still loaded, see `function` and `_library`. `job` describes
            // memory that is borrowed exclusively until the loop ends: four ranges with their lengths, aligned to cache
            // lines (packets: within the buffer by the assertion above), and a log. A native version checks values read
            // from packets against those lengths, and indexes the log modulo its size. Handler memory is as the work or
            // a native version wrote it, so that the indices of nodes in `trie_lookup`'s trie are below their number.
            unsafe { (self.function)(&raw mut job) };
        }
        Ok(())
    }
}
