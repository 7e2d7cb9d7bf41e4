//! Messages to the service manager, as sd_notify(3) sends them: ready, status, watchdog, reloading, stopping. spind connects to the
//! manager's socket once, because the filter of system calls refuses new sockets later.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Variable of the environment that names the manager's socket.
pub const SOCKET: &str = "NOTIFY_SOCKET";
/// Longest wait for a manager that does not read.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection to the service manager.
#[derive(Debug, Default)]
pub struct Notifier {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Connects to the manager that started this process. Without one, nothing is sent. Call this before the filter of system calls is
    /// set.
    #[must_use]
    pub fn from_environment() -> Self {
        let Some(address) = env::var_os(SOCKET) else { return Self::default() };
        let number = |name| env::var(name).ok()?.parse::<u64>().ok();
        let watches_other = number("WATCHDOG_PID").is_some_and(|watched| watched != u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|&limit| limit > 0 && !watches_other).map(Duration::from_micros);
        let socket = connect(&address);
        if let Err(error) = &socket {
            tracing::warn!("the service manager is told nothing: {SOCKET} {}: {error}", address.display());
        }
        Self { socket: socket.ok(), watchdog }
    }

    /// Interval at which the manager expects [`Notifier::alive`]: half of its limit.
    #[must_use]
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.filter(|_| self.socket.is_some()).map(|limit| limit / 2)
    }

    /// spind serves, with the configuration that it read last.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// A line that `systemctl status` shows.
    pub fn status(&self, line: &str) {
        self.send(&format!("STATUS={line}"));
    }

    /// All threads answer.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// spind reads its configuration again. [`Notifier::ready`] says that it is done.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1000));
    }

    /// spind is about to end.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    fn send(&self, message: &str) {
        let sent = self.socket.as_ref().map_or(Ok(0), |socket| socket.send(message.as_bytes()));
        if let Err(error) = sent {
            tracing::debug!("the service manager was not told {message:?}: {error}");
        }
    }
}

/// Connects to a path, or to an abstract name behind `@`.
fn connect(address: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match address.as_bytes() {
        [b'@', name @ ..] => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        _ => socket.connect(address)?,
    }
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    use std::time::Duration;

    use super::{Notifier, connect};

    #[test]
    fn an_abstract_socket_is_told_too() {
        let name = format!("spind-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let manager = UnixDatagram::bind_addr(&address).expect("a free name");
        manager.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let socket = Some(connect(format!("@{name}").as_ref()).expect("it listens"));
        Notifier { socket, watchdog: None }.status("eth0");
        let mut message = [0; 64];
        let length = manager.recv(&mut message).expect("a message");
        assert_eq!(&message[..length], b"STATUS=eth0");
        Notifier::default().ready();
    }
}
