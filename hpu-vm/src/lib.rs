//! The handler processing unit: loads images of RV32IMAC, Zba, Zbb and Zbs and runs their handlers, each confined to
//! its [`View`].
//!
//! The crate is independent of NICs: packets are bytes in a view, commands are accesses to a [`Device`]. Images,
//! programs and the addresses they compute are hostile input. Every outcome is a value, a [`LoadError`] or an [`Exit`].
//!
//! From the instruction up:
//! * [`inst`]: the single list of instructions, with their disassembly.
//! * [`csr`]: the counters and the hart id.
//! * [`decode`], [`compressed`], `encode` ([`Inst::encode`]): conversion between bits and instructions.
//! * [`code`]: executable memory, decoded once.
//! * [`view`]: the exact bytes that a task may access.
//! * [`device`]: accesses to device addresses.
//! * [`vector`]: vector instructions, from encoding to effect.
//! * [`hart`]: registers and counters of one HPU.
//! * [`interp`]: semantics of each instruction.
//! * [`memory`]: guest memory at guest addresses; `trap`: its faults, and the watchdog.
//! * [`analysis`]: control flow and facts about code.
//! * [`bpf`]: handlers as programs of the kernel.
//! * [`jit`]: handlers as machine code; [`weak_cache`]: values shared by equal keys.
//! * [`image`]: ELF files, checked and laid out, with their symbols and source lines.
//!
//! ```
//! use hpu_vm::{Code, Exit, Hart, Inst, NoDevice, Op, Reg, View, run};
//!
//! // addi a0, a0, 1; ret
//! let program = [
//!     Inst::new(Op::Addi).rd(Reg::A0).rs1(Reg::A0).imm(1).encode(),
//!     Inst::new(Op::Jalr).rs1(Reg::RA).encode(),
//! ];
//! let bytes: Vec<u8> = program.iter().flat_map(|word| word.to_le_bytes()).collect();
//! let code = Code::at(0x1d00_0000, &bytes);
//!
//! let mut hart = Hart::new(0);
//! hart.begin(0x1d00_0000, 0, 41);
//! assert_eq!(run(&mut hart, &code, &mut View::new(), &mut NoDevice, 1000), Exit::Returned);
//! assert_eq!(hart.get(Reg::A0), 42);
//! ```
#![deny(unsafe_code)]

mod address;
mod alu;
mod analysis;
pub mod bpf;
pub mod code;
mod command_registers;
pub mod compressed;
pub mod csr;
pub mod decode;
pub mod device;
mod encode;
pub mod hart;
mod host;
pub mod image;
pub mod inst;
pub mod interp;
pub mod jit;
mod lines;
pub mod memory;
mod reg;
mod symbols;
mod trap;
pub mod vector;
pub mod view;
pub mod weak_cache;

pub use code::Code;
pub use device::{CommandRegisters, Device, NoDevice, Trap};
pub use hart::Hart;
pub use host::HostBytes;
pub use image::{Image, ImageMemory, Kind, LoadError};
pub use inst::{Inst, Op, Reg};
pub use interp::{Exit, run};
pub use lines::Line;
pub use view::{Checks, Memory, Range, RegionKind, View, ViewError};
