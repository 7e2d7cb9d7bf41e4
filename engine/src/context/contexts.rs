//! The contexts of a worker, by slot, and the routes that lead to them.

use std::sync::Arc;

use spin_abi::control::{ContextInfo, Full};
use spin_matcher::Table;
use spin_matcher::table::CompiledEntry;
use spin_shm::Region;

use crate::context::Context;
use crate::ingress::rx_batch::{RoutingTable, RxBatch};
use crate::install::{ContextHandle, Home, InstallError, MatchSpec, User};
use crate::sched::scheduler::MOST_WEIGHT;
use crate::sched::weights::{Part, WeightSums};
use crate::settings::Limits;
use spin_pspin::host_memory::HostMemory;
use spin_pspin::ids::Slot;

/// All contexts of a worker. Those in `routes` are installed and receive frames. Others drain or were rolled back.
pub(crate) struct Contexts {
    /// Contexts by slot.
    pub(crate) list: Vec<Option<Context>>,
    /// Routes to the installed contexts, in order of priority, which is the order of installation.
    pub(crate) routes: RoutingTable,
    /// The id of the context installed last.
    pub(crate) next_id: u32,
    /// The number of contexts on this worker, installed or not.
    pub(crate) linked: u32,
    /// The number of contexts that are draining.
    pub(crate) draining: u32,
    /// The number of contexts whose installation was rolled back: see [`crate::context::Replacement::falls_back_to`].
    pub(crate) rolled_back: u32,
    /// The number of contexts whose messages may time out.
    pub(crate) timeouts: u32,
    /// Whether packets of a batch may be processed in another order than they arrived in.
    pub(crate) reorders: bool,
    /// Whether some context's tasks may run on other threads.
    pub(crate) may_overflow: bool,
    /// Whether some context that runs here stalls reception when it has no room (`--full wait`).
    pub(crate) stalls: bool,
    /// Whether some context of any worker does.
    pub(crate) any_waits: bool,
}

impl Default for Contexts {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            routes: RoutingTable::default(),
            next_id: 0,
            linked: 0,
            draining: 0,
            rolled_back: 0,
            timeouts: 0,
            reorders: true,
            may_overflow: false,
            stalls: false,
            any_waits: false,
        }
    }
}

impl Contexts {
    /// The context in a slot. A context that matched a packet or has messages exists: removal clears both first.
    #[inline]
    pub(crate) fn get(&mut self, slot: Slot) -> &mut Context {
        let Some(context) = &mut self.list[slot.0 as usize] else { unreachable!("{slot:?} is installed") };
        context
    }

    /// Whether the context with this id is in the slot. Slots are reused.
    pub(crate) fn is_current(&self, slot: Slot, id: u32) -> bool {
        self.list.get(slot.0 as usize).and_then(Option::as_ref).is_some_and(|context| context.id == id)
    }

    /// Whether there is a context in a slot that runs on this worker.
    pub(crate) fn runs_here(&self, slot: Slot) -> bool {
        self.list.get(slot.0 as usize).and_then(Option::as_ref).is_some_and(Context::runs_here)
    }

    /// Whether several contexts share the thread's time.
    #[inline]
    pub(crate) const fn is_shared(&self) -> bool {
        self.linked > 1
    }

    /// The installed contexts, in order of priority.
    pub(crate) fn installed(&self) -> impl Iterator<Item = &Context> {
        self.routes.slots.iter().filter_map(|slot| self.list.get(slot.0 as usize)?.as_ref())
    }

    /// The routing table's entries of the installed contexts.
    pub(crate) fn entries(&self) -> Vec<Arc<CompiledEntry>> {
        self.installed().map(|context| context.matching.entry.clone()).collect()
    }

    /// The users of the installed contexts, in the order of [`entries`](Self::entries).
    pub(crate) fn owners(&self) -> Vec<u32> {
        self.installed().map(|context| context.weights.uid).collect()
    }

    /// Checks that a user other than root may have another context. Draining contexts count too.
    pub(crate) fn check_count(&self, uid: u32, limits: &Limits) -> Result<(), InstallError> {
        let most = limits.user_contexts.unwrap_or(limits.contexts.div_ceil(2));
        let own = self.list.iter().flatten().filter(|context| context.weights.uid == uid);
        if own.count() >= most { Err(InstallError::UserContexts { uid, most }) } else { Ok(()) }
    }

    /// The slot of an installed context that a user may change.
    pub(crate) fn find(&self, id: u32, user: User) -> Result<Slot, InstallError> {
        let found = self.routes.slots.iter().zip(self.installed()).find(|(_, context)| context.id == id);
        let (&slot, context) = found.ok_or(InstallError::NoSuchContext(id))?;
        if user.may_change(context.weights.uid) {
            Ok(slot)
        } else {
            Err(InstallError::NotYours { id, owner: context.weights.uid })
        }
    }

    /// The slot of a context, installed or not.
    pub(crate) fn slot_with(&self, id: u32) -> Option<Slot> {
        (0..).map(Slot).take(self.list.len()).find(|&slot| self.is_current(slot, id))
    }

    /// The slot of a handle, or the first free one. Makes room for it.
    pub(crate) fn slot_of(&mut self, place: Option<ContextHandle>) -> Slot {
        let free = || self.list.iter().position(Option::is_none).unwrap_or(self.list.len());
        let index = place.map_or_else(free, |place| place.slot.0 as usize);
        self.list.resize_with(self.list.len().max(index + 1), || None);
        #[allow(clippy::cast_possible_truncation, reason = "bounded by limits.contexts and the table's tests")]
        Slot(index as u32)
    }

    /// Whether a slot has a context, by slot.
    pub(crate) fn slots_taken(&self) -> Vec<bool> {
        self.list.iter().map(Option::is_some).collect()
    }

    /// The context that one replaces, and transitively those replaced before, the latest first.
    pub(crate) fn replaced_by(&self, slot: Slot) -> impl Iterator<Item = Slot> + '_ {
        let predecessor =
            |slot: Slot| self.list[slot.0 as usize].as_ref().and_then(|context| context.replacement.predecessor);
        std::iter::successors(predecessor(slot), move |&slot| predecessor(slot))
    }

    /// The latest of the replaced contexts that neither drains nor was rolled back.
    pub(crate) fn to_be_replaced(&self, new: Slot) -> Option<Slot> {
        let stays = |context: &Context| !context.replacement.draining && context.replacement.falls_back_to.is_none();
        self.replaced_by(new).find(|slot| self.list[slot.0 as usize].as_ref().is_some_and(stays))
    }

    /// The context to which packets of a rolled-back context belong. The slot itself if the context was not rolled back.
    pub(crate) fn owner_of(&self, slot: Slot) -> Slot {
        let falls_back_to = |slot: Slot| self.list.get(slot.0 as usize)?.as_ref()?.replacement.falls_back_to;
        std::iter::successors(Some(slot), |&slot| falls_back_to(slot)).last().unwrap_or(slot)
    }

    /// Reroutes matched packets of rolled-back contexts.
    pub(crate) fn reroute(&self, inbound: &mut RxBatch) {
        inbound.reroute(|slot| self.owner_of(slot));
    }

    /// The routes without the contexts in `leaving`, and with new `rules` for others.
    pub(crate) fn routes_after(
        &self,
        leaving: &[u32],
        rules: &[(u32, MatchSpec)],
    ) -> Result<RoutingTable, InstallError> {
        let stays = |(entry, _): &(Arc<CompiledEntry>, Slot)| !leaving.contains(&entry.entry().context);
        let (mut entries, slots): (Vec<_>, _) =
            self.entries().into_iter().zip(self.routes.slots.iter().copied()).filter(stays).unzip();
        for (id, MatchSpec { rules, eom, .. }) in rules {
            for entry in entries.iter_mut().filter(|entry| entry.entry().context == *id) {
                *entry = Arc::new(entry.with_rules(rules.clone(), eom.clone())?);
            }
        }
        Ok(RoutingTable { table: Table::of(entries)?.into(), slots, homes: self.homes() })
    }

    /// Where the contexts run, by slot.
    pub(crate) fn homes(&self) -> Arc<[Home]> {
        let home = |context: &Option<Context>| context.as_ref().map_or(Home::ANYWHERE, |context| context.matching.home);
        self.list.iter().map(home).collect()
    }

    /// Contexts that run on this worker, installed or not.
    fn running(&self) -> impl Iterator<Item = &Context> {
        self.list.iter().flatten().filter(|context| context.runs_here())
    }

    /// Frees a slot. Returns the context that had it.
    pub(crate) fn take(&mut self, slot: Slot) -> Option<Context> {
        let context = self.list[slot.0 as usize].take()?;
        self.linked -= 1;
        self.timeouts -= u32::from(context.may_time_out());
        self.rolled_back -= u32::from(context.replacement.falls_back_to.is_some());
        for other in self.list.iter_mut().flatten() {
            if other.replacement.predecessor == Some(slot) {
                other.replacement.predecessor = context.replacement.predecessor;
            }
            if other.replacement.falls_back_to == Some(slot) {
                other.replacement.falls_back_to = Some(Slot::NOBODY);
            }
        }
        Some(context)
    }

    /// Divides the packet buffer of `hers` HERs by the weights of users and of contexts. Derives the settings that depend on all contexts'
    /// options.
    ///
    /// Batches are not reordered where order may matter. After a stall, the rest of a batch may belong to other contexts. Packets
    /// that handlers leave to the kernel keep the order of their connection, whatever the key.
    pub(crate) fn share_buffer(&mut self, hers: u32) {
        let stalls = self.running().any(|context| context.run.full == Full::Wait);
        let reorders = !stalls && !self.running().any(|context| context.run.verdicts);
        let may_overflow = self.running().any(Context::overflows);
        (self.stalls, self.reorders, self.may_overflow) = (stalls, reorders, may_overflow);
        self.any_waits = self.list.iter().flatten().any(|context| context.run.full == Full::Wait);
        let here = |context: &&Context| context.runs_here();
        let sums: WeightSums = self.installed().filter(here).map(|context| context.weights).collect();
        let of_all: WeightSums = self.installed().map(|context| context.weights).collect();
        for context in self.list.iter_mut().flatten() {
            // Packets of all contexts may arrive here and wait, so all have a part of the time.
            context.share.stall_credit.set_part(of_all.part(context.weights));
            if context.runs_here() {
                context.share.set_part(hers, sums.part(context.weights), context.run.full);
            }
        }
    }

    /// Slots and parts of the contexts that new messages may begin in.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (Slot, Part)> + '_ {
        let weights = || {
            (0..).map(Slot).zip(&self.list).filter_map(|(slot, context)| {
                let context =
                    context.as_ref().filter(|context| context.runs_here() && !context.replacement.draining)?;
                Some((slot, context.weights))
            })
        };
        let sums: WeightSums = weights().map(|(_, weights)| weights).collect();
        weights().map(move |(slot, weights)| (slot, sums.part(weights)))
    }

    /// Sets the weight of a user's share. The policy may have changed since the user's other contexts were installed.
    pub(crate) fn set_user_weight(&mut self, uid: u32, weight: u32) {
        let of_user = self.list.iter_mut().flatten().filter(|context| context.weights.uid == uid);
        of_user.for_each(|context| context.weights.user_weight = weight.clamp(1, MOST_WEIGHT));
    }

    /// Records the address at which the application mapped a context's host memory.
    pub(crate) fn map_host(&mut self, id: u32, user: User, address: u64) -> Result<(), InstallError> {
        let slot = self.find(id, user)?;
        let context = self.list[slot.0 as usize].as_mut().filter(|context| context.host.own().is_some());
        let context = context.ok_or(InstallError::NoHostMemory(id))?;
        context.host.move_own(address)?;
        context.hpus.set_host(&context.host);
        Ok(())
    }

    /// A context's host memory.
    pub(crate) fn host_of(&mut self, id: u32, user: User) -> Result<&mut HostMemory, InstallError> {
        let slot = self.find(id, user)?;
        let context = self.list[slot.0 as usize].as_mut().ok_or(InstallError::NoSuchContext(id))?;
        Ok(&mut context.host)
    }

    /// A context's event ring.
    pub(crate) fn event_ring(&self, id: u32, user: User) -> Result<Arc<Region>, InstallError> {
        let slot = self.find(id, user)?;
        let context = self.list[slot.0 as usize].as_ref().ok_or(InstallError::NoSuchContext(id))?;
        Ok(context.event_ring.region().clone())
    }

    /// A context's host memory and the address by which handlers know it.
    pub(crate) fn host_memory(&self, id: u32, user: User) -> Result<(Arc<Region>, u64), InstallError> {
        let slot = self.find(id, user)?;
        let own = self.list[slot.0 as usize].as_ref().and_then(|context| context.host.own());
        let (region, address) = own.ok_or(InstallError::NoHostMemory(id))?;
        Ok((region.clone(), address))
    }

    /// Descriptions of the installed contexts, in order of priority.
    pub(crate) fn infos(&self) -> Vec<ContextInfo> {
        self.installed().map(Context::info).collect()
    }
}
