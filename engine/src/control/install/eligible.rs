//! Requests whose handlers may run in the XDP hook.

use std::net::IpAddr;

use hpu_vm::bpf::layout::ReplySource;
use hpu_vm::{Image, Kind};
use spin_abi::control::{Abi, Engine, Install, Isolation, Placement, RunInfo, UnitCount};
use spin_matcher::Eom;
use spin_pspin::hpu::entries::Entries;

use crate::control::hook_process::MAX_ADDRESSES;
use crate::hook::Refusal;
use crate::install::{MatchSpec, SendRights};

/// Checks a request before any memory is made for it. Returns the host in whose name handlers answer, if they may only do that.
///
/// # Errors
/// What only user space can do, and how to ask for something else.
pub(super) fn check(
    install: &Install,
    run: &RunInfo,
    rules: &MatchSpec,
    entries: &Entries,
    image: &Image,
) -> Result<Option<ReplySource>, Refusal> {
    let [header, payload, completion] = entries.handlers;
    let refused = [
        (run.engine != Engine::Jit, "spind does not run with --engine jit"),
        (run.abi != Abi::Wire, "its ABI is not wire (--abi wire)"),
        (header.is_some() || install.header.is_some(), "it has a header handler or a header rule"),
        (completion.is_some(), "it has a completion handler"),
        (payload.is_none(), "it has no payload handler"),
        (
            payload.map(|handler| handler.address) != image.handler(Kind::Payload),
            "its payload handler is not the image's own (leave out --handlers)",
        ),
        (!matches!(rules.eom, Eom::Always), "its messages have several packets (leave out --eom)"),
        (run.isolation != Isolation::Context, "its messages are isolated from each other (--isolation context)"),
        (run.placement != Placement::Any, "its tasks are placed on home clusters (--placement any)"),
        (run.instruction_limit.is_some(), "it has an instruction limit"),
        (install.units.is_some_and(|units| units != UnitCount::Number(1)), "several units run it (leave out --units)"),
        (install.l1_bytes.is_some(), "only a part of each packet is copied to L1 (leave out --l1-bytes)"),
    ];
    match refused.into_iter().find(|(refused, _)| *refused) {
        Some((_, why)) => Err(Refusal(why.to_owned())),
        None => rights(rules.send.as_ref()),
    }
}

/// The host in whose name handlers answer, if they may only do that.
fn rights(send: Option<&SendRights>) -> Result<Option<ReplySource>, Refusal> {
    let refused = |why: &str| Err(Refusal(why.to_owned()));
    match send {
        None | Some(SendRights::Raw) => Ok(None),
        Some(SendRights::Own(_)) => {
            refused("its user may send to any destination, which is checked in user space only")
        }
        Some(SendRights::Reply(source)) => {
            let Some(host) = &source.host else { return refused("the host's addresses are not known") };
            let v4 = |address: &IpAddr| if let IpAddr::V4(address) = address { Some(address.octets()) } else { None };
            let addresses = host.ip.iter().filter_map(v4).take(MAX_ADDRESSES).collect();
            Ok(Some(ReplySource { mac: host.mac, addresses }))
        }
    }
}
