//! A connection of an application: its requests, one after the other, on a separate thread.

use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use spin_abi::control::{Bill, BillKind, Install, Lifetime, Reply, Request, UserInfo, Users};
use spin_abi::printable::printable;
use spin_shm::Region;
use spin_shm::channel as wire;

use super::connection_limit::ConnectionSlot;
use super::payload_limit;
use super::persistence::StateChange;
use super::regions::{self, RegionRefusal, Wanted};
use super::requests::{Answer, Work};
use super::settings::Settings;
use super::shared::Shared;
use crate::context::nic_memory::NicMemory;
use crate::context::niceness::lower_priority;
use crate::control::install::granted_match;
use crate::control::policy::grant::Grant;
use crate::control::state::{Claim, RuleTexts};
use crate::install::{HOST_ADDRESS, Prepared, User};

/// Longest time for a peer to accept more bytes of a reply.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of a request's JSON, in bytes: several times the limit of a context's rules and names.
const LONGEST_REQUEST: u32 = 64 << 10;
/// Maximum length of the reason for a refusal, in characters: a reason may quote a context's rules.
const LONGEST_REASON: usize = 16 << 10;
/// Interval at which an ended connection checks whether its peer has read the replies.
const LINGER_INTERVAL: Duration = Duration::from_millis(100);

/// A context that was installed over this connection.
struct Installed {
    context: u32,
    lifetime: Lifetime,
    /// Its memory, by unit.
    memory: Vec<NicMemory>,
}

/// A connection of an application.
pub struct Connection {
    stream: UnixStream,
    user: User,
    /// Group of the peer.
    gid: u32,
    /// The settings in force at the latest request, and what they grant the user.
    settings: Arc<Settings>,
    grant: Grant,
    shared: Arc<Shared>,
    /// Contexts that were installed over this connection.
    installed: Vec<Installed>,
    _slot: ConnectionSlot,
}

/// Contexts are removed even if the thread panics.
impl Drop for Connection {
    fn drop(&mut self) {
        self.remove_installed();
    }
}

impl Connection {
    /// A connection of a user, who holds a slot for it.
    pub fn new(stream: UnixStream, (uid, gid): (u32, u32), shared: Arc<Shared>, slot: ConnectionSlot) -> Self {
        let settings = shared.settings.get();
        let grant = settings.policy.grant(uid, gid, &shared.host);
        Self { stream, user: User(uid), gid, settings, grant, shared, installed: Vec::new(), _slot: slot }
    }

    /// Takes the settings in force. The user's groups are read again only if the settings have changed.
    fn update_settings(&mut self) {
        let settings = self.shared.settings.get();
        if !Arc::ptr_eq(&settings, &self.settings) {
            self.grant = settings.policy.grant(self.user.0, self.gid, &self.shared.host);
            self.settings = settings;
        }
    }

    /// Answers requests until the peer sends no more.
    pub fn serve(mut self) {
        lower_priority();
        if let Err(error) = self.converse() {
            tracing::debug!("control connection ended: {error}");
        }
        self.remove_installed();
        self.linger();
        // A process that ends closes its memory shortly before or after its connection.
        self.shared.shared_memory.sweep();
        if self.shared.shared_memory.keeps(self.user.0) {
            sleep(LINGER_INTERVAL);
            self.shared.shared_memory.sweep();
        }
    }

    fn remove_installed(&mut self) {
        for Installed { context, lifetime, .. } in std::mem::take(&mut self.installed) {
            if lifetime != Lifetime::Connection {
                continue;
            }
            // An earlier request may have removed the context.
            let _ = self.shared.control.ask(self.user, Work::Request(Request::Remove { context }, User(0)));
        }
    }

    fn converse(&mut self) -> Result<(), wire::ChannelError> {
        self.stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        loop {
            let begun = match wire::receive_from_anybody::<Request>(&self.stream, LONGEST_REQUEST) {
                Ok(Some(begun)) => begun,
                Ok(None) => return Ok(()),
                Err(error) => {
                    let said = wire::send(&self.stream, &refusal(&error.to_string()), &[], None);
                    // A message with bad JSON was received completely. After other errors the start of the next message is unknown, so
                    // close the connection.
                    if matches!(error, wire::ChannelError::Json(_)) && said.is_ok() {
                        continue;
                    }
                    return Err(error);
                }
            };
            let machine = &self.shared.loader.machine;
            let allowed =
                payload_limit::check(&begun.body, begun.blob, machine).and_then(|()| self.may_send_fd(&begun.body));
            let shared = self.shared.clone();
            let handled = match allowed {
                Ok(()) => {
                    let _permit = shared.payload_limit.take(self.user.0, begun.blob);
                    match shared.loader.ledger.charge(self.user.0, BillKind::Requests, begun.blob.into()) {
                        Ok(_charge) => {
                            let (request, blob) = begun.whole()?;
                            self.handle(request, blob)
                        }
                        Err(refusal) => {
                            begun.skip()?;
                            Err(refusal.to_string().into())
                        }
                    }
                }
                Err(refusal) => {
                    begun.skip()?;
                    Err(refusal.into())
                }
            };
            match handled {
                Ok((reply, blob, region)) => self.reply(&reply, &blob, region)?,
                Err(Refusal { message, closes }) => {
                    wire::send(&self.stream, &refusal(&message), &[], None)?;
                    if closes {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Allows at most one unread descriptor per connection. The kernel counts descriptors that peers have not received against spind,
    /// over all connections.
    fn may_send_fd(&self, request: &Request) -> Result<(), String> {
        let sends_fd = match request {
            Request::Install(install) => install.host_mem > 0,
            Request::Events { .. } | Request::HostMemory { .. } => true,
            _ => false,
        };
        if sends_fd && spin_shm::unread(&self.stream).is_ok_and(|unread| unread > 0) {
            return Err("read the replies before you ask for another descriptor".to_owned());
        }
        Ok(())
    }

    /// Sends a reply, with the descriptor of a region if there is one. The region counts against the user's quota.
    fn reply(&mut self, reply: &Reply, blob: &[u8], region: Option<Arc<Region>>) -> Result<(), wire::ChannelError> {
        let fd = region
            .map(|region| self.shared.shared_memory.share(self.user.0, &region, self.settings.limits.host_mem))
            .transpose();
        let sent = match &fd {
            Ok(fd) => wire::send(&self.stream, reply, blob, fd.as_ref().map(AsFd::as_fd)),
            Err(refusal) => Err(wire::ChannelError::Unsent(refusal.to_string())),
        };
        match sent {
            Err(wire::ChannelError::Unsent(message)) => {
                if let Reply::Installed { context, .. } = reply {
                    // The application never learned the id of the context.
                    let _ = self.remove(*context);
                }
                wire::send(&self.stream, &Reply::Error { message }, &[], None)
            }
            sent => sent,
        }
    }

    /// Waits until the peer has read all replies, or is gone: an unread descriptor counts against spind.
    fn linger(&self) {
        // A peer that is still sending must not block forever. The stream is open, so this cannot fail.
        let _ = self.stream.shutdown(Shutdown::Read);
        let interval = Timespec::try_from(LINGER_INTERVAL).ok();
        while spin_shm::unread(&self.stream).is_ok_and(|unread| unread > 0) {
            let mut gone = [PollFd::new(&self.stream, PollFlags::empty())];
            match poll(&mut gone, interval.as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                _ => return,
            }
        }
    }

    fn handle(&mut self, request: Request, blob: Vec<u8>) -> Result<Handled, Refusal> {
        self.update_settings();
        let user = self.user;
        match request {
            Request::Install(install) => Ok(self.install(*install, &blob)?),
            // NIC memory is shared with the engine's threads, so no request to them is needed.
            Request::ReadMemory { context, address, len, unit } => {
                let bytes = self.memory(context, unit)?.read(address, len).map_err(|error| error.to_string())?;
                Ok((Reply::Ok, bytes, None))
            }
            Request::WriteMemory { context, address, unit } => {
                self.memory(context, unit)?.write(address, &blob).map_err(|error| error.to_string())?;
                Ok((Reply::Ok, Vec::new(), None))
            }
            Request::Remove { context } => Ok(self.remove(context)?),
            Request::Users => Ok((Reply::Users(self.users()), Vec::new(), None)),
            // Capabilities change with settings only, so no request to the control thread is needed.
            Request::Capabilities => {
                Ok((Reply::Capabilities(Box::new(self.settings.capabilities.clone())), Vec::new(), None))
            }
            Request::SetRules { context, rules, eom } => Ok(self.set_rules(context, RuleTexts { rules, eom })?),
            Request::AttachRegion { context, address, len } => {
                let wanted = Wanted { context, address, len, most: self.settings.limits.host_mem };
                regions::attach(&self.stream, user, wanted, &self.shared)?;
                Ok((Reply::Ok, Vec::new(), None))
            }
            Request::Replay => Ok(self.reply_to(Work::Replay(blob))?),
            other => Ok(self.reply_to(Work::Request(other, user))?),
        }
    }

    fn install(&mut self, install: Install, image: &[u8]) -> Result<Handled, String> {
        let user = self.user;
        let shared = self.shared.clone();
        let Shared { loader, shared_memory, state, control, .. } = &*shared;
        let limits = &self.settings.limits;
        let change = StateChange::prepare(state.as_deref(), &install, image, (user, self.gid), limits)?;
        let slot = shared.prepare_slots.take(user.0);
        if install.host_mem > 0 && shared_memory.keeps(user.0) {
            // The user may have closed some since, and then is not charged for it.
            shared_memory.sweep();
        }
        let lifetime = install.lifetime;
        let prepared = Prepared::for_user(install, image, &self.grant, loader, limits);
        let mut prepared = prepared.map_err(|error| error.to_string())?;
        let warnings = prepared.take_warnings();
        let (host, memory, areas) = (prepared.host(), prepared.nic_memory(), prepared.areas());
        drop(slot);
        let slot = shared.attach_slots.take(user.0);
        let Answer::Installed(context) = control.ask(user, Work::Install(Box::new(prepared)))? else {
            return Err("the engine gave an unexpected answer".into());
        };
        drop(slot);
        if let Err(error) = change.commit(context) {
            // Without an entry it would not be what the user asked for.
            let _ = self.remove(context);
            return Err(error);
        }
        // Other connections may have removed some contexts.
        self.installed.retain(|installed| installed.memory.iter().any(NicMemory::is_there));
        self.installed.push(Installed { context, lifetime, memory });
        let host_mem = host.as_ref().map_or(0, |region| region.len());
        Ok((Reply::Installed { context, host_mem, host_address: HOST_ADDRESS, areas, warnings }, Vec::new(), host))
    }

    /// Removes a context, and first its entry: a refusal changes nothing then.
    fn remove(&mut self, context: u32) -> Result<Handled, String> {
        let user = self.user;
        let entry = self.shared.state.as_ref().and_then(|state| state.claim(context, user));
        let had_entry = entry.map(Claim::delete).transpose()?.is_some();
        let removed = self.reply_to(Work::Request(Request::Remove { context }, user));
        // The context of an entry may not be installed, if it could not be restored.
        let removed = if had_entry { Ok((Reply::Ok, Vec::new(), None)) } else { removed };
        if removed.is_ok() {
            self.installed.retain(|installed| installed.context != context);
        }
        removed
    }

    fn set_rules(&self, context: u32, texts: RuleTexts) -> Result<Handled, String> {
        let user = self.user;
        let entry = self.shared.state.as_ref().and_then(|state| state.claim(context, user));
        // Long rules take milliseconds to check.
        let slot = self.shared.prepare_slots.take(user.0);
        let granted = granted_match(&texts.rules, texts.eom.as_deref(), &self.grant);
        let (rules, _) = granted.map_err(|error| error.to_string())?;
        drop(slot);
        let staged = entry.as_ref().map(|entry| entry.stage_rules(user, texts)).transpose()?;
        let replied = self.reply_to(Work::SetRules(context, user, Box::new(rules)))?;
        if let Some((entry, staged)) = entry.as_ref().zip(staged) {
            let saved = entry.save(staged);
            saved.map_err(|error| format!("the rules are in force, but may not survive a restart: {error}"))?;
        }
        Ok(replied)
    }

    /// The bills that the user may see.
    fn users(&self) -> Users {
        let Shared { loader, own, .. } = &*self.shared;
        let [total, each] = loader.ledger.limits().map(|limit| Some(limit).filter(|&limit| limit < u64::MAX));
        let seen = |(uid, _): &(u32, Bill)| self.user.may_change(*uid);
        let user = |(uid, bill)| UserInfo { uid, bill, limit: each.filter(|_| uid != 0) };
        Users { users: loader.ledger.bills().into_iter().filter(seen).map(user).collect(), limit: total, own: *own }
    }

    /// The NIC memory in one unit of a context that was installed over this connection.
    fn memory(&self, context: u32, unit: u32) -> Result<&NicMemory, String> {
        let installed = self.installed.iter().find(|installed| installed.context == context);
        let unknown = || format!("context {context} was not installed over this connection: its memory is another's");
        let memory = &installed.ok_or_else(unknown)?.memory;
        let units = memory.len();
        let none =
            || format!("context {context} has no unit {unit} of its own: they are numbered from 0, and it has {units}");
        memory.get(unit as usize).ok_or_else(none)
    }

    fn reply_to(&self, work: Work) -> Result<Handled, String> {
        match self.shared.control.ask(self.user, work)? {
            Answer::Reply(reply, blob, host) => Ok((reply, blob, host)),
            Answer::Installed(_) | Answer::Changed(_) => Err("the engine gave an unexpected answer".into()),
        }
    }
}

/// Why a request is refused, and whether the connection ends: the peer may be in the middle of a message.
struct Refusal {
    message: String,
    closes: bool,
}

impl From<String> for Refusal {
    fn from(message: String) -> Self {
        Self { message, closes: false }
    }
}

impl From<RegionRefusal> for Refusal {
    fn from(refusal: RegionRefusal) -> Self {
        Self { message: refusal.to_string(), closes: !refusal.leaves_connection_usable() }
    }
}

/// The reply that refuses a request. The reason may contain texts of the request or of an image.
fn refusal(reason: &str) -> Reply {
    Reply::Error { message: printable(reason, LONGEST_REASON) }
}

/// A reply, its blob, and the shared memory whose descriptor is sent along.
type Handled = (Reply, Vec<u8>, Option<Arc<Region>>);
