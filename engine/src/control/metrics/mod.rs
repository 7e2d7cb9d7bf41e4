//! Metrics for Prometheus: `GET /metrics` over TCP or a Unix socket, on a thread of its own.
//!
//! * `http`: the little of HTTP that this takes, within bounds.
//! * `client`: one connection, from its first byte to its last.
//! * `exposition`: counters and histograms as text.
//!
//! One thread serves all connections and never waits for any of them. Values come from the control thread, as those of
//! `spinctl stats` do, and not more often than every `PAUSE`: whoever asks meanwhile is answered with the next ones. So
//! clients, however many and however slow, cost packets nothing but that.

mod client;
mod exposition;
mod http;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::control::endpoint::Listener;
use crate::control::server::Control;
use client::Client;
use http::Status;

/// Connections at a time; the one that has dawdled longest gives way to another.
const MAX_CLIENTS: usize = 64;
/// Time between two requests for values.
const PAUSE: Duration = Duration::from_millis(50);
/// Pause after a connection could not be accepted.
const BREATHER: Duration = Duration::from_millis(100);

/// Serves `listener` with what `control` is told, as long as the process lives.
///
/// # Errors
/// When there is no thread to be had.
pub fn start(listener: Listener, control: Control) -> std::io::Result<()> {
    let mut service = Service { listener, control, clients: Vec::new(), asked: None };
    thread::Builder::new().name("metrics".into()).spawn(move || service.run()).map(drop)
}

struct Service {
    listener: Listener,
    control: Control,
    /// In the order in which they came.
    clients: Vec<Client>,
    /// When values were asked for last.
    asked: Option<Instant>,
}

impl Service {
    fn run(&mut self) {
        while let Ok(listening) = self.turn() {
            if listening {
                self.accept();
            }
        }
        tracing::error!("metrics are not served any more: the kernel refuses to wait for connections");
    }

    /// Waits until there is something to do, and does it. Returns whether somebody wants to connect.
    fn turn(&mut self) -> Result<bool, Errno> {
        let mut polled = vec![PollFd::new(&self.listener, PollFlags::IN)];
        polled.extend(self.clients.iter().map(|client| PollFd::new(client, client.interest())));
        match poll(&mut polled, self.longest_wait().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let ready: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
        for (client, ready) in self.clients.iter_mut().zip(&ready[1..]) {
            client.go_on(*ready);
        }
        self.answer();
        let now = Instant::now();
        self.clients.retain(|client| client.lives(now));
        Ok(!ready[0].is_empty())
    }

    /// Until the next deadline of a client, or values may be asked for.
    fn longest_wait(&self) -> Option<Timespec> {
        let deadlines = self.clients.iter().map(Client::deadline);
        let now = Instant::now();
        let next = deadlines.chain(self.due(now)).min()?;
        Timespec::try_from(next.saturating_duration_since(now)).ok()
    }

    /// When to ask for values, if a client waits for them `now`.
    fn due(&self, now: Instant) -> Option<Instant> {
        let waiting = self.clients.iter().any(Client::waits);
        waiting.then(|| self.asked.map_or(now, |asked| asked + PAUSE))
    }

    /// Asks for values when it is time to, and answers all that wait for them.
    fn answer(&mut self) {
        let now = Instant::now();
        if self.due(now).is_none_or(|due| due > now) {
            return;
        }
        self.asked = Some(now);
        let answer: Arc<[u8]> = match self.control.stats() {
            Ok(stats) => http::response(Status::Ok, &exposition::text(&stats)).into(),
            Err(_) => http::response(Status::Unavailable, "spind is stopping\n").into(),
        };
        self.clients.iter_mut().filter(|client| client.waits()).for_each(|client| client.answer(answer.clone()));
    }

    fn accept(&mut self) {
        match self.listener.accept() {
            Ok(socket) => {
                if self.clients.len() == MAX_CLIENTS {
                    let idle = self.clients.iter().position(|client| !client.waits()).unwrap_or(0);
                    self.clients.remove(idle);
                }
                self.clients.push(Client::new(socket));
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // Out of descriptors, most likely: those that are open end in time.
            Err(_) => thread::sleep(BREATHER),
        }
    }
}
