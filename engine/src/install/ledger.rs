//! The bill: memory that each user's contexts and requests take, charged before it is allocated.
//!
//! A charge is the most that the memory can grow to, although the kernel gives pages only as they are written. Thus the sum of all
//! charges bounds what spind takes, and a user is refused before the kernel has to end spind.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use spin_abi::control::{Bill, BillKind};

/// Reason why memory is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverBudget {
    /// What the memory is for.
    kind: BillKind,
    /// Bytes requested.
    asked: u64,
    /// Bytes that are left.
    left: u64,
    /// The limit, and the setting that changes it.
    limit: (u64, &'static str),
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, asked, left, limit: (limit, setting) } = self;
        write!(
            f,
            "{kind} of {asked} bytes: {left} are left of {limit} ({setting}); `spinctl list --users` shows the bill"
        )
    }
}

impl std::error::Error for OverBudget {}

/// Memory by user.
#[derive(Debug)]
pub struct Ledger {
    /// Bytes for all users together.
    total: u64,
    /// Bytes for each user but root.
    each: u64,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    bills: HashMap<u32, Bill>,
    /// Charges of things that several contexts of a user share, by user and address.
    shared: HashMap<(u32, usize), Weak<Charge>>,
}

impl Entries {
    fn total(&self) -> u64 {
        self.bills.values().map(Bill::total).sum()
    }
}

impl Default for Ledger {
    /// A ledger without limits.
    fn default() -> Self {
        Self::new(u64::MAX, u64::MAX)
    }
}

impl Ledger {
    /// A ledger with limits in bytes: for all users together, and for each user but root.
    #[must_use]
    pub fn new(total: u64, each: u64) -> Self {
        Self { total, each, entries: Mutex::default() }
    }

    /// Charges memory to a user, until the charge is dropped.
    ///
    /// # Errors
    /// [`OverBudget`]. Nothing is charged then.
    pub fn charge(self: &Arc<Self>, uid: u32, kind: BillKind, bytes: u64) -> Result<Charge, OverBudget> {
        let mut entries = self.lock();
        let of_all = (self.total.saturating_sub(entries.total()), (self.total, "limits.memory"));
        let bill = entries.bills.entry(uid).or_default();
        let each = if uid == 0 { u64::MAX } else { self.each };
        let of_user = (each.saturating_sub(bill.total()), (each, "limits.user_memory"));
        let (left, limit) = if of_user.0 < of_all.0 { of_user } else { of_all };
        if bytes > left {
            return Err(OverBudget { kind, asked: bytes, left, limit });
        }
        *bill.of(kind) += bytes;
        Ok(Charge { ledger: self.clone(), uid, kind, bytes })
    }

    /// Charges something that several contexts of a user share. It is charged once to each user, and identified by its address, which
    /// is its own while a context has it.
    ///
    /// # Errors
    /// [`OverBudget`].
    pub fn charge_shared<T>(
        self: &Arc<Self>,
        uid: u32,
        kind: BillKind,
        thing: &Arc<T>,
        bytes: u64,
    ) -> Result<Arc<Charge>, OverBudget> {
        let key = (uid, Arc::as_ptr(thing).addr());
        let known = self.lock().shared.get(&key).and_then(Weak::upgrade);
        if let Some(known) = known {
            return Ok(known);
        }
        // Two contexts that are prepared at one time may be charged for it both, never less.
        let charge = Arc::new(self.charge(uid, kind, bytes)?);
        let mut entries = self.lock();
        entries.shared.retain(|_, charge| charge.strong_count() > 0);
        entries.shared.insert(key, Arc::downgrade(&charge));
        Ok(charge)
    }

    /// The bills of all users who have one, by uid.
    #[must_use]
    pub fn bills(&self) -> Vec<(u32, Bill)> {
        let entries = self.lock();
        let charged = entries.bills.iter().filter(|(_, bill)| bill.total() > 0);
        let mut bills: Vec<_> = charged.map(|(uid, bill)| (*uid, *bill)).collect();
        bills.sort_unstable_by_key(|(uid, _)| *uid);
        bills
    }

    /// Limits in bytes: for all users together, and for each user but root.
    #[must_use]
    pub const fn limits(&self) -> [u64; 2] {
        [self.total, self.each]
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        // The sums are consistent after every step, even if a thread panics.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory that is charged to a user until this is dropped.
#[derive(Debug)]
pub struct Charge {
    ledger: Arc<Ledger>,
    uid: u32,
    kind: BillKind,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut entries = self.ledger.lock();
        if let Some(bill) = entries.bills.get_mut(&self.uid) {
            *bill.of(self.kind) -= self.bytes;
            if bill.total() == 0 {
                entries.bills.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spin_abi::control::BillKind;

    use super::Ledger;

    #[test]
    fn users_are_limited_each_and_together_and_root_only_together() {
        let ledger = Arc::new(Ledger::new(1000, 400));
        let charge = |uid, bytes| ledger.charge(uid, BillKind::HostMemory, bytes);
        let first = charge(1, 400).expect("within the limit");
        let refused = charge(1, 1).expect_err("over it").to_string();
        assert!(refused.starts_with("host memory of 1 bytes: 0 are left of 400 (limits.user_memory)"), "{refused}");
        let root = charge(0, 500).expect("root has no limit of its own");
        let refused = charge(2, 101).expect_err("over that of all").to_string();
        assert!(refused.starts_with("host memory of 101 bytes: 100 are left of 1000 (limits.memory)"), "{refused}");
        drop(first);
        let images = ledger.charge(2, BillKind::Images, 300).expect("there is room again");
        let shown: Vec<_> = ledger.bills().iter().map(|(uid, bill)| (*uid, bill.host_memory, bill.images)).collect();
        assert_eq!(shown, [(0, 500, 0), (2, 0, 300)]);
        drop((root, images));
        assert!(ledger.bills().is_empty());
    }

    #[test]
    fn what_contexts_of_a_user_share_is_charged_once_to_each_user() {
        let ledger = Arc::new(Ledger::default());
        let thing = Arc::new(7);
        let charge = |uid| ledger.charge_shared(uid, BillKind::Translations, &thing, 10).expect("no limit");
        let charges = [charge(1), charge(1), charge(2)];
        let sums = || ledger.bills().iter().map(|(uid, bill)| (*uid, bill.total())).collect::<Vec<_>>();
        assert_eq!(sums(), [(1, 10), (2, 10)]);
        let [first, second, other] = charges;
        drop(first);
        assert_eq!(sums(), [(1, 10), (2, 10)]);
        drop((second, other));
        assert!(sums().is_empty());
        drop(charge(1));
        assert!(sums().is_empty());
    }
}
