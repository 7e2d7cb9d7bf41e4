//! spind: opens the NIC, starts the engine's threads, and carries out requests of applications until it stops.
//!
//! * `error`: errors that stop spind.
//! * `privileged`: starts the processes that keep privileges.
//! * `nics`: opens the NIC; `threads`: starts the engine's threads; `reporter`: reports to the service manager.
//! * `questions`: requests that concern one context each.
//! * `restore`: installs persistent contexts again.

mod error;
mod nics;
mod privileged;
mod questions;
mod reporter;
mod restore;
mod threads;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use spin_abi::control::{Lifetime, Replayed, Reply, Request};
use spin_nic::NicError;
use spin_nic::memory::MemoryQueue;

use crate::context::loader::Loader;
use crate::context::perf_map::PerfMap;
use crate::control::audit::AuditLines;
use crate::control::capabilities;
use crate::control::config::{Config, Nic, max_image_size};
use crate::control::descriptor_process::client::DescriptorProcess;
use crate::control::descriptors::Descriptors;
use crate::control::log::LOG;
use crate::control::notify::Notifier;
use crate::control::privileges::{self};
use crate::control::reload::{HangUps, Installed, Reloader};
use crate::control::replay::Replay;
use crate::control::server::{
    Answer, CurrentSettings, FairQueue, Responder, Server, ServerError, Settings, Ticket, Work,
};
use crate::control::state::{RankTable, State};
use crate::control::static_contexts::{self, Description};
use crate::control::stats_cache::{StatsCache, StatsQuery};
use crate::cores::{ChangeResult, HookMonitor, SharedConfig, Transaction, WorkerGroup};
use crate::install::{InstallError, Prepared};
use crate::telemetry::statistics::Statistics;

pub use error::{DaemonError, USAGE};
use nics::Nics;
use privileged::{Privileged, give_up_privileges};
use questions::Questions;
use reporter::Reporter;
use restore::restore;

/// Maximum number of requests that are answered together.
const REQUEST_BATCH: usize = 64;
/// Pause after requests that interrupted packet threads, so that a client cannot take all their time.
const REQUEST_PAUSE: Duration = Duration::from_millis(1);
/// Pause after changes of which some were refused. A refused request does not wait for the NIC, so a client can repeat it at once.
const REFUSED_PAUSE: Duration = Duration::from_millis(5);
/// Duration of a replay step. Other requests are served between steps.
const REPLAY_STEP: Duration = Duration::from_millis(10);
/// Longest wait for a request. It bounds the delay of a signal that arrives just before the wait.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// The daemon, ready to run.
pub struct Daemon {
    group: WorkerGroup,
    /// The far ends of the loopback NIC's queues.
    far: Vec<MemoryQueue>,
    /// The capture that is being replayed, and the recipient of the answer.
    replaying: Option<(Replay, Responder)>,
    /// Captures to replay one after the other. Users take turns.
    replays: FairQueue<(Replay, Responder)>,
    server: Server,
    stats: StatsCache,
    /// Looks after programs in the XDP hook.
    hooks: HookMonitor,
    /// Whether the end of the NIC ends the job, as for a capture, instead of being a failure.
    nic_ends: bool,
    /// A description of the NIC.
    nic: String,
    shared: SharedConfig,
    reporter: Reporter,
    /// Entries of persistent contexts.
    state: Option<Arc<State>>,
    ranks: RankTable,
}

impl Daemon {
    /// Checks the configuration's contexts and binds the control socket before it touches the NIC. Then opens the NIC and installs the
    /// contexts. The engine's threads end soon after `stop` is set. At `hang_ups`, the configuration is read again.
    ///
    /// # Errors
    /// See [`DaemonError`].
    pub fn new(config: &Config, stop: &Arc<AtomicBool>, hang_ups: Option<HangUps>) -> Result<Self, DaemonError> {
        if matches!(config.nic, Nic::Interface(_)) && !privileges::may_serve_interface() {
            // Before the control socket: its path needs privileges too, and its error would say less.
            return Err(NicError::Privileges { action: "serve an interface" }.into());
        }
        let descriptors = Descriptors::raise();
        let config = &Config { limits: descriptors.fit(config.limits, config.kernel_tier), ..config.clone() };
        let notifier = Arc::new(Notifier::from_environment());
        let privileged = Privileged::start(config)?;
        let account = privileged.as_ref().map(|privileged| &privileged.account);
        let descriptor_process = DescriptorProcess::start(Path::new("/proc/self/exe"), account);
        let descriptor_process = descriptor_process.map_err(DaemonError::DescriptorProcess)?;
        let loader = Arc::new(static_contexts::loader(config).with_perf_map(perf_map(config)));
        let uid = rustix::process::getuid().as_raw();
        let contexts = static_contexts::prepare_in_user_space(config, uid, &loader)?;
        let state = State::open(config, account, max_image_size(&config.machine), loader.ledger.clone())?.map(Arc::new);
        let mut server = Server::bind(&config.socket, config.socket_mode, config.metrics.as_ref())?;
        let Nics { queues, far, filter } = nics::open(config)?;
        let capabilities = capabilities::of(config, &queues);
        let nic = capabilities.nic.clone();
        tracing::info!("serving {nic}");
        let (host, programs) = give_up_privileges(privileged, config, descriptors, &mut server, filter.as_deref())?;
        loader.set_programs(programs);
        let contexts = static_contexts::prepare_in_hook(config, uid, &loader, contexts)?;
        LOG.start_thread().map_err(ServerError::Io)?;
        let shared = shared_config(config, &loader, stop, &server);
        let steering = queues.first().ok_or_else(threads::no_queue)?.steering();
        let (workers, receiving) = threads::start(config, &shared, queues)?;
        let nic_ends = matches!(config.nic, Nic::Pcap { .. });
        let group = WorkerGroup::new(workers, receiving, steering, config.limits);
        let (limits, policy) = (config.limits, config.policy.clone());
        let settings = CurrentSettings::new(Settings { limits, policy, capabilities });
        let entries = state.as_ref().map_or(Ok(Vec::new()), |state| state.entries())?;
        // Ids of entries that are not restored are not given to others either.
        group.reserve_ids(entries.iter().map(|&(_, id)| id).max().unwrap_or(0));
        let installed = install(&group, contexts)?;
        let restored = state.as_ref().map(|state| restore(state, entries, &group, &loader, &settings.get(), &host));
        let mut ranks = restored.unwrap_or_default();
        for (_, id) in &installed {
            ranks.add(*id, None);
        }
        let count = ranks.len();
        shared.go.store(true, Relaxed);
        server.start(loader.clone(), settings.clone(), host, descriptor_process, state.clone())?;
        if let Some(hang_ups) = hang_ups {
            let (config, control, notifier) = (config.clone(), server.control(), notifier.clone());
            Reloader { config, uid, installed, loader, settings, control, notifier }.start(hang_ups)?;
        }
        tracing::info!("listening on {}", config.socket.display());
        let reporter = Reporter::start(notifier, config, count);
        let (replaying, replays) = (None, FairQueue::default());
        let (stats, hooks) = (StatsCache::default(), HookMonitor::default());
        Ok(Self { group, far, replaying, replays, server, stats, hooks, nic_ends, nic, shared, reporter, state, ranks })
    }

    /// Carries out requests until spind is told to stop or the NIC is exhausted, then waits for the threads to end. Returns all
    /// statistics, and whether the NIC failed.
    pub fn run(mut self) -> (Statistics, Result<(), DaemonError>) {
        let carried_out = self.carry_out();
        self.reporter.stop();
        let stopped = self.shared.stop.swap(true, Relaxed);
        let (statistics, ended) = self.group.finish();
        let (expected, nic) = (stopped || self.nic_ends, self.nic);
        let gone = || if expected { Ok(()) } else { Err(DaemonError::Gone(nic)) };
        (statistics, carried_out.and(ended.map_err(DaemonError::from)).and_then(|()| gone()))
    }

    /// Carries out requests until spind is told to stop or a thread has ended.
    fn carry_out(&mut self) -> Result<(), DaemonError> {
        while !self.shared.stop.load(Relaxed) && !self.group.has_ended() {
            // Take a bounded number at a time, so that the end is noticed however many requests wait.
            let tickets: Vec<_> = std::iter::from_fn(|| self.server.next_ticket()).take(REQUEST_BATCH).collect();
            if tickets.is_empty() && self.replaying.is_none() && self.replays.is_empty() {
                let waits = [self.stats.wait(), self.hooks.wait(&self.group.hooks), Some(self.reporter.wait())];
                let longest = waits.into_iter().flatten().fold(LONGEST_WAIT, Duration::min);
                self.server.wait(longest).map_err(DaemonError::Wait)?;
            }
            let pause = self.serve(tickets);
            self.replay();
            self.hooks.tend(&self.group);
            self.stats.answer(&self.group, &self.nic);
            self.reporter.report(&self.group);
            sleep(pause);
        }
        Ok(())
    }

    /// Answers requests. Changes that wait at the same time form one transaction, because their clients did not wait for each other.
    /// Returns the time for which packet threads are not to be interrupted again.
    fn serve(&mut self, tickets: Vec<Ticket>) -> Duration {
        let mut transaction = Transaction::default();
        let mut questions = Questions::default();
        let (mut installers, mut rulers, mut removers) = (Vec::new(), Vec::new(), Vec::new());
        for Ticket { user: asking, work, reply } in tickets {
            match work {
                Work::Install(prepared) => {
                    transaction.installs.push(*prepared);
                    installers.push(reply);
                }
                Work::SetRules(context, user, rules) => {
                    transaction.rules.push((context, user, *rules));
                    rulers.push(reply);
                }
                Work::Request(Request::Remove { context }, user) => {
                    transaction.removals.push((context, user));
                    removers.push(reply);
                }
                Work::Replay(capture) => match self.replay_of(&capture) {
                    Ok(replay) => self.replays.push(asking.0, (replay, reply)),
                    Err(error) => reply.answer(Err(error)),
                },
                Work::Change(transaction, limits) => {
                    self.group.set_limits(limits);
                    reply.answer(Ok(Answer::Changed(self.change(*transaction))));
                }
                Work::AttachRegion(context, user, address, region) => {
                    questions.attach((context, user), address, region, reply);
                }
                Work::Check(context, user) => {
                    questions.may_remove(context, user, reply);
                }
                Work::Request(Request::List, user) => self.stats.ask(StatsQuery::Contexts, user, reply),
                Work::Request(Request::Stats, user) => self.stats.ask(StatsQuery::Stats, user, reply),
                Work::Request(request, user) => questions.request(request, user, reply),
            }
        }
        let asked = questions.answer(&self.group);
        if installers.is_empty() && rulers.is_empty() && removers.is_empty() {
            return if asked { REQUEST_PAUSE } else { Duration::ZERO };
        }
        let ChangeResult { installed, ruled, removed } = self.change(transaction);
        let mut outcomes = ruled.iter().chain(&removed).map(Result::is_ok).chain(installed.iter().map(Result::is_ok));
        let pause = if outcomes.all(|fine| fine) { REQUEST_PAUSE } else { REFUSED_PAUSE };
        for (reply, installed) in installers.into_iter().zip(installed) {
            reply.answer(installed.map(Answer::Installed).map_err(|error| error.to_string()));
        }
        for (reply, changed) in rulers.into_iter().zip(ruled).chain(removers.into_iter().zip(removed)) {
            reply.answer(done(changed).map(Answer::plain));
        }
        pause
    }

    /// Changes contexts. Logs and reports the changes.
    fn change(&mut self, transaction: Transaction) -> ChangeResult {
        let audit = AuditLines::of(&transaction);
        let installs: Vec<_> = transaction.installs.iter().map(NewContext::of).collect();
        let removals: Vec<u32> = transaction.removals.iter().map(|(id, _)| *id).collect();
        let result = self.group.change(transaction);
        let ChangeResult { installed, ruled, removed } = &result;
        audit.log(installed, ruled, removed);
        let new = installs.iter().zip(installed).filter_map(|(new, id)| Some((new, *id.as_ref().ok()?)));
        let added = new.filter(|(new, id)| self.announce(new, *id)).count();
        let gone = removals.iter().zip(removed).filter(|(_, removed)| removed.is_ok());
        let gone = gone.map(|(id, _)| self.ranks.remove(*id)).count();
        self.reporter.change(added, gone);
        result
    }

    /// Ranks a new context, and announces its entry if it is to have one. Returns whether it replaces none.
    fn announce(&mut self, new: &NewContext, id: u32) -> bool {
        let rank = self.ranks.add(id, new.replaces);
        if let Some(state) = self.state.as_ref().filter(|_| new.lifetime == Lifetime::Persistent) {
            state.announce(id, new.uid, rank);
        }
        new.replaces.is_none()
    }

    fn replay_of(&self, capture: &[u8]) -> Result<Replay, String> {
        if self.far.is_empty() {
            return Err("only a spind with --nic loopback can replay a capture".to_owned());
        }
        Replay::new(capture)
    }

    /// Replays some frames of a capture. After the last one, answers with a capture of the sent frames and the numbers of frames.
    fn replay(&mut self) {
        let Some((mut replay, reply)) = self.replaying.take().or_else(|| self.replays.pop()) else { return };
        let start = self.shared.start;
        if self.far.len() > 1 {
            return match replay.resume_on(&self.group, &mut self.far, start, REPLAY_STEP) {
                Ok(false) => self.replaying = Some((replay, reply)),
                Ok(true) => answer_replay(reply, Ok(replay.finish_on(&self.group))),
                Err(error) => answer_replay(reply, Err(error)),
            };
        }
        // When the thread is gone, the responder is dropped, and the client is told that spind is stopping.
        let (Some(mut far), Some(thread)) = (self.far.pop(), self.group.workers.first()) else { return };
        let resumed = thread.worker.ask(move |engine| match replay.resume(engine, &mut far, start, REPLAY_STEP) {
            Ok(true) => (far, Ok(replay.finish(engine)), None),
            Ok(false) => (far, Ok(Default::default()), Some(replay)),
            Err(error) => (far, Err(error), None),
        });
        let Some((far, outcome, more)) = resumed else { return };
        self.far.push(far);
        match more {
            Some(replay) => self.replaying = Some((replay, reply)),
            None => answer_replay(reply, outcome),
        }
    }
}

/// What the control thread has to know of a context once it is installed.
struct NewContext {
    uid: u32,
    lifetime: Lifetime,
    replaces: Option<u32>,
}

impl NewContext {
    fn of(prepared: &Prepared) -> Self {
        let install = &prepared.install;
        Self { uid: prepared.uid, lifetime: install.lifetime, replaces: install.replaces }
    }
}

/// The perf map, if the configuration wants one. It is created before privileges are given up: root can remove a file that another
/// user made in advance, and other processes of the account that spind then runs as cannot change root's file.
fn perf_map(config: &Config) -> Option<PerfMap> {
    let map = config.perf_map.then(PerfMap::create)?;
    map.inspect_err(|error| tracing::warn!("perf cannot name handlers: {error}")).ok()
}

/// What the engine's threads share.
fn shared_config(config: &Config, loader: &Arc<Loader>, stop: &Arc<AtomicBool>, server: &Server) -> SharedConfig {
    SharedConfig {
        loader: loader.clone(),
        sizes: config.sizes,
        schedule: config.schedule,
        idle: config.idle,
        go: Arc::default(),
        stop: stop.clone(),
        start: Instant::now(),
        ended: server.waker(),
    }
}

/// Installs the contexts of the configuration.
fn install(group: &WorkerGroup, contexts: Vec<(Description, Prepared)>) -> Result<Installed, DaemonError> {
    let (descriptions, installs): (Vec<_>, Vec<_>) = contexts.into_iter().unzip();
    let installed = group.change(Transaction { installs, ..Transaction::default() }).installed;
    let known = |(description, id): (Description, Result<u32, InstallError>)| match id {
        Ok(id) => Ok((description, id)),
        Err(source) => Err(DaemonError::Context { name: description.install.name, source }),
    };
    descriptions.into_iter().zip(installed).map(known).collect()
}

fn answer_replay(reply: Responder, outcome: Result<(Vec<u8>, Replayed), String>) {
    reply.answer(outcome.map(|(sent, told)| Answer::Reply(Reply::Replayed(told), sent, None)));
}

fn done(result: Result<(), InstallError>) -> Result<Reply, String> {
    result.map(|()| Reply::Ok).map_err(|error| error.to_string())
}
