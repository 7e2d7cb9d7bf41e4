//! Event rings.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libspin::{Direction, Error, EventFd, What};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::connection::SIGNAL_INTERVAL;
use crate::errors::exception;

/// A context's event ring.
#[pyclass(frozen, module = "libspin._libspin")]
pub struct Events(Mutex<Ring>);

struct Ring {
    events: libspin::Events,
    /// `None`: nobody asked for it.
    descriptor: Option<EventFd>,
}

impl Ring {
    /// Returns the next event. The descriptor stays readable until there is none.
    fn next(&mut self) -> Option<libspin::Event> {
        self.events.next().or_else(|| {
            self.descriptor.as_ref()?.clear();
            // An event may have arrived before that.
            self.events.next()
        })
    }

    fn fileno(&mut self) -> Result<RawFd, Error> {
        let descriptor = match self.descriptor.take() {
            Some(descriptor) => descriptor,
            None => self.events.eventfd()?,
        };
        Ok(self.descriptor.insert(descriptor).as_raw_fd())
    }
}

impl Events {
    pub fn new(events: libspin::Events) -> Self {
        Self(Mutex::new(Ring { events, descriptor: None }))
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Events {
    /// Returns the next unread event, if there is one.
    fn poll(&self, py: Python<'_>) -> Option<Event> {
        py.detach(|| self.lock().next()).map(Event::from)
    }

    /// Sleeps until an event can be read, at most for a number of seconds. Returns whether there is one.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let longest = timeout.map(Duration::try_from_secs_f64).transpose();
        let longest = longest.map_err(|error| PyValueError::new_err(format!("timeout: {error}")))?;
        let begun = Instant::now();
        loop {
            let left = longest.map_or(SIGNAL_INTERVAL, |longest| longest.saturating_sub(begun.elapsed()));
            if py.detach(|| self.lock().events.wait(left.min(SIGNAL_INTERVAL))) {
                return Ok(true);
            }
            py.check_signals()?;
            if left.is_zero() {
                return Ok(false);
            }
        }
    }

    /// Returns a descriptor that is readable while there are unread events.
    fn fileno(&self, py: Python<'_>) -> PyResult<RawFd> {
        py.detach(|| self.lock().fileno()).map_err(|error| exception(&error))
    }

    /// Number of events that were overwritten before they were read.
    #[getter]
    fn lost(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.lock().events.lost())
    }
}

/// An event. Attributes that its kind does not have are None.
#[pyclass(frozen, get_all, eq, module = "libspin._libspin")]
#[derive(PartialEq, Eq)]
pub struct Event {
    /// "fault", "timed-out", "evicted", "killed", or "copied".
    kind: &'static str,
    /// Queue of the message. Handlers know it as the flow id.
    flow: u32,
    /// Of a fault: stage of the handler, "header", "payload" or "completion".
    stage: Option<&'static str>,
    /// Of a fault: code of the cause.
    cause: Option<u32>,
    /// Of a fault: address of the instruction.
    pc: Option<u32>,
    /// Of a fault: data address, or a value that depends on the cause.
    address: Option<u32>,
    /// Of a copy: "to-host" or "from-host".
    direction: Option<&'static str>,
    /// Of a copy: host address of the first byte.
    host: Option<u64>,
    /// Of a copy: number of bytes.
    length: Option<u32>,
    /// Description.
    text: String,
}

#[pymethods]
impl Event {
    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("<Event {}: {}>", self.kind, self.text)
    }
}

impl From<libspin::Event> for Event {
    fn from(event: libspin::Event) -> Self {
        let none = Self {
            kind: "",
            flow: event.flow,
            stage: None,
            cause: None,
            pc: None,
            address: None,
            direction: None,
            host: None,
            length: None,
            text: event.to_string(),
        };
        match event.what {
            What::Fault { stage, fault } => Self {
                kind: "fault",
                stage: usize::try_from(stage).ok().and_then(|stage| STAGES.get(stage)).copied(),
                cause: Some(fault.cause.code()),
                pc: Some(fault.pc),
                address: Some(fault.address),
                ..none
            },
            What::TimedOut => Self { kind: "timed-out", ..none },
            What::Evicted => Self { kind: "evicted", ..none },
            What::Killed => Self { kind: "killed", ..none },
            What::Copied { direction, host, length } => Self {
                kind: "copied",
                direction: Some(if direction == Direction::ToHost { "to-host" } else { "from-host" }),
                host: Some(host),
                length: Some(length),
                ..none
            },
        }
    }
}

const STAGES: [&str; 3] = ["header", "payload", "completion"];
