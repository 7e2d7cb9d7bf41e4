//! Reasons of failures as exceptions of `libspin._errors`.

use libspin::ChannelError;
use pyo3::{PyErr, import_exception};

import_exception!(libspin._errors, AmbiguousError);
import_exception!(libspin._errors, ClosedError);
import_exception!(libspin._errors, ConnectError);
import_exception!(libspin._errors, InternalError);
import_exception!(libspin._errors, InvalidValueError);
import_exception!(libspin._errors, NotFoundError);
import_exception!(libspin._errors, ProtocolError);
import_exception!(libspin._errors, RefusedError);
import_exception!(libspin._errors, ResourceError);
import_exception!(libspin._errors, SharedMemoryError);

/// Converts an error of libspin. The exception keeps its text.
pub fn exception(error: &libspin::Error) -> PyErr {
    let text = error.to_string();
    match error {
        libspin::Error::Connect { .. } => ConnectError::new_err(text),
        libspin::Error::Closed | libspin::Error::Channel(ChannelError::Io(_)) => ClosedError::new_err(text),
        libspin::Error::Channel(ChannelError::Unsent(_)) => InvalidValueError::new_err(text),
        libspin::Error::Channel(_) | libspin::Error::Unexpected(_) => ProtocolError::new_err(text),
        libspin::Error::Refused(_) => RefusedError::new_err(text),
        libspin::Error::NoSuchContext(_) => NotFoundError::new_err(text),
        libspin::Error::Ambiguous { .. } => AmbiguousError::new_err(text),
        libspin::Error::HostMemory(_) => SharedMemoryError::new_err(text),
        libspin::Error::System(_) => ResourceError::new_err(text),
    }
}

/// Exception for requests on a connection that is closed on this side.
pub fn closed() -> PyErr {
    ClosedError::new_err("the client is closed: connect again")
}
