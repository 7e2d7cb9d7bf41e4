//! Requests whose handlers may run in the XDP hook.

use hpu_vm::{Image, Kind};
use spin_abi::control::{Abi, Engine, Install, Isolation, Placement, RunInfo};
use spin_matcher::Eom;
use spin_pspin::hpu::entries::Entries;

use crate::hook::Refusal;
use crate::install::MatchSpec;

/// Checks a request before any memory is made for it.
///
/// # Errors
/// What only user space can do, and how to ask for something else.
pub(super) fn check(
    install: &Install,
    run: &RunInfo,
    rules: &MatchSpec,
    entries: &Entries,
    image: &Image,
) -> Result<(), Refusal> {
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
        (install.l1_bytes.is_some(), "only a part of each packet is copied to L1 (leave out --l1-bytes)"),
        (install.replaces.is_some(), "it replaces another context"),
        (rules.send.is_some(), "its user may only send certain frames"),
    ];
    match refused.into_iter().find(|(refused, _)| *refused) {
        Some((_, why)) => Err(Refusal(why.to_owned())),
        None => Ok(()),
    }
}
