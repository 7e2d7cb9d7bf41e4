//! Programs of raw instructions for the XDP hook.
//!
//! * `map`: [`ArrayMap`], memory that programs and user space share.
//! * `table`: [`HookTable`], the programs that the XDP program calls. `socket_map`: [`SocketMap`], its sockets.
//! * `program`: [`Program`], a program in the kernel: loading, and test runs.
//! * `verifier_log`: the reason of a refusal, from the verifier's log.
//! * `support`: [`Support`], the features that this kernel and this process have.
//! * `name`: valid names. `sys`: the bpf calls.
//!
//! Instructions are `struct bpf_insn` in the machine's byte order. They name maps by their index in the list given to
//! [`Program::load`] (`BPF_PSEUDO_MAP_IDX`, `BPF_PSEUDO_MAP_IDX_VALUE`), never by descriptor.

mod map;
mod name;
mod program;
mod socket_map;
mod support;
pub(crate) mod sys;
mod table;
#[cfg(test)]
mod tests;
mod verifier_log;

pub use map::ArrayMap;
pub use program::{LoadError, LoadOptions, Program, ProgramInfo, Refusal, TestRun};
pub use socket_map::SocketMap;
pub use support::{Feature, Support};
pub use table::HookTable;
