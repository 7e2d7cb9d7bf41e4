//! Metrics for Prometheus: `GET /metrics` over TCP or a Unix socket, on a separate thread.
//!
//! * `http`: the part of HTTP that serving one page needs.
//! * `client`: one connection.
//! * `exposition`: counters and histograms as text.
//!
//! One thread serves all connections and never blocks on one of them. The control thread provides the values, as for `spinctl stats`, at
//! most once every `STATS_INTERVAL`. A client that asks meanwhile gets the next values. The cost for packet processing is therefore
//! bounded, whatever the number and speed of clients.

mod client;
mod exposition;
mod http;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::control::endpoint::Listener;
use crate::control::server::ControlHandle;
use client::Client;
use http::Status;

/// Maximum number of connections. A further one closes the oldest that does not wait for values.
const MAX_CLIENTS: usize = 64;
/// Shortest time between two requests for values.
const STATS_INTERVAL: Duration = Duration::from_millis(50);
/// Pause after a connection could not be accepted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves `listener` with the values of `control`, as long as the process lives.
///
/// # Errors
/// When the system gives no thread.
pub fn start(listener: Listener, control: ControlHandle) -> std::io::Result<()> {
    let mut service = Service { listener, control, clients: Vec::new(), asked: None };
    thread::Builder::new().name("metrics".into()).spawn(move || service.run()).map(drop)
}

struct Service {
    listener: Listener,
    control: ControlHandle,
    /// Clients in the order of their arrival.
    clients: Vec<Client>,
    /// Time of the last request for values.
    asked: Option<Instant>,
}

impl Service {
    fn run(&mut self) {
        while let Ok(listening) = self.poll() {
            if listening {
                self.accept();
            }
        }
        tracing::error!("metrics are not served any more: the kernel refuses to wait for connections");
    }

    /// Waits for an event and handles it. Returns whether there is a new connection to accept.
    fn poll(&mut self) -> Result<bool, Errno> {
        let mut polled = vec![PollFd::new(&self.listener, PollFlags::IN)];
        polled.extend(self.clients.iter().map(|client| PollFd::new(client, client.interest())));
        match poll(&mut polled, self.longest_wait().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let ready: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
        for (client, ready) in self.clients.iter_mut().zip(&ready[1..]) {
            client.progress(*ready);
        }
        self.answer();
        let now = Instant::now();
        self.clients.retain(|client| client.is_open(now));
        Ok(!ready[0].is_empty())
    }

    /// Time until the next deadline of a client, or until values may be asked for.
    fn longest_wait(&self) -> Option<Timespec> {
        let deadlines = self.clients.iter().map(Client::deadline);
        let now = Instant::now();
        let next = deadlines.chain(self.due(now)).min()?;
        Timespec::try_from(next.saturating_duration_since(now)).ok()
    }

    /// Time at which to request values, if a client waits for them `now`.
    fn due(&self, now: Instant) -> Option<Instant> {
        let waiting = self.clients.iter().any(Client::is_waiting);
        waiting.then(|| self.asked.map_or(now, |asked| asked + STATS_INTERVAL))
    }

    /// Requests values when they are due, and answers all clients that wait for them.
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
        self.clients.iter_mut().filter(|client| client.is_waiting()).for_each(|client| client.answer(answer.clone()));
    }

    fn accept(&mut self) {
        match self.listener.accept() {
            Ok(socket) => {
                if self.clients.len() == MAX_CLIENTS {
                    let idle = self.clients.iter().position(|client| !client.is_waiting()).unwrap_or(0);
                    self.clients.remove(idle);
                }
                self.clients.push(Client::new(socket));
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // Most likely no descriptor is free. Open connections end by their deadlines.
            Err(_) => thread::sleep(ACCEPT_RETRY_DELAY),
        }
    }
}
