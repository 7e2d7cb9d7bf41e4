//! The control socket: applications' requests, checked on threads of their own, carried out by the engine between two
//! batches.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use spin_abi::control::{Capabilities, Reply, Request};
use spin_shm::Region;
use spin_shm::channel as wire;

use crate::config::Limits;
use crate::install::{HOST_ADDRESS, Prepared, User};
use crate::loader::Loader;

/// Longest pause of a peer that is being sent an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections of all users but root together; each costs a thread.
const MAX_CONNECTIONS: usize = 256;

/// What the engine is asked to do.
#[derive(Debug)]
pub enum Work {
    /// Link a checked context in; answered by [`Answer::Installed`].
    Install(Box<Prepared>),
    /// Everything that needs no preparation.
    Request(Request, User),
    /// Frames to replay, as a capture.
    Replay(Vec<u8>),
}

/// What the engine answers.
#[derive(Debug)]
pub enum Answer {
    /// The new context's id.
    Installed(u32),
    /// A reply to pass on, with its blob and the host memory whose descriptor goes along.
    Reply(Reply, Vec<u8>, Option<Arc<Region>>),
}

/// A request under way.
pub struct Ticket {
    /// What to do.
    pub work: Work,
    /// Where the answer goes.
    pub reply: Responder,
}

/// Takes the answer to one request.
pub struct Responder(SyncSender<Result<Answer, String>>);

impl Responder {
    /// Answers.
    pub fn answer(self, answer: Result<Answer, String>) {
        // The connection's thread may have ended with its peer: then nobody waits for this.
        let _ = self.0.send(answer);
    }
}

/// Why the control socket cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Another spind is there.
    #[error("another spind listens on {}: stop it, or choose another --socket", .0.display())]
    Taken(PathBuf),
    /// Something else is at that path.
    #[error("{} exists and is no socket: choose another --socket", .0.display())]
    NotASocket(PathBuf),
    /// The system refused.
    #[error("control socket {}: {source}; --socket PATH chooses another place", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The listening socket, removed when dropped.
pub struct Server {
    path: PathBuf,
    /// Which file it is: another one at the same path is not ours to remove.
    file: Option<(u64, u64)>,
    /// Until it serves.
    listener: Option<(UnixListener, Sender<Ticket>)>,
    tickets: Receiver<Ticket>,
    wake: Arc<OwnedFd>,
}

/// What connection threads share.
struct Shared {
    loader: Arc<Loader>,
    limits: Limits,
    capabilities: Capabilities,
    tickets: Sender<Ticket>,
    wake: Arc<OwnedFd>,
    connections: Arc<Connections>,
}

impl Server {
    /// Binds `path`, in a folder that is made if need be; those whom its file mode `mode` lets write may connect. Nobody is
    /// served before [`Server::start`].
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn bind(path: &Path, mode: u32) -> Result<Self, ServerError> {
        let fail = |source| ServerError::Io { path: path.to_path_buf(), source };
        remove_stale(path)?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
            fs::create_dir(folder).map_err(fail)?;
        }
        let listener = UnixListener::bind(path).map_err(fail)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(fail)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|errno| fail(errno.into()))?;
        let (sender, tickets) = channel();
        let (path, file) = (path.to_path_buf(), file_at(path));
        Ok(Self { path, file, listener: Some((listener, sender)), tickets, wake: Arc::new(wake) })
    }

    /// Starts serving, with threads that have the privileges of this one.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(
        &mut self,
        loader: Arc<Loader>,
        limits: Limits,
        capabilities: Capabilities,
    ) -> Result<(), ServerError> {
        let Some((listener, tickets)) = self.listener.take() else { return Ok(()) };
        let wake = self.wake.clone();
        let shared = Arc::new(Shared { loader, limits, capabilities, tickets, wake, connections: Arc::default() });
        let thread = thread::Builder::new().name("control".into()).spawn(move || accept(&listener, &shared));
        thread.map(drop).map_err(|source| ServerError::Io { path: self.path.clone(), source })
    }

    /// The next request, if one waits.
    #[must_use]
    pub fn next(&self) -> Option<Ticket> {
        self.tickets.try_recv().ok()
    }

    /// Waits until a request may be there, [`Server::waker`] was written, or `longest` has passed.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn wait(&self, longest: Duration) -> rustix::io::Result<()> {
        let timeout = Timespec { tv_sec: 0, tv_nsec: longest.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        // EAGAIN when nothing was pending: as wanted.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        Ok(())
    }

    /// An eventfd that ends [`Server::wait`].
    #[must_use]
    pub fn waker(&self) -> Arc<OwnedFd> {
        self.wake.clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.file.is_some() && file_at(&self.path) == self.file {
            // The folder may be another user's, and spind has given up the right to write there.
            if let Err(error) = fs::remove_file(&self.path) {
                tracing::warn!("control socket {} stays behind: {error}", self.path.display());
            }
        }
    }
}

/// Device and inode of a file.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Removes a socket that a killed spind left behind; nothing but a socket that nobody listens on.
fn remove_stale(path: &Path) -> Result<(), ServerError> {
    let Ok(file) = fs::symlink_metadata(path) else { return Ok(()) };
    if !file.file_type().is_socket() {
        return Err(ServerError::NotASocket(path.to_path_buf()));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(ServerError::Taken(path.to_path_buf())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|source| ServerError::Io { path: path.to_path_buf(), source })
        }
        Err(_) => Ok(()),
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Out of descriptors, most likely: give the connections there are time to end.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let uid = match socket_peercred(&stream) {
            Ok(peer) => peer.uid.as_raw(),
            Err(error) => {
                tracing::debug!("control connection dropped, its user is not known: {error}");
                continue;
            }
        };
        let Some(place) = Connections::open(&shared.connections, uid, shared.limits.connections) else {
            refuse(&stream, shared.limits.connections);
            continue;
        };
        let connection =
            Connection { stream, user: User(uid), shared: shared.clone(), owned: Vec::new(), _place: place };
        let spawned = thread::Builder::new().name("connection".into()).spawn(move || connection.serve());
        if let Err(error) = spawned {
            tracing::warn!("control connection refused: {error}");
        }
    }
}

/// Says why, as a courtesy: nobody is waited for.
fn refuse(stream: &UnixStream, limit: usize) {
    let message = format!("all {limit} control connections of this user are in use, or too many of all users");
    if stream.set_nonblocking(true).is_ok() {
        // It fits the socket's buffer, unless the peer is gone.
        let _ = wire::send(stream, &Reply::Error { message }, &[], None);
    }
}

/// Open connections by user.
#[derive(Default)]
struct Connections(Mutex<HashMap<u32, usize>>);

impl Connections {
    /// Takes a place for a user; `None` when its places, or all but root's, are taken.
    fn open(all: &Arc<Self>, uid: u32, per_user: usize) -> Option<Place> {
        let mut open = all.lock();
        let others: usize = open.iter().filter(|(user, _)| **user != 0).map(|(_, count)| count).sum();
        let count = open.get(&uid).copied().unwrap_or(0);
        let room = count < per_user && (uid == 0 || others < MAX_CONNECTIONS);
        room.then(|| {
            open.insert(uid, count + 1);
            Place { all: all.clone(), uid }
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, usize>> {
        // The counts are consistent at every moment a thread could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A user's place among the connections, free again when dropped.
struct Place {
    all: Arc<Connections>,
    uid: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.all.lock();
        if let Some(count) = open.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.uid);
            }
        }
    }
}

/// One application.
struct Connection {
    stream: UnixStream,
    user: User,
    shared: Arc<Shared>,
    /// Contexts that live as long as this connection.
    owned: Vec<u32>,
    _place: Place,
}

impl Connection {
    fn serve(mut self) {
        if let Err(error) = self.converse() {
            tracing::debug!("control connection ended: {error}");
        }
        for context in std::mem::take(&mut self.owned) {
            // It may have been removed by request.
            let _ = self.ask(Work::Request(Request::Remove { context }, User(0)));
        }
    }

    fn converse(&mut self) -> Result<(), wire::ChannelError> {
        self.stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        loop {
            let message = match wire::receive::<Request>(&self.stream) {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(()),
                Err(error) => {
                    // After nonsense there is no telling where the next message starts: say why, and hang up.
                    let _ = wire::send(&self.stream, &Reply::Error { message: error.to_string() }, &[], None);
                    return Err(error);
                }
            };
            let sent = match self.handle(message.body, message.blob) {
                Ok((reply, blob, host)) => {
                    wire::send(&self.stream, &reply, &blob, host.as_ref().map(|region| region.fd()))
                }
                Err(message) => wire::send(&self.stream, &Reply::Error { message }, &[], None),
            };
            match sent {
                // Nothing of it was sent.
                Err(error @ wire::ChannelError::TooLong { .. }) => {
                    wire::send(&self.stream, &Reply::Error { message: error.to_string() }, &[], None)?;
                }
                sent => sent?,
            }
        }
    }

    fn handle(&mut self, request: Request, blob: Vec<u8>) -> Result<Handled, String> {
        let user = self.user;
        match request {
            Request::Install(install) => {
                let persistent = install.persistent;
                let prepared = Prepared::new(install, &blob, user.0, &self.shared.loader, &self.shared.limits)
                    .map_err(|error| error.to_string())?;
                let host = prepared.host();
                let Answer::Installed(context) = self.ask(Work::Install(Box::new(prepared)))? else {
                    return Err("the engine gave an unexpected answer".into());
                };
                if !persistent {
                    self.owned.push(context);
                }
                let host_mem = host.as_ref().map_or(0, |region| region.len());
                Ok((Reply::Installed { context, host_mem, host_address: HOST_ADDRESS }, Vec::new(), host))
            }
            // Nothing of it changes: the engine is not asked.
            Request::Capabilities => {
                Ok((Reply::Capabilities(Box::new(self.shared.capabilities.clone())), Vec::new(), None))
            }
            Request::Replay => self.reply_to(Work::Replay(blob)),
            other => self.reply_to(Work::Request(other, user)),
        }
    }

    fn reply_to(&self, work: Work) -> Result<Handled, String> {
        match self.ask(work)? {
            Answer::Reply(reply, blob, host) => Ok((reply, blob, host)),
            Answer::Installed(_) => Err("the engine gave an unexpected answer".into()),
        }
    }

    /// Has the engine do something, and waits until it has.
    fn ask(&self, work: Work) -> Result<Answer, String> {
        let stopping = || "spind is stopping".to_owned();
        let (reply, answer) = sync_channel(1);
        self.shared.tickets.send(Ticket { work, reply: Responder(reply) }).map_err(|_| stopping())?;
        // The counter of an eventfd overflows after 2^64 - 1 wake-ups; otherwise this cannot fail.
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
        answer.recv().map_err(|_| stopping())?
    }
}

/// A reply, its blob, and the host memory whose descriptor goes along.
type Handled = (Reply, Vec<u8>, Option<Arc<Region>>);
