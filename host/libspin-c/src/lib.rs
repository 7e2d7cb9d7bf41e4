//! libspin for C and C++ programs: see `include/spin_client.h` and `README.md`.
//!
//! Each function checks its arguments, calls libspin and converts the result.
//!
//! * [`status`]: errors, their codes, and the message of a thread's last error.
//! * [`call`]: code shared by all functions: panics, pointer arguments, handles.
//! * [`client`]: connections and requests; [`capabilities`]: what spind can do.
//! * [`image`]: handler images; [`options`]: parameters of a context; [`context`]: an installed one.
//! * [`events`], [`stats`], [`replay`]: event rings, counters, captures.
//!
//! No function unwinds. A null pointer or a bad value gives an error code. A pointer that is not null must point to what
//! the header says; `SAFETY` comments refer to this as guaranteed by the caller.

mod call;
pub mod capabilities;
pub mod client;
pub mod context;
pub mod events;
pub mod image;
pub mod options;
pub mod regions;
mod replay;
pub mod stats;
pub mod status;
