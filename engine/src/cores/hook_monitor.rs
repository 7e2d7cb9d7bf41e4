//! Looks after programs in the XDP hook: divides the processors between users, and reports faults.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::WorkerGroup;
use super::hook_shares::allowances;
use super::hooks::{Hooks, NewFaults};
use crate::hook::CHARGE_PER_MICROSECOND;
use crate::worker::hook_reports::{UserActivity, record_hook_faults, user_activity};

/// Time between two divisions while programs run.
const PERIOD: Duration = Duration::from_millis(10);
/// Time between two looks for commands. Handlers without host memory have none.
const COMMAND_PERIOD: Duration = Duration::from_millis(1);
/// Time between two divisions while none runs.
const IDLE_PERIOD: Duration = Duration::from_millis(100);

/// When it last looked, and what it saw.
#[derive(Debug)]
pub struct HookMonitor {
    last: Instant,
    period: Duration,
    /// When it last looked for commands.
    last_commands: Instant,
    /// Packets of users in user space.
    users: BTreeMap<u32, UserActivity>,
}

impl Default for HookMonitor {
    fn default() -> Self {
        let now = Instant::now();
        Self { last: now, period: PERIOD, last_commands: now, users: BTreeMap::new() }
    }
}

impl HookMonitor {
    /// Time until it has to look again. `None` without programs.
    #[must_use]
    pub fn wait(&self, hooks: &Hooks) -> Option<Duration> {
        let commands = hooks.have_queues().then(|| COMMAND_PERIOD.saturating_sub(self.last_commands.elapsed()));
        let division = self.until_division(hooks)?;
        Some(commands.map_or(division, |commands| commands.min(division)))
    }

    fn until_division(&self, hooks: &Hooks) -> Option<Duration> {
        (!hooks.is_empty()).then(|| self.period.saturating_sub(self.last.elapsed()))
    }

    /// Looks, if the time has come.
    pub fn tend(&mut self, group: &WorkerGroup) {
        if self.last_commands.elapsed() >= COMMAND_PERIOD {
            self.last_commands = Instant::now();
            group.make_hook_commands();
        }
        if self.until_division(&group.hooks) != Some(Duration::ZERO) {
            return;
        }
        let elapsed = self.last.elapsed().min(IDLE_PERIOD);
        self.last = Instant::now();
        let charges = group.hooks.take_charges();
        let runs = charges.iter().flatten().any(|charge| charge.charged > 0);
        self.period = if runs { PERIOD } else { IDLE_PERIOD };
        if runs {
            let active = self.active_users(group);
            let weight = |uid| self.users.get(&uid).map_or(1, |user| user.weight);
            let micros = u64::try_from(self.period.max(elapsed).as_micros()).unwrap_or(u64::MAX);
            let capacity = micros.saturating_mul(CHARGE_PER_MICROSECOND);
            let given: Vec<_> = charges.iter().map(|of| allowances(of, &active, weight, capacity)).collect();
            group.hooks.allow(&given);
        }
        report_faults(group);
    }

    /// Users whose contexts have had packets in user space since the last time.
    fn active_users(&mut self, group: &WorkerGroup) -> BTreeSet<u32> {
        let mut users = BTreeMap::<u32, UserActivity>::new();
        for (uid, UserActivity { weight, matched }) in group.all(|engine| user_activity(engine)).into_iter().flatten() {
            let user = users.entry(uid).or_default();
            user.weight = weight;
            user.matched += matched;
        }
        let before = |uid: &u32| self.users.get(uid).map_or(0, |user| user.matched);
        let active = users.iter().filter(|(uid, user)| user.matched != before(uid)).map(|(uid, _)| *uid).collect();
        self.users = users;
        active
    }
}

/// Has new faults recorded, each on a thread that runs the context.
fn report_faults(group: &WorkerGroup) {
    for NewFaults { context, faults, count } in group.hooks.take_faults() {
        let worker = group.worker_of(context);
        if worker.ask(move |engine| record_hook_faults(engine, context, &faults, count)).is_none() {
            return;
        }
    }
}
