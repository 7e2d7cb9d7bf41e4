//! Latency from a HostDirect command to the application, by the way in which the application waits. Samples include the
//! engine's work on the packet, from its arrival on. A write to an eventfd of a thread that waits for nothing else is measured
//! beside them.
//!
//! * `lab`: an engine whose context writes to host memory and emits an event.
//! * `signal`: one sample after the other, between the thread that signals and the one that waits.
//! * `waiters`: ways to wait.
//! * `server`: gives the event ring to clients, as spind does.
//! * `python`: an application that waits in asyncio.

mod lab;
mod python;
mod server;
mod signal;
mod waiters;

use std::path::Path;
use std::sync::Arc;
use std::thread;

use libspin::Client;
use rustix::event::{EventfdFlags, eventfd};

use super::cores::{end, on_first, start};
use super::lab::Failure;
use lab::EventLab;
use server::RingServer;
use signal::Signals;

/// Way in which an application waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// An eventfd that the signalling thread writes to, in epoll: the baseline.
    BareEventfd,
    /// Reading host memory again and again.
    Memory,
    /// Sleeping on the doorbell, by libspin.
    Doorbell,
    /// libspin's eventfd, in epoll.
    Eventfd,
    /// Python's asyncio with the eventfd of the baseline.
    BareAsyncio,
    /// Python's asyncio with libspin's events.
    Asyncio,
}

impl Waiting {
    /// Ways to wait, and their names.
    pub const ALL: [(Self, &str); 6] = [
        (Self::BareEventfd, "bare-eventfd-epoll"),
        (Self::Memory, "memory-poll"),
        (Self::Doorbell, "doorbell-wait"),
        (Self::Eventfd, "eventfd-epoll"),
        (Self::BareAsyncio, "bare-eventfd-asyncio"),
        (Self::Asyncio, "asyncio"),
    ];

    /// Whether an application in Python waits.
    #[must_use]
    pub const fn needs_python(self) -> bool {
        matches!(self, Self::BareAsyncio | Self::Asyncio)
    }
}

/// Measures nanoseconds of `samples` samples, with handlers from the folder `images`. `python` is an interpreter that can import libspin.
///
/// # Errors
/// The image cannot be read, the engine fails, or a signal is lost.
pub fn measure(waiting: Waiting, samples: u32, images: &Path, python: &Path) -> Result<Vec<f64>, Failure> {
    on_first(|| {
        let lab = EventLab::new(images)?;
        let signals = Signals::new(samples);
        match waiting {
            Waiting::BareEventfd => {
                let bare = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                between(&signals, || waiters::write(&bare), |signals| waiters::epoll_bare(signals, &bare))
            }
            Waiting::BareAsyncio => {
                let bare = eventfd(0, EventfdFlags::NONBLOCK)?;
                python::Application::with_eventfd(python, &bare)?.measure(&signals, || waiters::write(&bare))
            }
            Waiting::Asyncio => {
                let server = RingServer::start(lab.ring()?)?;
                let application = python::Application::with_events(python, server.socket())?;
                application.measure(&signals, lab.deliveries())
            }
            Waiting::Memory => {
                let host = lab.host()?;
                between(&signals, lab.deliveries(), move |signals| waiters::memory(signals, &host))
            }
            Waiting::Doorbell | Waiting::Eventfd => {
                let server = RingServer::start(lab.ring()?)?;
                let events = Client::connect(server.socket())?.events(1)?;
                let wait = if waiting == Waiting::Doorbell { waiters::doorbell } else { waiters::epoll };
                between(&signals, lab.deliveries(), move |signals| wait(signals, events))
            }
        }
    })
}

/// Signals on this thread to a thread on the second core, which waits. Returns the nanoseconds between.
fn between(
    signals: &Arc<Signals>,
    signal: impl FnMut() -> Result<(), Failure>,
    wait: impl FnOnce(&Signals) -> Result<(), Failure> + Send,
) -> Result<Vec<f64>, Failure> {
    thread::scope(|scope| {
        let waiting = signals.clone();
        let waiter = start(scope, 1, move || wait(&waiting));
        let times = signals.send(signal);
        end(waiter)?;
        times
    })
}
