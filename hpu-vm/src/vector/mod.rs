//! The vector subset: instructions that LLVM emits for integer loops on `zve32x` with 128-bit registers (`zvl128b`).
//!
//! The semantics are those of the "V" extension, version 1.0 ("the spec" in this module), with these choices where it
//! allows several:
//! * Tail and masked-off elements are undisturbed, also where a vtype says agnostic. qemu does the same unless its CPU
//!   options `rvv_ta_all_1s` and `rvv_ma_all_1s` are set.
//! * `vl` becomes the smaller of the requested length and VLMAX. This holds also where the spec allows less, and for
//!   the form that keeps `vl` while VLMAX shrinks.
//! * Fractional LMUL is legal where SEW is at most LMUL × ELEN; anything else sets `vill`.
//! * Vector accesses may be misaligned, like scalar ones. A fault leaves `vl` unchanged, and `vstart` is always 0 (the
//!   register does not exist). Elements before the faulting one were accessed, those after it not.
//! * Devices accept no vector accesses ([`DeviceAccess`](spin_abi::fault::Cause::DeviceAccess)).
//! * `vmv<n>r.v` works under `vill` too, like whole-register loads and stores: its effect depends on no vtype.
//!
//! Unsupported, hence illegal: add and subtract with carry, `vsmul`, scaling shifts, averaging subtraction, `viota`,
//! `vcompress`, `vmsbf`, `vmsif`, `vmsof`, fault-only-first loads. No loop vectoriser emits them for 32-bit elements.
//!
//! * [`inst`]: the single list of operations, and the fields of an instruction.
//! * [`vtype`](mod@vtype): element width and register grouping.
//! * [`decode`], `encode`, `display`: conversion between bits, instructions and text.
//! * [`state`]: the register file.
//! * `legal`: legal register operands under a vtype.
//! * `interp`, `memory`, `alu`: semantics of each instruction.

mod alu;
pub mod decode;
mod display;
mod encode;
pub mod inst;
mod interp;
pub(crate) mod legal;
mod memory;
pub mod state;
pub mod vtype;

pub use decode::decode;
pub use inst::{
    Addressing, Arithmetic, Configure, Direction, Length, Memory, NewType, Source, VReg, VectorInst, VectorOp,
};
pub(crate) use interp::execute;
pub(crate) use memory::Refusal;
pub use state::VectorState;
pub use vtype::{Group, VLEN_BYTES, Vtype, Width};

#[cfg(test)]
mod tests;
