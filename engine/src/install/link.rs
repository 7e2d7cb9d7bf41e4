//! Contexts come, change and go.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use spin_abi::control::{Full, Install};
use spin_abi::counters::Counter;
use spin_abi::events::What;
use spin_abi::map::PACKET_WINDOW;
use spin_matcher::{Rules, Table, TableEntry};
use spin_nic::affinity::drop_in_background;

use super::{HOST_ADDRESS, InstallError, Matching, Place, Prepared, User, warn_of_rules};
use crate::config::Limits;
use crate::context::{Context, HostMemory, LINES_PRINTED, Share, Slot, Texts};
use crate::counts::Counts;
use crate::descriptor::{Descriptor, News};
use crate::handover::Arrivals;
use crate::inbound::Routes;
use crate::overflow::overflows;
use crate::patience::Patience;
use crate::pipeline::{Engine, context, has_id};

/// How long an open message of a context that was replaced may wait for its next packet.
const REPLACED: Duration = Duration::from_secs(10);
/// How long they may stay open in all: a flow need not end.
const REPLACED_IN_ALL: Duration = Duration::from_secs(60);

/// What is to change when a context is linked in.
struct Planned {
    id: u32,
    entry: TableEntry,
    /// The context that it replaces.
    predecessor: Option<Slot>,
    table: Table,
    /// Those of the table before.
    slots: Vec<Slot>,
    /// Where its own goes there.
    range: Range<usize>,
}

impl Engine {
    /// Links a prepared context in as [`Engine::link`] does, tells the NIC, and returns its id: for an engine that has the NIC
    /// to itself.
    ///
    /// # Errors
    /// As there, and [`InstallError::Nic`]; nothing has changed then.
    pub fn install(&mut self, prepared: Prepared, limits: &Limits) -> Result<u32, InstallError> {
        let id = self.link(prepared, limits)?;
        if let Err(error) = self.steer(&self.routes) {
            self.undo_link(id)?;
            return Err(error);
        }
        self.retire_replaced(id)?;
        Ok(id)
    }

    /// Links a prepared context in, behind all others in priority or in place of the one that it replaces, and returns its id.
    /// The NIC does not know yet: see [`spin_nic::Queue::steering`].
    ///
    /// # Errors
    /// [`InstallError::Full`], [`InstallError::Table`], and [`InstallError::NoSuchContext`] or [`InstallError::NotYours`] of the
    /// one that it replaces; nothing has changed then.
    pub fn link(&mut self, prepared: Prepared, limits: &Limits) -> Result<u32, InstallError> {
        let planned = self.plan_link(&prepared, limits);
        let Planned { id, entry, predecessor, table, mut slots, range } = match planned {
            Ok(planned) => planned,
            Err(error) => {
                drop_in_background(prepared);
                return Err(error);
            }
        };
        self.next_id = id;
        let slot = self.slot_of(prepared.place);
        slots.splice(range, [slot]);
        self.follow(Routes { table, slots });
        self.messages.add_context(slot);
        self.mpqs.add_owner(slot.0);
        self.scheduler.add(slot.0, prepared.run.weight);
        self.timeouts += u32::from(prepared.run.message_timeout_us.is_some());
        let context = Context { predecessor, ..link(prepared, entry, self.clusters.start, &self.news) };
        self.contexts[slot.0 as usize] = Some(context);
        self.linked += 1;
        self.share_buffer();
        Ok(id)
    }

    /// What is to change when a context is linked in, if it may be.
    fn plan_link(&self, prepared: &Prepared, limits: &Limits) -> Result<Planned, InstallError> {
        // Those that were replaced and are not gone yet count too.
        if self.linked as usize >= limits.contexts {
            return Err(InstallError::Full { most: limits.contexts, ending: self.retired });
        }
        let id = prepared.place.map_or(self.next_id + 1, |place| place.id);
        let entry = TableEntry {
            context: id,
            rules: prepared.matching.rules.clone(),
            eom: prepared.matching.eom.clone(),
            key: prepared.key.clone(),
        };
        let replaced = prepared.install.replaces;
        let predecessor = replaced.map(|old| self.find(old, User(prepared.uid))).transpose()?;
        let (mut entries, slots) = (self.entries(), self.routes.slots.clone());
        let place = slots.iter().position(|&slot| Some(slot) == predecessor);
        let range = place.map_or(entries.len()..entries.len(), |place| place..place + 1);
        entries.splice(range.clone(), [entry.clone()]);
        let table = Table::new(&entries)?;
        Ok(Planned { id, entry, predecessor, table, slots, range })
    }

    /// Lets the context go that a context replaces, with its last message: all frames that are not of its open messages go
    /// elsewhere from here on.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`].
    pub fn retire_replaced(&mut self, id: u32) -> Result<(), InstallError> {
        let slot = self.find(id, User(0))?;
        // More than one, where they were replaced together.
        while let Some(old) = self.to_be_replaced(slot) {
            self.retire(old);
        }
        Ok(())
    }

    /// Lets a context go with its last message, to which no frames are led any more.
    fn retire(&mut self, slot: Slot) {
        let to_come = self.arrivals.as_ref().map_or(0, |arrivals| arrivals.len()) + self.kept_back();
        let context = context(&mut self.contexts, slot);
        context.retired = true;
        context.matched_until = self.taken_in + to_come as u64;
        // Packets that came since then would have moved it.
        context.ends_by = self.last_feedback + REPLACED_IN_ALL;
        self.timeouts += u32::from(context.message_timeout.is_none());
        context.message_timeout = Some(context.message_timeout.map_or(REPLACED, |timeout| timeout.min(REPLACED)));
        self.retired += 1;
    }

    /// The latest of the contexts that one replaces, or is to replace, that has not gone.
    fn to_be_replaced(&self, new: Slot) -> Option<Slot> {
        let stays = |context: &Context| !context.retired && context.heir.is_none();
        self.replaced_by(new).find(|slot| self.contexts[slot.0 as usize].as_ref().is_some_and(stays))
    }

    /// Frames of a context that was linked in, and that the NIC does not know, go to the one again that it was to replace, if there is
    /// one: those too that are still found to be the new one's, but for what belongs to messages that this has begun.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`].
    pub fn give_way(&mut self, id: u32) -> Result<(), InstallError> {
        let slot = self.find(id, User(0))?;
        let replaced = self.to_be_replaced(slot);
        if let Some(old) = replaced {
            // Now that one replaces it, and those that it was to replace too and that go already.
            let last = self.replaced_by(slot).take_while(|&gone| gone != old).last().unwrap_or(slot);
            let older = context(&mut self.contexts, old).predecessor.replace(slot);
            context(&mut self.contexts, last).predecessor = older;
            context(&mut self.contexts, slot).heir = Some(old);
            self.heirs += 1;
        }
        let slots = &mut self.routes.slots;
        if let Some(place) = slots.iter().position(|&other| other == slot) {
            slots.splice(place..=place, replaced);
        }
        let slots = slots.clone();
        self.follow(Routes { table: Table::new(&self.entries())?, slots });
        self.hand_down();
        self.share_buffer();
        Ok(())
    }

    /// Arrivals that were found to be of contexts that gave way are others'.
    pub(crate) fn hand_down(&mut self) {
        let Self { inbound, waiting, contexts, .. } = self;
        let heir = |slot: Slot| contexts.get(slot.0 as usize)?.as_ref()?.heir;
        let owner = |slot: Slot| std::iter::successors(Some(slot), |&slot| heir(slot)).last().unwrap_or(slot);
        inbound.readdress(owner);
        waiting.iter_mut().for_each(|arrival| arrival.slot = owner(arrival.slot));
    }

    /// Takes a context out again that the NIC does not know: at once, or with the messages that were begun by it in the place of another
    /// one, since that one's packets are not to be lost.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`].
    pub fn undo_link(&mut self, id: u32) -> Result<(), InstallError> {
        // It may have done so before.
        let _ = self.give_way(id);
        let slot = self.slot_with(id).ok_or(InstallError::NoSuchContext(id))?;
        if context(&mut self.contexts, slot).heir.is_some() {
            self.retire(slot);
        } else {
            drop_in_background(self.clear(slot));
        }
        Ok(())
    }

    /// Lets contexts go that were replaced and have no message any more, or had time enough.
    #[cold]
    pub(crate) fn end_drained(&mut self) {
        for index in 0..self.contexts.len() {
            let slot = Slot(u32::try_from(index).unwrap_or(u32::MAX));
            let matches_none = |context: &Context| context.retired && self.taken_in >= context.matched_until;
            let Some(context) = self.contexts[index].as_ref().filter(|context| matches_none(context)) else { continue };
            let is_over = self.last_feedback > context.ends_by;
            if is_over || self.messages.held(slot) == 0 && !self.has_parked(slot.0) {
                for mpq in self.messages.of_context(slot).collect::<Vec<_>>() {
                    self.tell_of_end(slot, mpq, Counter::MessagesTimedOut, What::TimedOut);
                }
                self.retired -= 1;
                drop_in_background(self.clear(slot));
            }
        }
    }

    /// Shares the packet buffer out between contexts, by weight. Batches are taken as they arrived where that may matter: what is kept
    /// back of a batch for a context that waits may become other contexts' packets, and what a handler leaves to the kernel should
    /// be in the order of its connection, whatever the key; that is one context's.
    fn share_buffer(&mut self) {
        let contexts = || self.contexts.iter().flatten();
        self.waits = contexts().any(|context| context.run.full == Full::Wait);
        self.in_any_order = !self.waits && !contexts().any(|context| context.run.verdicts);
        self.may_overflow = contexts().any(|context| overflows(&context.run));
        let weights = self.installed().map(|context| u64::from(context.run.weight)).sum();
        for context in self.contexts.iter_mut().flatten() {
            context.share = Share::new(self.hers, context.run.weight, weights, context.run.full);
        }
        if let Some(arrivals) = &self.arrivals {
            let weights = (0..).map(Slot).zip(&self.contexts);
            let weights = weights.filter_map(|(slot, context)| {
                let context = context.as_ref().filter(|context| !context.retired)?;
                Some((slot, context.run.weight))
            });
            arrivals.set_quotas(self.linked > 1 && !self.waits, weights);
        }
    }

    /// Frames go where `routes` lead from here on: those too that this thread has matched and not queued.
    fn follow(&mut self, routes: Routes) {
        self.routes = routes;
        if self.arrivals.is_none() && self.spread.is_none() {
            self.inbound.find(&self.routes, |_, _| 0);
        }
    }

    /// Where frames of all contexts go.
    #[must_use]
    pub fn routes(&self) -> Routes {
        self.routes.clone()
    }

    /// The slot for a context that is to have this place, or the first free one.
    fn slot_of(&mut self, place: Option<Place>) -> Slot {
        let free = || self.contexts.iter().position(Option::is_none).unwrap_or(self.contexts.len());
        let index = place.map_or_else(free, |place| place.slot.0 as usize);
        self.contexts.resize_with(self.contexts.len().max(index + 1), || None);
        #[allow(clippy::cast_possible_truncation, reason = "bounded by limits.contexts and the table's tests")]
        Slot(index as u32)
    }

    /// Has the NIC hand over the frames that have somewhere to go.
    fn steer(&self, routes: &Routes) -> Result<(), InstallError> {
        Ok(self.nic.steering().set_rules(routes.table.tests())?)
    }

    /// Removes a context: for an engine that has the NIC to itself.
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`]; nothing has changed then.
    pub fn remove(&mut self, id: u32, user: User) -> Result<(), InstallError> {
        self.may_remove(id, user)?;
        if let Err(error) = self.steer(&self.routes_without(&[id])?) {
            warn_of_rules(&error);
        }
        self.unlink(id, user)?;
        Ok(())
    }

    /// Unlinks a context. What its messages still hold is dropped and counted. Returns the context if it was there: giving its
    /// memory back takes time that this thread may not have.
    ///
    /// # Errors
    /// As [`Engine::remove`].
    pub fn unlink(&mut self, id: u32, user: User) -> Result<Option<Box<Context>>, InstallError> {
        let slot = self.find(id, user)?;
        self.follow(self.routes_without(&[id])?);
        Ok(self.clear(slot))
    }

    /// The slot of a context, whether or not frames are led to it.
    fn slot_with(&self, id: u32) -> Option<Slot> {
        (0..).map(Slot).take(self.contexts.len()).find(|&slot| has_id(&self.contexts, slot, id))
    }

    /// Drops what a context's messages still hold, and frees its slot.
    fn clear(&mut self, slot: Slot) -> Option<Box<Context>> {
        self.drop_arrivals(slot);
        self.abandon_parked(slot);
        let held: Vec<_> = self.messages.of_context(slot).collect();
        for mpq in held {
            let (nic, counts) = (&mut self.nic, &mut self.counts);
            self.mpqs.abandon(mpq, |packet| {
                counts.add(Counter::DropRemoved, 1);
                nic.recycle(packet.frame);
            });
            self.messages.release(mpq);
        }
        self.mpqs.forget(slot.0);
        let gone = self.contexts[slot.0 as usize].take();
        if let Some(context) = &gone {
            self.counts.merge(&context.counts);
            self.linked -= 1;
            self.timeouts -= u32::from(context.message_timeout.is_some());
            let replaced = context.predecessor;
            let mut others = self.contexts.iter_mut().flatten();
            if let Some(successor) = others.find(|other| other.predecessor == Some(slot)) {
                successor.predecessor = replaced;
            }
            self.heirs -= u32::from(context.heir.is_some());
            for other in self.contexts.iter_mut().flatten().filter(|other| other.heir == Some(slot)) {
                other.heir = Some(Slot::NOBODY);
            }
        }
        self.share_buffer();
        gone.map(Box::new)
    }

    /// Drops arrivals that were matched and not queued.
    fn drop_arrivals(&mut self, slot: Slot) {
        let handed = self.arrivals.as_mut().map(Arrivals::take_all).unwrap_or_default();
        let gone = self.inbound.weed(handed, |of| of == slot);
        let waiting = self.waiting.take_if(|arrival| arrival.slot == slot);
        for frame in waiting.map(|arrival| arrival.frame).into_iter().chain(gone) {
            self.taken_in += 1;
            self.counts.add(Counter::DropRemoved, 1);
            self.nic.recycle(frame);
        }
    }

    /// Has a context take other packets and, where all of them fit a table, those too that it took before, which are returned.
    ///
    /// # Errors
    /// As [`Engine::set_rules`].
    pub fn widen_rules(&mut self, id: u32, user: User, matching: Matching) -> Result<Matching, InstallError> {
        let slot = self.find(id, user)?;
        let before = &context(&mut self.contexts, slot).entry.rules.rules;
        let rules = Rules { rules: [&matching.rules.rules[..], before].concat() };
        match self.set_rules(id, user, Matching { rules, eom: matching.eom.clone() }) {
            Err(InstallError::Table(_)) => self.set_rules(id, user, matching),
            set => set,
        }
    }

    /// Has a context take other packets than before, and returns which those were. The NIC does not know yet: see
    /// [`spin_nic::Queue::steering`].
    ///
    /// # Errors
    /// [`InstallError::NoSuchContext`], [`InstallError::NotYours`], [`InstallError::Table`]; nothing has changed then.
    pub fn set_rules(&mut self, id: u32, user: User, matching: Matching) -> Result<Matching, InstallError> {
        let slot = self.find(id, user)?;
        let mut entries = self.entries();
        let Some(entry) = entries.iter_mut().find(|entry| entry.context == id) else {
            return Err(InstallError::NoSuchContext(id));
        };
        let Matching { rules, eom } = matching;
        let before = std::mem::replace(entry, TableEntry { context: id, rules, eom, key: entry.key.clone() });
        let entry = entry.clone();
        self.follow(Routes { table: Table::new(&entries)?, slots: self.routes.slots.clone() });
        let context = context(&mut self.contexts, slot);
        context.texts = Texts::of(&entry);
        context.entry = entry;
        Ok(Matching { rules: before.rules, eom: before.eom })
    }
}

fn link(prepared: Prepared, entry: TableEntry, cluster: u32, news: &News) -> Context {
    let handlers = prepared.image.entries.handlers;
    let Install { name, l1_bytes, .. } = prepared.install;
    let patience = Duration::from_micros(prepared.run.doorbell_us.unwrap_or(0));
    let mut context = Context {
        id: entry.context,
        name,
        uid: prepared.uid,
        texts: Texts::of(&entry),
        entry,
        image: prepared.image,
        translation: prepared.translation,
        options: prepared.options,
        handlers,
        hpus: prepared.hpus,
        host: prepared.host.map(|region| HostMemory { region, address: HOST_ADDRESS }),
        l1_bytes: l1_bytes.unwrap_or(PACKET_WINDOW) as usize,
        limits: prepared.limits,
        message_timeout: prepared.run.message_timeout_us.map(Duration::from_micros),
        // Set when it is one of several.
        share: Share { hers: 0, unquestioned: 0 },
        patience: Patience::default(),
        run: prepared.run,
        counts: Counts::default(),
        predecessor: None,
        heir: None,
        retired: false,
        matched_until: 0,
        ends_by: Duration::ZERO,
        descriptor: Descriptor::new(prepared.descriptor, cluster, patience, news),
        faults: VecDeque::new(),
        lines_left: LINES_PRINTED,
    };
    context.describe_host();
    context
}
