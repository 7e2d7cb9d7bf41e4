//! Addresses on which metrics are served.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::str::FromStr;

use crate::control::socket_file::{SocketError, SocketFile};

/// An address to listen on. There is no authentication: everyone who reaches the address can read all counters, which include names and
/// rules of contexts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// TCP address.
    Tcp(SocketAddr),
    /// Path of a Unix socket, with the file mode of the control socket.
    Unix(PathBuf),
}

/// A text that is not an [`Endpoint`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "metrics {0:?}: expected ADDRESS:PORT with a numeric address, such as 127.0.0.1:9464 or [::1]:9464, or unix:PATH"
)]
pub struct BadEndpoint(pub String);

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        let bad = || BadEndpoint(text.to_owned());
        match text.strip_prefix("unix:") {
            Some("") => Err(bad()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp).map_err(|_| bad()),
        }
    }
}

/// Reason why spind cannot listen on an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// TCP failed.
    #[error("{address}: {source}")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The Unix socket failed.
    #[error(transparent)]
    Unix(#[from] SocketError),
}

/// A non-blocking listening socket.
#[derive(Debug)]
pub enum Listener {
    /// TCP socket.
    Tcp(TcpListener),
    /// Unix socket.
    Unix(UnixListener),
}

impl Endpoint {
    /// Listens. The file of a Unix socket has the mode `mode` and is removed with the returned [`SocketFile`].
    ///
    /// # Errors
    /// See [`EndpointError`].
    pub fn listen(&self, mode: u32) -> Result<(Listener, Option<SocketFile>), EndpointError> {
        match self {
            Self::Tcp(address) => {
                let listen = || {
                    let listener = TcpListener::bind(address)?;
                    listener.set_nonblocking(true)?;
                    tracing::info!("metrics on http://{}/metrics", listener.local_addr()?);
                    Ok(listener)
                };
                let listener = listen().map_err(|source| EndpointError::Tcp { address: *address, source })?;
                Ok((Listener::Tcp(listener), None))
            }
            Self::Unix(path) => {
                let (listener, file) = SocketFile::listen(path, mode)?;
                let unblocked = listener.set_nonblocking(true);
                unblocked.map_err(|source| SocketError::Io { path: path.clone(), source })?;
                tracing::info!("metrics on unix:{}, GET /metrics", path.display());
                Ok((Listener::Unix(listener), Some(file)))
            }
        }
    }
}

impl Listener {
    /// The next connection. `WouldBlock` when there is none.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn accept(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Tcp(listener) => listener.accept().map(|(stream, _)| stream.into()),
            Self::Unix(listener) => listener.accept().map(|(stream, _)| stream.into()),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Endpoint;

    #[test]
    fn endpoints() {
        assert_eq!("127.0.0.1:9464".parse(), Ok(Endpoint::Tcp(([127, 0, 0, 1], 9464).into())));
        assert!(matches!("[::1]:1".parse(), Ok(Endpoint::Tcp(address)) if address.is_ipv6()));
        assert_eq!("unix:/run/m".parse(), Ok(Endpoint::Unix("/run/m".into())));
        for bad in ["", "9464", ":9464", "localhost:9464", "127.0.0.1", "127.0.0.1:70000", "unix:", "/run/m"] {
            let refused = bad.parse::<Endpoint>().unwrap_err().to_string();
            assert!(refused.contains("127.0.0.1:9464"), "{refused}");
        }
    }
}
