//! BPF objects: opening, loading, and the errors of both.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::{ErrorKind, MapCore, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel, set_print};

use crate::error::NicError;

/// A compiled object, aligned as an ELF header requires.
#[repr(C, align(8))]
pub(crate) struct Aligned<T: ?Sized>(pub(crate) T);

/// Logs messages of libbpf, which would otherwise go to standard error. Errors contain everything that a user must
/// know.
fn log(level: PrintLevel, message: String) {
    tracing::debug!(?level, "libbpf: {}", message.trim_end());
}

/// Has libbpf log its messages.
pub(crate) fn log_messages() {
    set_print(Some((PrintLevel::Info, log)));
}

/// Opens a compiled object.
pub(crate) fn open(name: &str, bytes: &[u8]) -> libbpf_rs::Result<OpenObject> {
    log_messages();
    ObjectBuilder::default().name(name)?.open_memory(bytes)
}

/// The descriptor of a loaded program.
pub(crate) fn program(object: &Object, name: &str) -> libbpf_rs::Result<OwnedFd> {
    let program = object.progs().find(|program| program.name() == name).ok_or_else(|| missing(name))?;
    Ok(program.as_fd().try_clone_to_owned()?)
}

/// A map of a loaded object.
pub(crate) fn map(object: &Object, name: &str) -> libbpf_rs::Result<MapHandle> {
    let map = object.maps().find(|map| map.name() == name).ok_or_else(|| missing(name))?;
    MapHandle::try_from(&map)
}

/// The error of an object that lacks a program or a map.
pub(crate) fn missing(name: &str) -> libbpf_rs::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{name} is not in the compiled program")).into()
}

fn io_error(error: &libbpf_rs::Error) -> io::Error {
    let kind = match error.kind() {
        ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        ErrorKind::NotFound => io::ErrorKind::NotFound,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("{error:#}"))
}

/// An error of the kernel while a loaded object is used.
pub(crate) fn system(action: &'static str, error: &libbpf_rs::Error) -> NicError {
    NicError::system(action, io_error(error))
}

/// An error of loading.
pub(crate) fn refused(error: &libbpf_rs::Error) -> NicError {
    if error.kind() == ErrorKind::PermissionDenied {
        return NicError::Privileges { action: "load the XDP program" };
    }
    NicError::Program { source: io_error(error) }
}
