//! All threads of an engine as one: contexts come and go on every thread, and what is asked for of one is asked for of all.
//!
//! A thread that is asked may be off its core, so an answer can be milliseconds away. Therefore all threads are asked at the same
//! time, and changes that wait are carried out together, with no more answers to wait for than one alone would need.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use spin_nic::FlowSteering;

use super::error::ThreadError;
use super::thread::{Asked, Worker};
use crate::context::Slot;
use crate::inbound::Routes;
use crate::install::{InstallError, Matching, Place, Prepared, User, warn_of_rules};
use crate::pipeline::Engine;
use crate::receiver::Receiver;
use crate::settings::Limits;
use crate::statistics::Statistics;

/// A thread that runs handlers.
pub struct ClusterThread {
    /// Its part of the machine's clusters.
    pub clusters: Range<u32>,
    /// The thread.
    pub worker: Worker<Engine>,
}

/// Who receives packets.
pub enum Receiving {
    /// Each thread that runs handlers its own.
    Each,
    /// The first of them, for all.
    First,
    /// A thread of its own.
    Apart(Worker<Receiver>),
}

/// All threads.
pub struct Fleet {
    /// At least one, in the order of their clusters.
    pub workers: Vec<ClusterThread>,
    receiving: Receiving,
    steering: Arc<dyn FlowSteering>,
    limits: Limits,
    places: RefCell<Places>,
}

/// Changes to carry out together, in this order.
#[derive(Debug, Default)]
pub struct Changes {
    /// Contexts to install, in order of priority.
    pub installs: Vec<Prepared>,
    /// Contexts that are to take other packets than before, and which.
    pub rules: Vec<(u32, User, Matching)>,
    /// Contexts to remove.
    pub removals: Vec<(u32, User)>,
}

/// What became of them.
#[derive(Debug)]
pub struct Changed {
    /// Ids of the contexts that were installed.
    pub installed: Vec<Result<u32, InstallError>>,
    /// Contexts that take other packets.
    pub ruled: Vec<Result<(), InstallError>>,
    /// Contexts that were removed.
    pub removed: Vec<Result<(), InstallError>>,
}

/// Ids and slots. All threads have to agree on them, and contexts that were replaced leave each thread in their own time.
#[derive(Debug, Default)]
struct Places {
    /// Id of the context installed last.
    last: u32,
    /// By slot: a thread had a context there when it was asked last.
    taken: Vec<bool>,
}

impl Places {
    fn next(&mut self) -> Place {
        let index = self.taken.iter().position(|taken| !taken).unwrap_or_else(|| {
            self.taken.push(false);
            self.taken.len() - 1
        });
        self.taken[index] = true;
        self.last += 1;
        #[allow(clippy::cast_possible_truncation, reason = "bounded by limits.contexts and the table's tests")]
        Place { id: self.last, slot: Slot(index as u32) }
    }

    /// What each thread has.
    fn update(&mut self, threads: &[Vec<bool>]) {
        let slots = threads.iter().map(Vec::len).max().unwrap_or(0);
        let taken = |slot| threads.iter().any(|taken| taken.get(slot).is_some_and(|taken| *taken));
        self.taken = (0..slots).map(taken).collect();
    }
}

impl Fleet {
    /// Threads that run handlers, who receives for them, and what steers frames to them. Nobody else installs contexts on them.
    #[must_use]
    pub fn new(
        workers: Vec<ClusterThread>,
        receiving: Receiving,
        steering: Arc<dyn FlowSteering>,
        limits: Limits,
    ) -> Self {
        Self { workers, receiving, steering, limits, places: RefCell::default() }
    }

    /// Installs a context: links it in on every thread, then has the NIC hand over its frames. Returns its id.
    ///
    /// # Errors
    /// See [`InstallError`].
    pub fn install(&self, prepared: Prepared) -> Result<u32, InstallError> {
        let Changed { mut installed, .. } = self.change(Changes { installs: vec![prepared], ..Changes::default() });
        installed.pop().unwrap_or(Err(InstallError::Stopped))
    }

    /// Removes a context: the NIC forgets its rules before the threads do, else its frames would be taken and dropped.
    ///
    /// # Errors
    /// See [`Engine::remove`].
    pub fn remove(&self, id: u32, user: User) -> Result<(), InstallError> {
        let Changed { mut removed, .. } = self.change(Changes { removals: vec![(id, user)], ..Changes::default() });
        removed.pop().unwrap_or(Err(InstallError::Stopped))
    }

    /// Carries changes out. The NIC takes its rules once for all of them.
    pub fn change(&self, Changes { installs, rules, removals }: Changes) -> Changed {
        let replacing: Vec<bool> = installs.iter().map(Prepared::replaces).collect();
        let mut installed = self.link(installs);
        let (mut before, mut new_rules) = (Vec::new(), Vec::new());
        let widen = |(id, user, rules): (u32, User, Matching)| {
            before.push((id, self.match_more(id, user, rules.clone())?));
            new_rules.push((id, rules));
            Ok(())
        };
        let mut ruled: Vec<_> = rules.into_iter().map(widen).collect();
        let changed = installed.iter().any(Result::is_ok) || !before.is_empty();
        let (removed, announced) = self.announce(removals.clone(), new_rules.clone(), changed);
        let gone = removals.iter().zip(&removed).filter(|(_, removed)| removed.is_ok()).map(|((id, _), _)| *id);
        let gone: Vec<u32> = gone.collect();
        match announced {
            Err(error) if changed => {
                self.undo(&installed, before, &gone);
                refuse(&mut installed, &error);
                refuse(&mut ruled, &error);
            }
            Err(error) => {
                warn_of_rules(&error);
                self.lead(gone.clone());
            }
            Ok(()) => self.match_these(new_rules),
        }
        let new = installed.iter().zip(replacing);
        let new: Vec<u32> = new.filter_map(|(id, replaces)| id.as_ref().ok().copied().filter(|_| replaces)).collect();
        if !gone.is_empty() || !new.is_empty() {
            self.settle(new, gone);
        }
        Changed { installed, ruled, removed }
    }

    /// Has a context take other packets too, on every thread: the NIC hands over what it took before, and still does. Returns which
    /// that was.
    fn match_more(&self, id: u32, user: User, rules: Matching) -> Result<Matching, InstallError> {
        let before = self.all(move |engine| engine.widen_rules(id, user, rules));
        let before = before.into_iter().collect::<Result<Vec<_>, _>>()?;
        before.into_iter().next().ok_or(InstallError::Stopped)
    }

    /// Has contexts take these packets and no others, on every thread.
    fn match_these(&self, rules: Vec<(u32, Matching)>) {
        if rules.is_empty() {
            return;
        }
        self.all(move |engine| {
            // They are there, and no table is longer than it was with more.
            rules.into_iter().for_each(|(id, rules)| drop(engine.set_rules(id, User(0), rules)));
        });
    }

    /// Links contexts in on every thread.
    fn link(&self, mut installs: Vec<Prepared>) -> Vec<Result<u32, InstallError>> {
        if installs.is_empty() {
            return Vec::new();
        }
        let mut places = self.places.borrow_mut();
        installs.iter_mut().for_each(|prepared| prepared.place = Some(places.next()));
        let (limits, count) = (self.limits, installs.len());
        let mut rest = Some(installs);
        let mut asked = Vec::new();
        for (index, thread) in self.workers.iter().enumerate() {
            let Some(mut parts) = rest.take() else { break };
            let next = self.workers.get(index + 1).map(|next| next.clusters.start);
            rest = next.map(|cluster| parts.iter_mut().map(|part| part.split_off(cluster)).collect());
            asked.push(thread.worker.begin(move |engine| {
                let linked: Vec<_> = parts.into_iter().map(|part| engine.link(part, &limits)).collect();
                (linked, engine.slots_taken())
            }));
        }
        let Some(answers) = asked.into_iter().map(Asked::wait).collect::<Option<Vec<_>>>() else {
            return (0..count).map(|_| Err(InstallError::Stopped)).collect();
        };
        let (mut linked, taken): (Vec<_>, Vec<_>) =
            answers.into_iter().map(|(linked, taken)| (linked.into_iter(), taken)).unzip();
        places.update(&taken);
        drop(places);
        let each: Vec<Vec<_>> = (0..count).map(|_| linked.iter_mut().filter_map(Iterator::next).collect()).collect();
        // One that was replaced may still be on some threads and take others' room there. From the last one on: a later one may
        // replace an earlier one.
        let mut outcomes: Vec<_> = each.into_iter().rev().map(|linked| self.all_or_none(linked)).collect();
        outcomes.reverse();
        outcomes
    }

    /// A context is linked in on all threads, or on none.
    fn all_or_none(&self, linked: Vec<Result<u32, InstallError>>) -> Result<u32, InstallError> {
        let (linked, refused): (Vec<_>, Vec<_>) = linked.into_iter().partition(Result::is_ok);
        let (id, refusal) = (linked.into_iter().next(), refused.into_iter().next());
        match (id, refusal) {
            (Some(Ok(id)), Some(refusal)) => {
                self.undo_links(vec![id]);
                refusal
            }
            (id, refusal) => refusal.or(id).unwrap_or(Err(InstallError::Stopped)),
        }
    }

    /// Has the NIC hand over the frames of all contexts but those that are about to be removed, and of some what their new `rules`
    /// say. Returns which may be removed, and whether the NIC has the rules. Nothing is done when none is removed and nothing else has
    /// `changed`.
    fn announce(
        &self,
        removals: Vec<(u32, User)>,
        rules: Vec<(u32, Matching)>,
        changed: bool,
    ) -> (Vec<Result<(), InstallError>>, Result<(), InstallError>) {
        let (count, led) = (removals.len(), self.is_led());
        let asked = self.first(move |engine| {
            let allowed: Vec<_> = removals.iter().map(|&(id, user)| engine.may_remove(id, user)).collect();
            let leaving = removals.iter().zip(&allowed).filter(|(_, allowed)| allowed.is_ok());
            let leaving: Vec<u32> = leaving.map(|((id, _), _)| *id).collect();
            let changes = changed || !leaving.is_empty();
            let routes = changes.then(|| engine.routes_after(&leaving, &rules));
            Ok((allowed, routes, led.then(|| engine.routes())))
        });
        match asked {
            Ok((allowed, None, _)) => (allowed, Ok(())),
            Ok((allowed, Some(then), now)) => (allowed, then.and_then(|then| self.steer(now, then))),
            Err(stopped) => ((0..count).map(|_| Err(InstallError::Stopped)).collect(), Err(stopped)),
        }
    }

    /// Has the NIC hand over the frames that have somewhere to go `then`. Until it does, a receiver leads to where they go `now` what
    /// the NIC goes on handing over. On this thread, since the kernel may take its time.
    fn steer(&self, now: Option<Routes>, then: Routes) -> Result<(), InstallError> {
        now.map_or(Ok(()), |now| self.follow(now))?;
        self.steering.set_rules(then.table.tests())?;
        self.follow(then)
    }

    /// Has the receiver lead frames along these routes, if there is one.
    fn follow(&self, routes: Routes) -> Result<(), InstallError> {
        match &self.receiving {
            Receiving::Each => Ok(()),
            Receiving::First => self.first(move |engine| {
                engine.lead(routes);
                Ok(())
            }),
            Receiving::Apart(receiver) => {
                receiver.ask(move |receiver| receiver.follow(routes)).ok_or(InstallError::Stopped)
            }
        }
    }

    /// The thread that does nothing but receive, if there is one.
    pub const fn receiver(&self) -> Option<&Worker<Receiver>> {
        match &self.receiving {
            Receiving::Apart(receiver) => Some(receiver),
            Receiving::Each | Receiving::First => None,
        }
    }

    /// Whether one thread receives for others.
    const fn is_led(&self) -> bool {
        !matches!(self.receiving, Receiving::Each)
    }

    /// The NIC refused the rules of contexts that were linked in, or that take other packets than `before`. Others are gone all
    /// the same.
    fn undo(&self, installed: &[Result<u32, InstallError>], before: Vec<(u32, Matching)>, gone: &[u32]) {
        // From the last one on: a later one may change what an earlier one did.
        self.all(move |engine| {
            // They were there before.
            before.into_iter().rev().for_each(|(id, rules)| drop(engine.set_rules(id, User(0), rules)));
        });
        let linked: Vec<u32> = installed.iter().rev().flatten().copied().collect();
        let yielding = linked.clone();
        self.all(move |engine| {
            // Where it was refused, it has no place.
            yielding.iter().for_each(|&id| drop(engine.give_way(id)));
        });
        self.lead(gone.to_vec());
        self.undo_links(linked);
    }

    /// Has the receiver lead frames to all contexts but some, whatever the NIC goes by.
    fn lead(&self, leaving: Vec<u32>) {
        if !self.is_led() {
            return;
        }
        if let Ok(routes) = self.first(move |engine| engine.routes_without(&leaving)) {
            // Where it has ended, all come to their end.
            let _ = self.follow(routes);
        }
    }

    fn undo_links(&self, ids: Vec<u32>) {
        self.all(move |engine| {
            // Where it was refused, there is nothing to undo.
            ids.iter().for_each(|&id| drop(engine.undo_link(id)));
        });
    }

    /// Lets contexts go: those that were removed, and with their last messages those whose places others took.
    fn settle(&self, new: Vec<u32>, gone: Vec<u32>) {
        let (new, gone): (Arc<[u32]>, Arc<[u32]>) = (new.into(), gone.into());
        let answers = self.all(move |engine| {
            // They are there: nobody else removes contexts.
            new.iter().for_each(|&id| drop(engine.retire_replaced(id)));
            let contexts: Vec<_> = gone.iter().filter_map(|&id| engine.unlink(id, User(0)).ok().flatten()).collect();
            (contexts, engine.slots_taken())
        });
        // Their memory is given back here.
        let taken: Vec<_> = answers.into_iter().map(|(_, taken)| taken).collect();
        self.places.borrow_mut().update(&taken);
    }

    /// Has the first thread do something.
    ///
    /// # Errors
    /// What it says, or [`InstallError::Stopped`].
    pub fn first<R: Send + 'static>(
        &self,
        what: impl FnOnce(&mut Engine) -> Result<R, InstallError> + Send + 'static,
    ) -> Result<R, InstallError> {
        self.workers.first().and_then(|thread| thread.worker.ask(what)).unwrap_or(Err(InstallError::Stopped))
    }

    /// What every thread says that has not ended.
    pub fn all<R: Send + 'static>(&self, what: impl FnOnce(&mut Engine) -> R + Clone + Send + 'static) -> Vec<R> {
        let asked: Vec<_> = self.workers.iter().map(|thread| thread.worker.begin(what.clone())).collect();
        asked.into_iter().filter_map(Asked::wait).collect()
    }

    /// Waits until all threads have ended, which something else brings about. The NIC is told of nothing any more. What they have done, and
    /// the first error that one of them ended with.
    pub fn finish(self) -> (Statistics, Result<(), ThreadError>) {
        // Each thread does that too, and may have been asked for rules before.
        if let Err(error) = self.steering.set_rules(&[]) {
            tracing::debug!("the NIC keeps its rules: {error}");
        }
        // All of them have frames that are to leave, whatever became of the others.
        let workers: Vec<_> = self.workers.into_iter().map(|thread| thread.worker.finish()).collect();
        let receiver = if let Receiving::Apart(receiver) = self.receiving { Some(receiver.finish()) } else { None };
        let (mut all, mut result) = (Statistics::default(), Ok(()));
        for (statistics, ended) in workers.into_iter().chain(receiver) {
            all.merge(&statistics);
            result = result.and(ended);
        }
        (all, result)
    }

    /// Whether one of the threads has come to its end.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.receiver().is_some_and(Worker::ended) || self.workers.iter().any(|thread| thread.worker.ended())
    }
}

/// Nothing has come of what seemed to be done.
fn refuse<T>(outcomes: &mut [Result<T, InstallError>], error: &InstallError) {
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.is_ok()) {
        *outcome = Err(match error {
            InstallError::Nic(error) => InstallError::Nic(error.clone()),
            _ => InstallError::Stopped,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::Places;

    #[test]
    fn a_slot_is_free_when_it_is_on_all_threads() {
        let mut places = Places::default();
        let slots =
            |places: &mut Places, count: usize| -> Vec<u32> { (0..count).map(|_| places.next().slot.0).collect() };
        assert_eq!(slots(&mut places, 3), [0, 1, 2]);
        // A context that was replaced has left one of two threads.
        places.update(&[vec![false, true, true], vec![true, true, true]]);
        assert_eq!(slots(&mut places, 1), [3]);
        places.update(&[vec![false, true], vec![false, true, false, true]]);
        assert_eq!(slots(&mut places, 3), [0, 2, 4]);
        assert_eq!(places.last, 7, "ids are never used again");
    }
}
