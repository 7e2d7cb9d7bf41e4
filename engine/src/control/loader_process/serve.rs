//! The loader process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use spin_abi::rules::RuleSet;
use spin_matcher::rule::Transport;
use spin_nic::FlowSteering;
use spin_nic::afxdp::RuleMaps;
use spin_nic::hook::HookTable;
use spin_pspin::hpu::send_rights::HostAddresses;
use spin_shm::channel::{self, ChannelError, Message};

use super::message::{Reply, Request};
use crate::control::host::addresses::addresses;
use crate::control::host::port_socket;
use crate::control::socket_file::SocketPath;
use crate::install::ports::Port;

/// Answers requests until spind has ended. Then removes the sockets that it left.
///
/// # Errors
/// The connection failed.
pub fn serve(stream: &UnixStream) -> Result<(), ChannelError> {
    let mut loader = Loader::default();
    let served = loader.answer_all(stream);
    for socket in loader.sockets {
        // Nobody is there to hear of an error.
        let _ = socket.remove();
    }
    served
}

#[derive(Default)]
struct Loader {
    /// The map of tables, until that of the keys comes.
    tables: Option<OwnedFd>,
    rules: Option<RuleMaps>,
    hooks: Option<HookTable>,
    /// Sockets that spind has.
    sockets: Vec<SocketPath>,
}

impl Loader {
    fn answer_all(&mut self, stream: &UnixStream) -> Result<(), ChannelError> {
        while let Some(message) = channel::receive::<Request>(stream)? {
            let (reply, fd) = match self.answer(message) {
                Ok(answer) => answer,
                Err(error) => (Reply::Refused { errno: error.raw_os_error(), reason: error.to_string() }, None),
            };
            channel::send(stream, &reply, &[], fd.as_ref().map(AsFd::as_fd))?;
        }
        Ok(())
    }

    fn answer(&mut self, message: Message<Request>) -> io::Result<(Reply, Option<OwnedFd>)> {
        match message.body {
            Request::TableMap => self.tables = message.fd,
            Request::KeyMap => {
                let maps = self.tables.take().zip(message.fd);
                let rules = maps.map(|(tables, keys)| RuleMaps::checked([tables, keys])).transpose();
                self.rules = rules.map_err(io::Error::other)?;
            }
            Request::HookMap => self.hooks = message.fd.map(HookTable::new),
            Request::SetRules(rules) => self.set_rules(&rules)?,
            Request::SetHook { index } => {
                let program = message.fd.ok_or_else(|| io::Error::other("no program was given"))?;
                self.hooks()?.set(index, program.as_fd()).map_err(io::Error::other)?;
            }
            Request::ClearHook { index } => self.hooks()?.clear(index).map_err(io::Error::other)?,
            Request::HoldPort { tcp, number, uid } => {
                let transport = if tcp { Transport::Tcp } else { Transport::Udp };
                return Ok((Reply::Done, Some(port_socket::open(Port { transport, number }, uid)?)));
            }
            Request::Addresses { interface } => {
                let HostAddresses { mac, ip } = addresses(&interface).map_err(io::Error::other)?;
                return Ok((Reply::Addresses { mac, ip }, None));
            }
            Request::Keep(socket) => self.sockets.push(socket),
            Request::Remove(socket) => {
                self.sockets.retain(|other| *other != socket);
                socket.remove()?;
            }
        }
        Ok((Reply::Done, None))
    }

    fn hooks(&self) -> io::Result<&HookTable> {
        self.hooks.as_ref().ok_or_else(|| io::Error::other("no map of programs was given"))
    }

    fn set_rules(&self, rules: &RuleSet) -> io::Result<()> {
        let maps = self.rules.as_ref().ok_or_else(|| io::Error::other("no map of rules was given"))?;
        maps.set_rules(rules).map_err(io::Error::other)
    }
}
