//! Translation of a handler, and attempts to load it.

use std::any::Any;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use hpu_vm::bpf::{Layout, Program as Translation, Source};
use hpu_vm::{Image, Kind};
use spin_nic::hook::{LoadError, LoadOptions, Program};

use super::message::{OptionsMessage, ProgramFacts, Variant};

/// Time after which no further attempt begins. One attempt takes up to about a second.
const LIMIT: Duration = Duration::from_secs(3);
const PLAIN: Variant = Variant { opaque: false, forgetful: false };
const FORGETFUL: Variant = Variant { opaque: false, forgetful: true };
const OPAQUE_FORGETFUL: Variant = Variant { opaque: true, forgetful: true };
const OPAQUE: Variant = Variant { opaque: true, forgetful: false };

/// Forms of a program, in the order in which they are tried.
type Variants = [Variant; 4];

/// Order for a program without loops.
const STRAIGHT: Variants = [PLAIN, FORGETFUL, OPAQUE_FORGETFUL, OPAQUE];
/// Order for a program with loops, of which the verifier follows each iteration unless it forgets.
const WITH_LOOPS: Variants = [FORGETFUL, OPAQUE_FORGETFUL, PLAIN, OPAQUE];

/// Reason why a handler was not loaded.
#[derive(Debug)]
pub(super) enum NotLoaded {
    /// The handler cannot run in the hook.
    NotEligible(String),
    /// The kernel refused each form of the program that was tried.
    NotAccepted(String),
    /// The attempt failed for a reason that is not the handler's.
    Failed(io::Error),
}

/// A payload handler, and where its memory is.
pub(super) struct Handler<'a> {
    /// For tools.
    name: &'a str,
    image: Image,
    entry: u32,
    taken: BTreeSet<u32>,
    layout: &'a Layout,
    options: OptionsMessage,
}

impl<'a> Handler<'a> {
    /// The payload handler of an image. The layout has been checked.
    pub(super) fn new(
        name: &'a str,
        elf: &[u8],
        layout: &'a Layout,
        options: OptionsMessage,
    ) -> Result<Self, NotLoaded> {
        let image = guarded(|| Image::load(elf, &layout.machine))?;
        let image = image.map_err(|error| NotLoaded::NotEligible(error.to_string()))?;
        let entry = image.handler(Kind::Payload);
        let entry = entry.ok_or_else(|| NotLoaded::NotEligible("the image has no payload handler".to_owned()))?;
        let taken = guarded(|| image.addresses_taken())?;
        Ok(Self { name, image, entry, taken, layout, options })
    }

    /// Loads it in the first form that the kernel accepts. No further attempt begins when `goes_on` is false.
    pub(super) fn load(
        &self,
        maps: &[BorrowedFd<'_>],
        goes_on: impl Fn() -> bool,
    ) -> Result<(Program, ProgramFacts), NotLoaded> {
        let start = Instant::now();
        let variants = if self.translate(PLAIN)?.has_loops() { WITH_LOOPS } else { STRAIGHT };
        let goes_on = || goes_on() && start.elapsed() < LIMIT;
        try_variants(variants, goes_on, |variant| self.attempt(variant, maps))
    }

    fn translate(&self, variant: Variant) -> Result<Translation, NotLoaded> {
        let source = Source { code: self.image.code(), entry: self.entry, taken: &self.taken };
        let translated = guarded(|| Translation::new(source, self.layout, self.options.with(variant)))?;
        translated.map_err(|reason| NotLoaded::NotEligible(reason.to_string()))
    }

    fn attempt(&self, variant: Variant, maps: &[BorrowedFd<'_>]) -> Result<(Program, ProgramFacts), NotLoaded> {
        let translated = self.translate(variant)?;
        let guest_instructions = translated.guest_instructions();
        let encoded = guarded(|| translated.insns().encode())?;
        let instructions: Vec<[u8; 8]> = encoded.into_iter().map(|insn| insn.bytes()).collect();
        let loaded = Program::load(&instructions, maps, LoadOptions { name: self.name, full_log: false });
        let program = loaded.map_err(|error| match error {
            LoadError::Refused(refusal) => NotLoaded::NotAccepted(refusal.message),
            LoadError::Privileges | LoadError::Malformed(_) => NotLoaded::Failed(io::Error::other(error)),
        })?;
        let (processed, load_time) = (program.processed(), program.load_time());
        let instructions = instructions.len();
        Ok((program, ProgramFacts { guest_instructions, instructions, processed, variant, load_time }))
    }
}

/// Tries the forms until one is accepted. The reason of a refusal is that of the first form.
fn try_variants<T>(
    variants: Variants,
    goes_on: impl Fn() -> bool,
    mut attempt: impl FnMut(Variant) -> Result<T, NotLoaded>,
) -> Result<T, NotLoaded> {
    let mut first: Option<String> = None;
    let mut tried = 0;
    for variant in variants {
        if tried > 0 && !goes_on() {
            break;
        }
        tried += 1;
        match attempt(variant) {
            Err(NotLoaded::NotAccepted(reason)) => first = first.or(Some(reason)),
            decided => return decided,
        }
    }
    let reason = first.unwrap_or_default();
    let count = variants.len();
    Err(NotLoaded::NotAccepted(format!("{reason} ({tried} of {count} forms of the program were tried)")))
}

/// Runs code that works on an image of a user. If it panics, that is the image's error, and the hook process goes on.
fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, NotLoaded> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = text_of(&*panic).lines().next().unwrap_or_default();
        NotLoaded::NotEligible(format!("the translator failed: {text}"))
    })
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown panic")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use hpu_vm::bpf::layout::{Range, SLOT};
    use hpu_vm::bpf::{Layout, Options, Program, Source};
    use hpu_vm::{Image, Kind};
    use proptest::prelude::*;
    use proptest::sample::select;
    use spin_abi::map::Machine;

    use super::{NotLoaded, OptionsMessage, STRAIGHT, guarded, try_variants};
    use crate::control::hook_process::layout_check::check;
    use crate::control::hook_process::maps::MapKind;

    /// Numbers at which computations overflow, and some that are valid.
    fn number() -> impl Strategy<Value = u32> {
        let edges = [0, 1, 3, 4, 8, 16, 4092, 4096, 8192, 1 << 16, 1 << 26];
        let machine = [0x8000, 0x10_0000, 0x30_0000, 0x40_0000, 0x1c00_0000, 0x1c30_0000, 0x1c40_0000, 0x1d00_0000];
        let large = [1 << 31, u32::MAX - 4095, u32::MAX - 3, u32::MAX];
        prop_oneof![
            12 => select(edges.to_vec()),
            4 => select(machine.to_vec()),
            1 => select(large.to_vec()),
            1 => any::<u32>(),
        ]
    }

    fn machine() -> impl Strategy<Value = Machine> {
        let change = (0..9_usize, number());
        let changes = prop_oneof![4 => Just(Vec::new()), 1 => proptest::collection::vec(change, 1..3)];
        (select(vec![Machine::PSPIN, Machine::FPSPIN]), changes).prop_map(|(mut machine, changes)| {
            for (field, value) in changes {
                *[
                    &mut machine.clusters,
                    &mut machine.hpus_per_cluster,
                    &mut machine.l1_size,
                    &mut machine.l2_data_size,
                    &mut machine.handler_mem_base,
                    &mut machine.handler_mem_size,
                    &mut machine.l2_packet_base,
                    &mut machine.l2_packet_size,
                    &mut machine.program_size,
                ][field] = value;
            }
            machine
        })
    }

    fn map() -> impl Strategy<Value = u32> {
        prop_oneof![8 => Just(2), 2 => Just(3), 1 => 0..5_u32]
    }

    fn layout() -> impl Strategy<Value = Layout> {
        let range = (number(), number(), any::<bool>(), map(), number());
        let range = range.prop_map(|(base, len, writable, map, offset)| Range { base, len, writable, map, offset });
        let ranges = proptest::collection::vec(range, 0..3);
        let host = proptest::option::of(map());
        (machine(), (0..3_u32, 0..3_u32), 0..4_u32, ranges, host, any::<bool>()).prop_map(
            |(machine, hpu, processors, ranges, host_queue, own_task)| Layout {
                machine,
                hpu,
                first_hpu: 0,
                first_flow: 0,
                processors,
                ranges,
                host_queue,
                own_task,
                replies: None,
            },
        )
    }

    proptest! {
        #[test]
        fn accepted_layouts_can_be_translated(layout in layout()) {
            let maps = [16, 3 * SLOT, 1 << 26, 8192].map(MapKind::Memory);
            let elf = spin_handlers::image("udp_pingpong", &[]);
            let image = Image::load(&elf, &Machine::PSPIN).expect("an image");
            let (entry, taken) = (image.handler(Kind::Payload).expect("one"), image.addresses_taken());
            let source = Source { code: image.code(), entry, taken: &taken };
            for variant in STRAIGHT {
                let options = OptionsMessage::from(Options::default()).with(variant);
                if check(&layout, options, &maps).is_ok() {
                    let translated = Program::new(source, &layout, options).expect("eligible");
                    prop_assert!(!translated.insns().encode().is_empty());
                }
            }
        }
    }

    #[test]
    fn the_first_accepted_form_is_taken() {
        let mut tried = Vec::new();
        let loaded = try_variants(
            STRAIGHT,
            || true,
            |variant| {
                tried.push((variant.opaque, variant.forgetful));
                if variant == STRAIGHT[2] { Ok(7) } else { Err(NotLoaded::NotAccepted("no".to_owned())) }
            },
        );
        assert!(matches!(loaded, Ok(7)));
        assert_eq!(tried, [(false, false), (false, true), (true, true)]);
    }

    #[test]
    fn refusals_have_the_reason_of_the_first_form() {
        let count = Cell::new(0);
        let refuse = |_| {
            count.set(count.get() + 1);
            Err::<(), _>(NotLoaded::NotAccepted(format!("reason {}", count.get())))
        };
        let reason = |refused| match refused {
            Err(NotLoaded::NotAccepted(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            reason(try_variants(STRAIGHT, || true, refuse)),
            "reason 1 (4 of 4 forms of the program were tried)"
        );
        count.set(0);
        // Each attempt takes a part of the time.
        let refused = try_variants(STRAIGHT, || count.get() < 2, refuse);
        assert_eq!(reason(refused), "reason 1 (2 of 4 forms of the program were tried)");
        count.set(0);
        assert_eq!(
            reason(try_variants(STRAIGHT, || false, refuse)),
            "reason 1 (1 of 4 forms of the program were tried)"
        );
    }

    #[test]
    fn a_handler_that_is_not_eligible_is_tried_once() {
        let mut count = 0;
        let refused = try_variants(
            STRAIGHT,
            || true,
            |_| {
                count += 1;
                Err::<(), _>(NotLoaded::NotEligible("an ecall".to_owned()))
            },
        );
        assert!(matches!(refused, Err(NotLoaded::NotEligible(reason)) if reason == "an ecall"));
        assert_eq!(count, 1);
    }

    #[test]
    fn a_panic_of_the_translator_is_a_refusal() {
        let failed: Result<(), _> = guarded(|| panic!("block {}\nand more", 7));
        let Err(NotLoaded::NotEligible(reason)) = failed else { panic!("not refused") };
        assert_eq!(reason, "the translator failed: block 7");
    }
}
