//! The control socket. Each connection's thread checks requests; the control thread carries them out.
//!
//! * `requests`: requests to the control thread.
//! * `connection`: one application; `shared`: data that all connections share.
//! * `persistence`: what an install changes in the state folder.
//! * `settings`: settings that may change while connections are open.
//! * `connection_limit`: limits the number of connections.
//! * `payload_limit`: limits the payload bytes of requests.
//! * `regions`: attaches memory of applications.
//! * `prepare_slots`: limits the number of contexts that are prepared, or wait for the packet threads, at the same time.
//! * `fair_queue`: a queue in which users take turns.

mod connection;
mod connection_limit;
mod fair_queue;
mod payload_limit;
mod persistence;
mod prepare_slots;
mod regions;
mod requests;
mod settings;
mod shared;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use spin_abi::control::Reply;
use spin_shm::channel as wire;

use crate::context::loader::Loader;
use crate::control::descriptor_process::client::DescriptorProcess;
use crate::control::endpoint::{Endpoint, EndpointError, Listener};
use crate::control::host::memory;
use crate::control::loader_process::client::LoaderProcess;
use crate::control::metrics;
use crate::control::policy::host::Host;
use crate::control::shared_memory_quota::SharedMemoryQuota;
use crate::control::socket_file::{SocketError, SocketFile};
use crate::control::state::State;
use connection::Connection;
use connection_limit::ConnectionLimit;
pub use fair_queue::FairQueue;
use payload_limit::PayloadLimit;
use prepare_slots::PrepareSlots;
pub use requests::{Answer, ControlHandle, Responder, Ticket, Work};
pub use settings::{CurrentSettings, Settings};
use shared::Shared;

/// Reason why the control socket or metrics cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Error of the control socket.
    #[error("control socket: {0}; --socket PATH names one")]
    Socket(#[from] SocketError),
    /// Error of the metrics endpoint.
    #[error("metrics: {0}; --metrics ADDRESS:PORT or unix:PATH says where")]
    Metrics(#[from] EndpointError),
    /// The system provides no thread or no eventfd.
    #[error("cannot serve requests: {0}")]
    Io(#[from] io::Error),
}

/// The listening sockets. Their files are removed on drop.
pub struct Server {
    /// Listening sockets. `None` after [`Server::start`] has taken them.
    listeners: Option<(UnixListener, Option<Listener>)>,
    control: ControlHandle,
    tickets: Receiver<Ticket>,
    /// Requests that have arrived, in the order of their users' turns.
    waiting: FairQueue<Ticket>,
    /// Files of the sockets, removed on drop.
    files: (SocketFile, Option<SocketFile>),
}

impl Server {
    /// Binds the control socket to `path` and listens for `metrics`. Creates the folder of `path` if needed. Users to whom the file mode
    /// `mode` gives write permission may connect. No connection is served before [`Server::start`].
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn bind(path: &Path, mode: u32, metrics: Option<&Endpoint>) -> Result<Self, ServerError> {
        let (listener, file) = SocketFile::listen(path, mode)?;
        let (metrics, metrics_file) = metrics.map(|endpoint| endpoint.listen(mode)).transpose()?.unzip();
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
        let (sender, tickets) = channel();
        let control = ControlHandle { tickets: sender, wake: Arc::new(wake) };
        let files = (file, metrics_file.flatten());
        let waiting = FairQueue::default();
        Ok(Self { listeners: Some((listener, metrics)), control, tickets, waiting, files })
    }

    /// Has the loader process remove the files of the sockets.
    ///
    /// # Errors
    /// The loader process has ended.
    pub fn entrust_files(&mut self, loader: &Arc<LoaderProcess>) -> io::Result<()> {
        let (control, metrics) = &mut self.files;
        for file in [control].into_iter().chain(metrics) {
            loader.remove_at_exit(file.at().clone())?;
            file.entrust(loader.clone());
        }
        Ok(())
    }

    /// Starts serving, with threads that have the privileges of this thread.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        &mut self,
        loader: Arc<Loader>,
        settings: CurrentSettings,
        host: Host,
        descriptors: DescriptorProcess,
        state: Option<Arc<State>>,
    ) -> Result<(), ServerError> {
        let Some((listener, metrics)) = self.listeners.take() else { return Ok(()) };
        let control = self.control.clone();
        let (connection_limit, shared_memory) = (Arc::default(), SharedMemoryQuota::default());
        let (prepare_slots, payload_limit) = (PrepareSlots::for_preparing(), PayloadLimit::default());
        let shared = Arc::new(Shared {
            loader,
            settings,
            own: memory::resident(),
            host,
            state,
            control,
            connection_limit,
            prepare_slots,
            attach_slots: PrepareSlots::for_attaching(),
            payload_limit,
            shared_memory,
            descriptors,
        });
        thread::Builder::new().name("control".into()).spawn(move || accept(&listener, &shared))?;
        if let Some(listener) = metrics {
            metrics::start(listener, self.control.clone())?;
        }
        Ok(())
    }

    /// The next request, if there is one. Users take turns. Each connection waits for the answer before its next request, so the queue
    /// is short.
    #[must_use]
    pub fn next_ticket(&mut self) -> Option<Ticket> {
        self.tickets.try_iter().for_each(|ticket| self.waiting.push(ticket.user.0, ticket));
        self.waiting.pop()
    }

    /// Waits until a request may be there, [`Server::waker`] was written, or `longest` has passed.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn wait(&self, longest: Duration) -> rustix::io::Result<()> {
        // A time that is too long for the kernel means no timeout.
        let timeout = Timespec::try_from(longest).ok();
        match poll(&mut [PollFd::new(&self.control.wake, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        // EAGAIN when nothing was pending, which is no error here.
        let _ = rustix::io::read(&self.control.wake, &mut [0; 8]);
        Ok(())
    }

    /// Sends requests to the control thread.
    #[must_use]
    pub fn control(&self) -> ControlHandle {
        self.control.clone()
    }

    /// An eventfd that ends [`Server::wait`].
    #[must_use]
    pub fn waker(&self) -> Arc<OwnedFd> {
        self.control.wake.clone()
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Most likely no descriptor is free: give open connections time to end.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let (uid, gid) = match socket_peercred(&stream) {
            Ok(peer) => (peer.uid.as_raw(), peer.gid.as_raw()),
            Err(error) => {
                tracing::debug!("control connection dropped, its user is not known: {error}");
                continue;
            }
        };
        let limit = shared.settings.get().limits.connections;
        let Some(slot) = ConnectionLimit::open(&shared.connection_limit, uid, limit) else {
            // On kernels that accept sent descriptors, dropping one may block for as long as its owner likes.
            let _ = thread::Builder::new().name("refusal".into()).spawn(move || refuse(&stream, limit));
            continue;
        };
        let connection = Connection::new(stream, (uid, gid), shared.clone(), slot);
        let spawned = thread::Builder::new().name("connection".into()).spawn(move || connection.serve());
        if let Err(error) = spawned {
            tracing::warn!("control connection refused: {error}");
        }
    }
}

/// Sends the reason without blocking.
fn refuse(stream: &UnixStream, limit: usize) {
    let message = format!("all {limit} control connections of this user are in use, or too many of all users");
    if stream.set_nonblocking(true).is_ok() {
        // The message fits the socket's buffer, unless the peer is gone.
        let _ = wire::send(stream, &Reply::Error { message }, &[], None);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use spin_abi::control::Request;

    use super::Server;
    use super::requests::{Responder, Ticket, Work};
    use crate::install::User;

    #[test]
    fn requests_are_served_in_turns_of_their_users() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut server = Server::bind(&folder.path().join("s"), 0o600, None).expect("it listens");
        for user in [7, 7, 7, 7, 8, 8, 0] {
            let reply = Responder(sync_channel(1).0);
            let ticket = Ticket { user: User(user), work: Work::Request(Request::List, User(user)), reply };
            server.control.tickets.send(ticket).expect("the server is there");
        }
        let served: Vec<_> = std::iter::from_fn(|| server.next_ticket()).map(|ticket| ticket.user.0).collect();
        assert_eq!(served, [7, 8, 0, 7, 8, 7, 7]);
    }
}
