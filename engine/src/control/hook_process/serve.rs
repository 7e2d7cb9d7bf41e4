//! The hook process.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use hpu_vm::bpf::Layout;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use spin_shm::channel::{self, ChannelError, Message};

use super::layout_check::{MAX_MAPS, check};
use super::load::{Handler, NotLoaded};
use super::maps::{Map, MapStore};
use super::message::{HandlerKind, LoadMessage, MapToken, Reply, Request, Variant};

/// Answers requests until spind has ended.
///
/// # Errors
/// The connection failed, or a message is not one of the protocol.
pub fn serve(stream: &UnixStream) -> Result<(), ChannelError> {
    let mut maps = MapStore::default();
    while let Some(message) = channel::receive::<Request>(stream)? {
        let answer = answer(&mut maps, message, || !has_ended(stream));
        let (reply, fd) = answer.unwrap_or_else(|error| (Reply::Refused(error.to_string()), None));
        channel::send(stream, &reply, &[], fd.as_ref().map(AsFd::as_fd))?;
    }
    Ok(())
}

/// Whether spind has closed its end.
fn has_ended(stream: &UnixStream) -> bool {
    // POLLHUP is always reported.
    let mut socket = [PollFd::new(stream, PollFlags::empty())];
    poll(&mut socket, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

fn answer(
    maps: &mut MapStore,
    message: Message<Request>,
    goes_on: impl Fn() -> bool,
) -> io::Result<(Reply, Option<OwnedFd>)> {
    match message.body {
        Request::MakeMap { name, len } => {
            let (token, fd) = maps.make(&name, len)?;
            Ok((Reply::Map(token), Some(fd)))
        }
        Request::AddSockets => Ok((Reply::Map(maps.add_sockets(message.fd)?), None)),
        Request::FreeMaps { tokens } => {
            maps.free(&tokens)?;
            Ok((Reply::Done, None))
        }
        Request::Load(load) => match load_handler(maps, load, &message.blob, goes_on) {
            Ok(loaded) => Ok(loaded),
            Err(NotLoaded::NotEligible(reason)) => Ok((Reply::NotEligible(reason), None)),
            Err(NotLoaded::NotAccepted(reason)) => Ok((Reply::NotAccepted(reason), None)),
            Err(NotLoaded::Failed(error)) => Err(error),
        },
    }
}

fn load_handler(
    maps: &MapStore,
    message: LoadMessage,
    elf: &[u8],
    goes_on: impl Fn() -> bool,
) -> Result<(Reply, Option<OwnedFd>), NotLoaded> {
    let LoadMessage { name, handler: HandlerKind::Payload, layout, options, maps: tokens } = message;
    let layout = Layout::from(layout);
    let maps = named(maps, &tokens).map_err(NotLoaded::Failed)?;
    let kinds: Vec<_> = maps.iter().map(|map| map.kind()).collect();
    let plain = options.with(Variant { opaque: false, forgetful: false });
    check(&layout, plain, &kinds).map_err(|error| NotLoaded::Failed(io::Error::other(error)))?;
    let descriptors: Vec<BorrowedFd<'_>> = maps.iter().map(AsFd::as_fd).collect();
    let (program, facts) = Handler::new(&name, elf, &layout, options)?.load(&descriptors, goes_on)?;
    let fd = program.as_fd().try_clone_to_owned().map_err(NotLoaded::Failed)?;
    Ok((Reply::Loaded(facts), Some(fd)))
}

/// The maps of a program, each named once.
fn named<'m>(maps: &'m MapStore, tokens: &[MapToken]) -> io::Result<Vec<&'m Map>> {
    let is_repeated = |(index, token): (usize, &MapToken)| tokens[..index].contains(token);
    // A longer list is refused by the check of the layout.
    if tokens.iter().enumerate().take(MAX_MAPS).any(is_repeated) {
        return Err(io::Error::other("a map is named twice"));
    }
    tokens.iter().map(|&token| maps.get(token)).collect()
}
