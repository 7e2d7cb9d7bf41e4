//! The library compiled for the host: `bench/large/native.c`.

use std::path::Path;

use hpu_vm::Kind;
use libloading::Library;

use super::variant::Variant;
use super::work::{MEMORY, STRIDE, Step, Work};
use crate::handlers::memory::Buffer;

type Function = unsafe extern "C" fn(*mut u8, u32, *mut u8, u32);

/// The handlers as functions of the host.
#[derive(Debug)]
pub struct Native {
    /// Functions in the order of [`Kind::ALL`].
    functions: [Function; 3],
    /// Keeps the functions' code loaded.
    _library: Library,
    packets: Buffer,
    size: u32,
    memory: Buffer,
}

impl Native {
    /// Loads a library that `bench/large/build` made.
    ///
    /// # Errors
    /// The file does not exist, or is no such library.
    ///
    /// # Panics
    /// The work's packets have 4 GiB.
    pub fn load(path: &Path, work: &Work) -> Result<Self, String> {
        // SAFETY: the library is built by `bench/large/build` from C without constructors, so loading it runs no code.
        // The user is responsible for any other path, as for any program to run.
        let library = unsafe { Library::new(path) };
        let library = library.map_err(|error| format!("{}: {error}; `make bench-large` builds it", path.display()))?;
        let function = |name: &str| {
            // SAFETY: the functions of these names in bench/large/native.c have this type.
            let symbol = unsafe { library.get::<Function>(name) };
            symbol.map(|function| *function).map_err(|error| error.to_string())
        };
        let functions = [function("large_header")?, function("large_payload")?, function("large_completion")?];
        let mut packets = Buffer::new(work.packets.len());
        packets.copy_from_slice(&work.packets);
        let size = u32::try_from(work.size).expect("a short packet");
        Ok(Self { functions, _library: library, packets, size, memory: Buffer::new(MEMORY) })
    }
}

impl Variant for Native {
    fn reset(&mut self) {
        self.memory.fill(0);
    }

    fn run(&mut self, step: Step) -> Result<(), String> {
        let function = match step.kind {
            Kind::Header => self.functions[0],
            Kind::Payload => self.functions[1],
            Kind::Completion => self.functions[2],
        };
        let packet = self.packets.get_mut(step.packet * STRIDE..).ok_or("no such packet")?;
        assert!(packet.len() >= self.size as usize, "no such packet");
        // SAFETY: the function has this type and is loaded, see `load`. Packet and memory are borrowed exclusively, with
        // their lengths, and aligned to cache lines. The memory is zeroed, or as the functions left it. They check the
        // lengths in packets; the interpreter's exact checks find accesses beyond either range in the same sources.
        unsafe { function(packet.as_mut_ptr(), self.size, self.memory.as_mut_ptr(), self.memory.len() as u32) };
        Ok(())
    }

    fn state(&mut self) -> Vec<u8> {
        self.memory.to_vec()
    }
}
