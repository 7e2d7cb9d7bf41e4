//! An application in Python that waits in asyncio. It prints the time of each wake-up.

use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread;

use rustix::io::{FdFlags, fcntl_setfd};

use super::Failure;
use super::signal::Signals;

/// The running application. It ends when this is dropped.
pub(super) struct Application {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Application {
    /// Waits for events of a context.
    pub(super) fn with_events(python: &Path, socket: PathBuf) -> Result<Self, Failure> {
        Self::start(Command::new(python).arg(script()).arg("events").arg(socket))
    }

    /// Waits for an eventfd.
    pub(super) fn with_eventfd(python: &Path, fd: &OwnedFd) -> Result<Self, Failure> {
        fcntl_setfd(fd, FdFlags::empty())?;
        Self::start(Command::new(python).arg(script()).arg("eventfd").arg(fd.as_fd().as_raw_fd().to_string()))
    }

    fn start(command: &mut Command) -> Result<Self, Failure> {
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let stdout = child.stdout.take().ok_or("its output is piped")?;
        Ok(Self { child, lines: BufReader::new(stdout) })
    }

    /// Signals on this thread. Another thread reads what the application prints.
    pub(super) fn measure(
        mut self,
        signals: &Arc<Signals>,
        signal: impl FnMut() -> Result<(), Failure>,
    ) -> Result<Vec<f64>, Failure> {
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let read = self.read(signals);
                if read.is_err() {
                    signals.fail();
                }
                read
            });
            let times = signals.send(signal);
            reader.join().map_err(|_| "a thread panicked")??;
            times
        })
    }

    fn read(&mut self, signals: &Signals) -> Result<(), Failure> {
        let mut line = || {
            let mut line = String::new();
            match self.lines.read_line(&mut line) {
                Ok(0) => Err("the application in Python has ended".into()),
                read => read.map(|_| line).map_err(Failure::from),
            }
        };
        if line()?.trim() != "ready" {
            return Err("the application in Python is not ready".into());
        }
        signals.ready();
        for _ in 0..signals.samples {
            signals.take(line()?.trim().parse()?);
        }
        Ok(())
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("events/wait.py")
}
