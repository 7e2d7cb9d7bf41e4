//! Errors, their codes, and the message of a thread's last error.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

use libspin::ChannelError;

/// Reason why a function did nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A pointer is null.
    #[error("{0} is NULL")]
    Null(&'static str),
    /// A text is not UTF-8.
    #[error("{0} is not UTF-8")]
    Utf8(&'static str),
    /// A value is out of range, or not one of the valid words.
    #[error("{0}: {1}")]
    Value(&'static str, String),
    /// A file cannot be read.
    #[error("{0}: {1}")]
    File(String, std::io::Error),
    /// There is no counter or context of that name.
    #[error("there is no {0}")]
    NotFound(String),
    /// There is no unread event.
    #[error("there is no unread event")]
    NoEvent,
    /// libspin's error.
    #[error(transparent)]
    Spin(#[from] libspin::Error),
    /// A bug in this library.
    #[error("internal error: {0}")]
    Internal(&'static str),
}

/// Result codes of all functions. The numbers do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// [`Error::Null`].
    Null = 1,
    /// [`Error::Utf8`].
    Utf8 = 2,
    /// [`Error::Value`].
    Value = 3,
    /// [`Error::File`].
    File = 4,
    /// spind cannot be reached.
    Connect = 5,
    /// The connection is closed.
    Closed = 6,
    /// spind refused the request.
    Refused = 7,
    /// spind's message was not understood, or it has another version.
    Protocol = 8,
    /// [`Error::NotFound`].
    NotFound = 9,
    /// Several contexts have that name.
    Ambiguous = 10,
    /// Shared memory cannot be mapped.
    Memory = 11,
    /// [`Error::NoEvent`].
    NoEvent = 12,
    /// [`Error::Internal`].
    Internal = 13,
    /// The system has no descriptor, thread or memory left.
    System = 14,
}

impl Error {
    /// Returns the code of an error.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::Null(_) => Status::Null,
            Self::Utf8(_) => Status::Utf8,
            Self::Value(..) => Status::Value,
            Self::File(..) => Status::File,
            Self::NotFound(_) => Status::NotFound,
            Self::NoEvent => Status::NoEvent,
            Self::Internal(_) => Status::Internal,
            Self::Spin(error) => status_of(error),
        }
    }
}

fn status_of(error: &libspin::Error) -> Status {
    match error {
        libspin::Error::Connect { .. } => Status::Connect,
        libspin::Error::Closed | libspin::Error::Channel(ChannelError::Io(_)) => Status::Closed,
        libspin::Error::Channel(ChannelError::Unsent(_)) => Status::Value,
        libspin::Error::Channel(_) | libspin::Error::Unexpected(_) => Status::Protocol,
        libspin::Error::Refused(_) => Status::Refused,
        libspin::Error::NoSuchContext(_) => Status::NotFound,
        libspin::Error::Ambiguous { .. } => Status::Ambiguous,
        libspin::Error::HostMemory(_) => Status::Memory,
        libspin::Error::System(_) => Status::System,
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Stores the message of a failed call for this thread.
pub(crate) fn remember(error: &Error) {
    let text = c_string(&error.to_string());
    // A thread that ends has no message any more.
    let _ = LAST.try_with(|last| last.replace(text));
}

/// Converts a text for C. A zero byte would end it too early.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}

/// Returns the message of this thread's last error; see `spin_client.h`.
#[unsafe(no_mangle)]
pub extern "C" fn spin_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

impl From<Status> for c_int {
    fn from(status: Status) -> Self {
        status as Self
    }
}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn the_header_has_the_codes() {
        let header = include_str!("../include/spin_client.h");
        for (name, status) in [
            ("SPIN_OK", Status::Ok),
            ("SPIN_E_NULL", Status::Null),
            ("SPIN_E_UTF8", Status::Utf8),
            ("SPIN_E_VALUE", Status::Value),
            ("SPIN_E_FILE", Status::File),
            ("SPIN_E_CONNECT", Status::Connect),
            ("SPIN_E_CLOSED", Status::Closed),
            ("SPIN_E_REFUSED", Status::Refused),
            ("SPIN_E_PROTOCOL", Status::Protocol),
            ("SPIN_E_NOT_FOUND", Status::NotFound),
            ("SPIN_E_AMBIGUOUS", Status::Ambiguous),
            ("SPIN_E_MEMORY", Status::Memory),
            ("SPIN_E_NO_EVENT", Status::NoEvent),
            ("SPIN_E_INTERNAL", Status::Internal),
            ("SPIN_E_SYSTEM", Status::System),
        ] {
            let line = format!("    {name} = {},", status as i32);
            assert!(header.contains(&line), "{line}");
        }
    }
}
