//! The native part of libspin for Python, module `libspin._libspin`. The package's Python code (`python/libspin`) gives it its typed
//! interface.
//!
//! * [`errors`]: reasons of failures as exceptions.
//! * [`connection`]: requests that Ctrl-C can interrupt; [`client`]: the requests.
//! * [`events`]: event rings; [`memory`]: host memory.
//!
//! Structures of libspin pass as JSON, in the form that `docs/protocol.md` describes.
#![deny(unsafe_code)]

mod client;
mod connection;
mod errors;
mod events;
mod memory;

/// Functions and classes for `python/libspin`.
#[pyo3::pymodule]
mod _libspin {
    #[pymodule_export]
    use crate::client::{Client, alloc};
    #[pymodule_export]
    use crate::events::{Event, Events};
    #[pymodule_export]
    use crate::memory::HostMemory;

    /// Default path of spind's control socket.
    #[pymodule_export]
    const DEFAULT_SOCKET: &str = libspin::DEFAULT_SOCKET;
    /// Version of this library.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
