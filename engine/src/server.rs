//! The control socket, and the way to the control thread: applications' requests, checked on threads of their own, carried
//! out by the engine between two batches.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use spin_abi::control::{Capabilities, Reply, Request, Stats};
use spin_shm::Region;
use spin_shm::channel as wire;

use crate::config::Limits;
use crate::handed::Handed;
use crate::install::{HOST_ADDRESS, Matching, Prepared, User};
use crate::loader::Loader;
use crate::metrics::{self, Endpoint, EndpointError, Listener};
use crate::nic_memory::NicMemory;
use crate::socket_file::{SocketError, SocketFile};

/// Longest pause of a peer that is being sent an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a request's JSON: several times what rules and names of a context may have.
const LONGEST_REQUEST: u32 = 64 << 10;
/// How often a connection that has ended looks whether its peer has read the replies.
const LOOK: Duration = Duration::from_millis(100);
/// Of threads that prepare contexts (nice(2)): with a tenth of the time of one that serves packets on the same core.
const NICE: i32 = 10;
/// Connections of all users but root together; each costs a thread.
const MAX_CONNECTIONS: usize = 256;

/// What the engine is asked to do.
#[derive(Debug)]
pub enum Work {
    /// Link a checked context in; answered by [`Answer::Installed`].
    Install(Box<Prepared>),
    /// Have a context take other packets.
    SetRules(u32, User, Box<Matching>),
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

impl Answer {
    /// A reply that has nothing else with it.
    #[must_use]
    pub const fn plain(reply: Reply) -> Self {
        Self::Reply(reply, Vec::new(), None)
    }
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

/// Why spind cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The control socket.
    #[error("control socket: {0}; --socket PATH names one")]
    Socket(#[from] SocketError),
    /// Metrics.
    #[error("metrics: {0}; --metrics ADDRESS:PORT or unix:PATH says where")]
    Metrics(#[from] EndpointError),
    /// There is no thread or no eventfd to be had.
    #[error("cannot serve requests: {0}")]
    Io(#[from] io::Error),
}

/// The way to the control thread, for any thread.
#[derive(Clone)]
pub struct Control {
    tickets: Sender<Ticket>,
    wake: Arc<OwnedFd>,
}

impl Control {
    /// Has the engine do something, and waits until it has.
    ///
    /// # Errors
    /// The engine's refusal, or that spind is stopping.
    pub fn ask(&self, work: Work) -> Result<Answer, String> {
        let stopping = || "spind is stopping".to_owned();
        let (reply, answer) = sync_channel(1);
        self.tickets.send(Ticket { work, reply: Responder(reply) }).map_err(|_| stopping())?;
        // The counter of an eventfd overflows after 2^64 - 1 wake-ups; otherwise this cannot fail.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        answer.recv().map_err(|_| stopping())?
    }

    /// All counters.
    ///
    /// # Errors
    /// That spind is stopping.
    pub fn stats(&self) -> Result<Stats, String> {
        match self.ask(Work::Request(Request::Stats, User(0)))? {
            Answer::Reply(Reply::Stats(stats), ..) => Ok(stats),
            _ => Err("the engine gave an unexpected answer".to_owned()),
        }
    }
}

/// The listening sockets, removed when dropped.
pub struct Server {
    /// Until they are served.
    listeners: Option<(UnixListener, Option<Listener>)>,
    control: Control,
    tickets: Receiver<Ticket>,
    /// For their ends.
    _files: (SocketFile, Option<SocketFile>),
}

/// What connection threads share.
struct Shared {
    loader: Arc<Loader>,
    limits: Limits,
    capabilities: Capabilities,
    control: Control,
    connections: Arc<Connections>,
    handed: Handed,
}

impl Server {
    /// Binds the control socket to `path`, in a folder that is made if need be, and listens for those who want `metrics`;
    /// whom the file mode `mode` lets write may connect. Nobody is served before [`Server::start`].
    ///
    /// # Errors
    /// See [`ServerError`].
    pub fn bind(path: &Path, mode: u32, metrics: Option<&Endpoint>) -> Result<Self, ServerError> {
        let (listener, file) = SocketFile::listen(path, mode)?;
        let (metrics, metrics_file) = metrics.map(|endpoint| endpoint.listen(mode)).transpose()?.unzip();
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
        let (sender, tickets) = channel();
        let control = Control { tickets: sender, wake: Arc::new(wake) };
        let _files = (file, metrics_file.flatten());
        Ok(Self { listeners: Some((listener, metrics)), control, tickets, _files })
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
        let Some((listener, metrics)) = self.listeners.take() else { return Ok(()) };
        let control = self.control.clone();
        let (connections, handed) = (Arc::default(), Handed::new(limits.host_mem));
        let shared = Arc::new(Shared { loader, limits, capabilities, control, connections, handed });
        thread::Builder::new().name("control".into()).spawn(move || accept(&listener, &shared))?;
        if let Some(listener) = metrics {
            metrics::start(listener, self.control.clone())?;
        }
        Ok(())
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
        // What is too long for the kernel is for ever.
        let timeout = Timespec::try_from(longest).ok();
        match poll(&mut [PollFd::new(&self.control.wake, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        // EAGAIN when nothing was pending: as wanted.
        let _ = rustix::io::read(&self.control.wake, &mut [0; 8]);
        Ok(())
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
            Connection { stream, user: User(uid), shared: shared.clone(), installed: Vec::new(), _place: place };
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

/// A context that its application knows.
struct Installed {
    context: u32,
    /// It stays when the connection ends.
    persistent: bool,
    memory: NicMemory,
}

/// One application.
struct Connection {
    stream: UnixStream,
    user: User,
    shared: Arc<Shared>,
    /// Contexts that were installed over this connection.
    installed: Vec<Installed>,
    _place: Place,
}

/// Whatever ended its thread.
impl Drop for Connection {
    fn drop(&mut self) {
        self.remove_installed();
    }
}

/// Lets threads that serve packets go first, where they share their cores with this one, which loads and translates.
pub(crate) fn give_way() {
    // Everybody may.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}

impl Connection {
    fn serve(mut self) {
        give_way();
        if let Err(error) = self.converse() {
            tracing::debug!("control connection ended: {error}");
        }
        self.remove_installed();
        self.linger();
    }

    fn remove_installed(&mut self) {
        for Installed { context, persistent, .. } in std::mem::take(&mut self.installed) {
            if persistent {
                continue;
            }
            // It may have been removed by request.
            let _ = self.shared.control.ask(Work::Request(Request::Remove { context }, User(0)));
        }
    }

    fn converse(&mut self) -> Result<(), wire::ChannelError> {
        self.stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        loop {
            let message = match wire::receive_within::<Request>(&self.stream, LONGEST_REQUEST) {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(()),
                Err(error) => {
                    // After nonsense there is no telling where the next message starts: say why, and hang up.
                    let _ = wire::send(&self.stream, &Reply::Error { message: error.to_string() }, &[], None);
                    return Err(error);
                }
            };
            let handled = match self.may_hand(&message.body) {
                Ok(()) => self.handle(message.body, message.blob),
                Err(refusal) => Err(refusal),
            };
            match handled {
                Ok((reply, blob, region)) => self.reply(&reply, &blob, region)?,
                Err(message) => wire::send(&self.stream, &Reply::Error { message }, &[], None)?,
            }
        }
    }

    /// Descriptors that are on their way count for spind, all connections' together: so there is one of each at the most.
    fn may_hand(&self, request: &Request) -> Result<(), String> {
        let hands = match request {
            Request::Install(install) => install.host_mem > 0,
            Request::Events { .. } | Request::HostMemory { .. } => true,
            _ => false,
        };
        if hands && spin_shm::unread(&self.stream).is_ok_and(|unread| unread > 0) {
            return Err("read the replies before you ask for another descriptor".to_owned());
        }
        Ok(())
    }

    /// Sends a reply, with the descriptor of a region if there is one.
    fn reply(&mut self, reply: &Reply, blob: &[u8], region: Option<Arc<Region>>) -> Result<(), wire::ChannelError> {
        if let Some(region) = &region {
            self.shared.handed.note(self.user.0, region);
        }
        match wire::send(&self.stream, reply, blob, region.as_ref().map(|region| region.fd())) {
            Err(wire::ChannelError::Unsent(message)) => {
                if let Reply::Installed { context, .. } = reply {
                    // Nobody knows it.
                    let _ = self.shared.control.ask(Work::Request(Request::Remove { context: *context }, User(0)));
                }
                wire::send(&self.stream, &Reply::Error { message }, &[], None)
            }
            sent => sent,
        }
    }

    /// Waits until the peer has read all replies, or is gone: a descriptor that it leaves unread is still on its way.
    fn linger(&self) {
        // Who is still sending is not to wait for ever. It is open, so that cannot fail.
        let _ = self.stream.shutdown(Shutdown::Read);
        let moment = Timespec::try_from(LOOK).ok();
        while spin_shm::unread(&self.stream).is_ok_and(|unread| unread > 0) {
            let mut gone = [PollFd::new(&self.stream, PollFlags::empty())];
            match poll(&mut gone, moment.as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                _ => return,
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
                let (host, memory, areas) = (prepared.host(), prepared.nic_memory(), prepared.areas());
                let Answer::Installed(context) = self.shared.control.ask(Work::Install(Box::new(prepared)))? else {
                    return Err("the engine gave an unexpected answer".into());
                };
                // Others may have removed some.
                self.installed.retain(|installed| installed.memory.is_there());
                self.installed.push(Installed { context, persistent, memory });
                let host_mem = host.as_ref().map_or(0, |region| region.len());
                Ok((Reply::Installed { context, host_mem, host_address: HOST_ADDRESS, areas }, Vec::new(), host))
            }
            // What is shared memory to the engine's threads too: they are not asked.
            Request::ReadMemory { context, address, len } => {
                let bytes = self.memory(context)?.read(address, len).map_err(|error| error.to_string())?;
                Ok((Reply::Ok, bytes, None))
            }
            Request::WriteMemory { context, address } => {
                self.memory(context)?.write(address, &blob).map_err(|error| error.to_string())?;
                Ok((Reply::Ok, Vec::new(), None))
            }
            Request::Remove { context } => {
                let removed = self.reply_to(Work::Request(request, user))?;
                self.installed.retain(|installed| installed.context != context);
                Ok(removed)
            }
            // Nothing of it changes: the engine is not asked.
            Request::Capabilities => {
                Ok((Reply::Capabilities(Box::new(self.shared.capabilities.clone())), Vec::new(), None))
            }
            Request::SetRules { context, rules, eom } => {
                let rules = Matching::parse(&rules, eom.as_deref()).map_err(|error| error.to_string())?;
                self.reply_to(Work::SetRules(context, user, Box::new(rules)))
            }
            Request::Replay => self.reply_to(Work::Replay(blob)),
            other => self.reply_to(Work::Request(other, user)),
        }
    }

    /// The memory of a context that was installed here.
    fn memory(&self, context: u32) -> Result<&NicMemory, String> {
        let installed = self.installed.iter().find(|installed| installed.context == context);
        let memory = installed.map(|installed| &installed.memory);
        memory
            .ok_or_else(|| format!("context {context} was not installed over this connection: its memory is another's"))
    }

    fn reply_to(&self, work: Work) -> Result<Handled, String> {
        match self.shared.control.ask(work)? {
            Answer::Reply(reply, blob, host) => Ok((reply, blob, host)),
            Answer::Installed(_) => Err("the engine gave an unexpected answer".into()),
        }
    }
}

/// A reply, its blob, and the host memory whose descriptor goes along.
type Handled = (Reply, Vec<u8>, Option<Arc<Region>>);
