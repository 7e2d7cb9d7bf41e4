//! Starting the loader process, and asking it.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use spin_abi::rules::RuleSet;
use spin_matcher::rule::Transport;
use spin_nic::{FlowSteering, NicError};
use spin_pspin::hpu::send_rights::HostAddresses;
use spin_shm::channel;

use super::ARGUMENT;
use super::message::{Reply, Request};
use crate::control::host::port_socket::judge;
use crate::control::notify;
use crate::control::socket_file::{RemoveSocket, SocketPath};
use crate::install::ports::{HoldPort, Port, PortError};

/// The loader process of this spind. It ends when this is dropped, or the process ends.
#[derive(Debug)]
pub struct LoaderProcess {
    /// One request at a time.
    stream: Mutex<UnixStream>,
    child: Option<Child>,
}

impl LoaderProcess {
    /// Starts it, with the privileges of this process.
    ///
    /// # Errors
    /// The system starts no process.
    pub fn start() -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        // In a group of its own, a terminal's ^C does not end it before spind.
        // The service manager hears from the main process alone.
        command.env_remove(notify::SOCKET);
        command.arg(ARGUMENT).stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).process_group(0);
        Ok(Self { stream: Mutex::new(ours), child: Some(command.spawn()?) })
    }

    /// A thread of this process that answers.
    #[cfg(test)]
    pub(crate) fn on_thread() -> Self {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        std::thread::spawn(move || super::serve::serve(&theirs));
        Self { stream: Mutex::new(ours), child: None }
    }

    fn ask(&self, request: &Request) -> io::Result<(Reply, Option<OwnedFd>)> {
        self.ask_with(request, None)
    }

    fn ask_with(&self, request: &Request, fd: Option<BorrowedFd<'_>>) -> io::Result<(Reply, Option<OwnedFd>)> {
        // After an error in the middle of a message the loader process is gone, which the next request notices.
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |error: channel::ChannelError| io::Error::other(format!("the loader process: {error}"));
        channel::send(&stream, request, &[], fd).map_err(failed)?;
        let reply = channel::receive::<Reply>(&stream).map_err(failed)?;
        let reply = reply.ok_or_else(|| io::Error::other("the loader process has ended"))?;
        match reply.body {
            Reply::Refused { errno: Some(errno), .. } => Err(io::Error::from_raw_os_error(errno)),
            Reply::Refused { reason, .. } => Err(io::Error::other(reason)),
            body => Ok((body, reply.fd)),
        }
    }

    /// Gives it the maps of rules of an XDP program, and the map of the programs that this one calls. From then on it sets the rules and the
    /// programs.
    ///
    /// # Errors
    /// The loader process has ended.
    pub fn take_rules(&self, [tables, keys]: [BorrowedFd<'_>; 2], programs: BorrowedFd<'_>) -> io::Result<()> {
        self.ask_with(&Request::TableMap, Some(tables))?;
        self.ask_with(&Request::KeyMap, Some(keys))?;
        self.ask_with(&Request::HookMap, Some(programs)).map(drop)
    }

    /// Has the XDP program call a program by its index in the map of programs, in place of the one that it calls so far.
    ///
    /// # Errors
    /// The index is beyond the map, the descriptor is not of an XDP program, or the loader process has ended.
    pub fn set_hook(&self, index: u32, program: BorrowedFd<'_>) -> io::Result<()> {
        self.ask_with(&Request::SetHook { index }, Some(program)).map(drop)
    }

    /// Has the XDP program call no program with this index.
    ///
    /// # Errors
    /// The index is beyond the map, or the loader process has ended.
    pub fn clear_hook(&self, index: u32) -> io::Result<()> {
        self.ask(&Request::ClearHook { index }).map(drop)
    }

    /// Reads the addresses of an interface.
    ///
    /// # Errors
    /// The interface is gone, or the loader process has ended.
    pub fn addresses(&self, interface: &str) -> io::Result<HostAddresses> {
        match self.ask(&Request::Addresses { interface: interface.to_owned() })?.0 {
            Reply::Addresses { mac, ip } => Ok(HostAddresses { mac, ip }),
            _ => Err(unexpected()),
        }
    }

    /// Has a socket removed when spind has ended, however it ends.
    ///
    /// # Errors
    /// The loader process has ended.
    pub fn remove_at_exit(&self, socket: SocketPath) -> io::Result<()> {
        self.ask(&Request::Keep(socket)).map(drop)
    }
}

impl FlowSteering for LoaderProcess {
    fn set_rules(&self, rules: &RuleSet) -> Result<(), NicError> {
        let set = self.ask(&Request::SetRules(rules.clone()));
        set.map(drop).map_err(|error| NicError::system("give the XDP program its rules", error))
    }
}

impl RemoveSocket for LoaderProcess {
    fn remove(&self, socket: &SocketPath) -> io::Result<()> {
        self.ask(&Request::Remove(socket.clone())).map(drop)
    }
}

impl HoldPort for LoaderProcess {
    fn hold(&self, port: Port, uid: u32) -> Result<Option<OwnedFd>, PortError> {
        let tcp = port.transport == Transport::Tcp;
        let opened = self.ask(&Request::HoldPort { tcp, number: port.number, uid });
        judge(port, uid, opened.and_then(|(_, fd)| fd.ok_or_else(unexpected)))
    }
}

fn unexpected() -> io::Error {
    io::Error::other("the loader process gave an unexpected answer")
}

impl Drop for LoaderProcess {
    fn drop(&mut self) {
        // It ends at the end of its input.
        let stream = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = stream.shutdown(std::net::Shutdown::Both);
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use spin_abi::rules::RuleSet;
    use spin_nic::hook::ArrayMap;
    use spin_nic::{Filter, FlowSteering};

    use super::LoaderProcess;

    #[test]
    fn programs_are_set_in_a_map_of_programs_only() {
        let loader = LoaderProcess::on_thread();
        let other = std::fs::File::open("/dev/null").expect("it exists");
        let error = loader.set_hook(0, other.as_fd()).expect_err("no map").to_string();
        assert_eq!(error, "no map of programs was given");
        loader.clear_hook(0).expect_err("no map");
        if !rustix::process::geteuid().is_root() {
            return spin_testing::skip("needs root");
        }
        let (map, filter) = (ArrayMap::new("spin_test", 8).expect("a map"), Filter::load().expect("root may"));
        let [tables, keys] = filter.rule_maps();
        for maps in [[map.as_fd(), keys], [tables, map.as_fd()], [keys, tables], [filter.sockets(), keys]] {
            let refused = loader.take_rules(maps, filter.programs()).expect_err("other maps").to_string();
            assert!(refused.contains("the maps are not those of rules"), "{refused}");
        }
        loader.set_rules(&RuleSet::default()).expect_err("no maps");
        loader.take_rules([tables, keys], map.as_fd()).expect("it runs");
        loader.set_rules(&RuleSet::default()).expect("they are maps of rules");
        let error = loader.set_hook(0, other.as_fd()).expect_err("another map").to_string();
        assert!(error.contains("the map is not one of programs"), "{error}");
        loader.clear_hook(0).expect_err("another map");
    }
}
