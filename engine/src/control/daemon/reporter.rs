//! What the daemon tells the service manager while it runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::control::config::Config;
use crate::control::notify::Notifier;
use crate::cores::WorkerGroup;

/// Shortest time between two changes of the status, so that users who change contexts do not keep the manager busy.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Reports state and liveness to the service manager.
pub struct Reporter {
    notifier: Arc<Notifier>,
    /// Interface and mode.
    serves: String,
    /// Number of contexts.
    contexts: usize,
    /// When the status may be sent again, if it has changed.
    status_due: Option<Instant>,
    status_sent: Instant,
    /// When the manager next expects a sign of life, and the interval.
    alive_due: Option<(Instant, Duration)>,
}

impl Reporter {
    /// Reports that spind serves, with a number of contexts.
    #[must_use]
    pub fn start(notifier: Arc<Notifier>, config: &Config, contexts: usize) -> Self {
        let now = Instant::now();
        let serves = format!("{}, {}", config.nic, config.mode);
        let alive_due = notifier.watchdog_interval().map(|interval| (now, interval));
        let reporter = Self { notifier, serves, contexts, status_due: None, status_sent: now, alive_due };
        reporter.send_status();
        reporter.notifier.ready();
        reporter
    }

    /// The number of contexts has changed, or another status was sent.
    pub fn change(&mut self, added: usize, removed: usize) {
        self.contexts = (self.contexts + added).saturating_sub(removed);
        self.status_due.get_or_insert(self.status_sent + STATUS_INTERVAL);
    }

    /// Time until the next report.
    #[must_use]
    pub fn wait(&self) -> Duration {
        let next = self.alive_due.map(|(due, _)| due).into_iter().chain(self.status_due).min();
        next.map_or(Duration::MAX, |due| due.saturating_duration_since(Instant::now()))
    }

    /// Sends reports that are due. A sign of life follows answers of all packet threads, and comes from the control thread.
    pub fn report(&mut self, group: &WorkerGroup) {
        let now = Instant::now();
        if self.status_due.take_if(|due| *due <= now).is_some() {
            self.status_sent = now;
            self.send_status();
        }
        if let Some((due, interval)) = &mut self.alive_due
            && *due <= now
        {
            *due = now + *interval;
            if group.all_answer() {
                self.notifier.alive();
            }
        }
    }

    /// Reports that spind is about to end.
    pub fn stop(&self) {
        self.notifier.stopping();
    }

    fn send_status(&self) {
        let plural = if self.contexts == 1 { "" } else { "s" };
        self.notifier.status(&format!("{}, {} context{plural}", self.serves, self.contexts));
    }
}
