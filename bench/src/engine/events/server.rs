//! Gives an event ring to clients, as spind does: see docs/protocol.md.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use spin_abi::control::{Reply, Request};
use spin_shm::{Region, channel};

use super::Failure;

/// A control socket whose only request is that for events. It serves until the process ends.
pub(super) struct RingServer {
    folder: tempfile::TempDir,
}

impl RingServer {
    pub(super) fn start(ring: Arc<Region>) -> Result<Self, Failure> {
        let server = Self { folder: tempfile::tempdir()? };
        let listener = UnixListener::bind(server.socket())?;
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // A client that leaves ends its conversation only.
                let _ = serve(&stream, &ring);
            }
        });
        Ok(server)
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("spind.sock")
    }
}

fn serve(stream: &UnixStream, ring: &Region) -> Result<(), channel::ChannelError> {
    while let Some(message) = channel::receive::<Request>(stream)? {
        match message.body {
            Request::Events { .. } => channel::send(stream, &Reply::Events { len: ring.len() }, &[], Some(ring.fd()))?,
            other => {
                let message = format!("only events are served here, not {other:?}");
                channel::send(stream, &Reply::Error { message }, &[], None)?;
            }
        }
    }
    Ok(())
}
