//! The vector subset: what LLVM makes of integer loops for `zve32x` with 128-bit registers (`zvl128b`).
//!
//! Semantics are those of the "V" extension, version 1.0 ("the spec" in this module), with these choices where it
//! leaves one:
//! * Tail and masked-off elements are left undisturbed, also where a vtype says agnostic (qemu does the same unless its
//!   CPU options `rvv_ta_all_1s` and `rvv_ma_all_1s` are set).
//! * `vl` becomes the smaller of the length asked for and VLMAX, also where the spec allows less, and for the form
//!   that keeps `vl` while VLMAX shrinks.
//! * Fractional LMUL is legal where SEW is at most LMUL × ELEN; anything else sets `vill`.
//! * Vector accesses may be misaligned, as scalar ones. A fault leaves `vl`, and `vstart` is always 0 (there is no such
//!   register here): elements before the faulting one were accessed, those after it not.
//! * Devices take no vector accesses ([`DeviceAccess`](spin_abi::fault::Cause::DeviceAccess)).
//! * `vmv<n>r.v` works under `vill` too, as whole-register loads and stores do: its effect depends on no vtype.
//!
//! Left out, hence illegal: add and subtract with carry, `vsmul`, scaling shifts, averaging subtraction, `viota`,
//! `vcompress`, `vmsbf`, `vmsif`, `vmsof`, fault-only-first loads. No loop vectoriser emits them for 32-bit elements.
//!
//! * [`inst`]: the one list of operations, and what an instruction is made of.
//! * [`vtype`](mod@vtype): element width and register grouping.
//! * [`decode`], `encode`, `display`: between bits, instructions and text.
//! * [`state`]: the register file.
//! * `legal`: which registers an instruction may name under a vtype.
//! * `interp`, `memory`, `alu`: what each instruction does.

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
pub(crate) use interp::{Refusal, execute};
pub use state::VectorState;
pub use vtype::{Group, VLEN_BYTES, Vtype, Width};

#[cfg(test)]
mod tests;
