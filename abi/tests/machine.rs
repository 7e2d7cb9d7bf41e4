//! In an accepted machine, no two parts of the address map overlap.

use proptest::prelude::*;
use spin_abi::map::{
    DRIVER_BASE, L1_ALIAS, L1_DATA, L2_BASE, Machine, MachineError, PACKET_WINDOW, PAGE, PERIPHERALS, PROGRAM_BASE,
    PROGRAM_MOST, RETURN_ADDRESS, STACK_WINDOW, STDOUT_BASE, STDOUT_SIZE,
};

/// Address range of a part: first address, number of bytes.
type Claim = (u64, u64);

fn claim(base: u32, size: u32) -> Claim {
    (base.into(), size.into())
}

/// Address ranges of a machine's parts, window by window.
fn claims(m: &Machine) -> Vec<Claim> {
    let mut claims = vec![
        claim(STDOUT_BASE, STDOUT_SIZE),
        claim(L1_ALIAS, m.l1_size),
        claim(PERIPHERALS, DRIVER_BASE + PAGE - PERIPHERALS),
        claim(L2_BASE, m.l2_data_size),
        claim(m.handler_mem_base, m.handler_mem_size),
        claim(m.l2_packet_base, m.l2_packet_size),
        claim(PROGRAM_BASE, m.program_size),
        claim(RETURN_ADDRESS, 4),
    ];
    for cluster in 0..m.clusters {
        claims.push(claim(m.l1_base(cluster), L1_DATA));
        for hpu in 0..m.hpus_per_cluster {
            claims.push(claim(m.stack_base(cluster, hpu), STACK_WINDOW));
            claims.push(claim(m.l1_packet_base(cluster, hpu), PACKET_WINDOW));
        }
        claims.push(claim(m.scratchpad_base(cluster), m.scratchpad_size()));
    }
    claims
}

fn disjoint(claims: &[Claim]) -> bool {
    let apart = |(a, a_len): Claim, (b, b_len): Claim| a + a_len <= b || b + b_len <= a;
    claims.iter().enumerate().all(|(index, &one)| claims[..index].iter().all(|&other| apart(one, other)))
}

fn holds((outer, outer_len): Claim, (inner, inner_len): Claim) -> bool {
    outer <= inner && inner + inner_len <= outer + outer_len
}

/// Independent oracle of [`Machine::check`].
fn possible(m: &Machine) -> bool {
    let counts = (1..=4).contains(&m.clusters) && (1..=8).contains(&m.hpus_per_cluster);
    let sizes = [m.l1_size, m.l2_data_size, m.handler_mem_size, m.l2_packet_size, m.program_size];
    let bases = [m.handler_mem_base, m.l2_packet_base];
    if !counts || sizes.contains(&0) || sizes.iter().chain(&bases).any(|value| value % PAGE != 0) {
        return false;
    }
    // Smaller machines have no scratchpad worth using, or lack a packet window for some HPU.
    if m.l1_size < L1_DATA + m.hpus_per_cluster * (STACK_WINDOW + PACKET_WINDOW)
        || m.l2_packet_size < m.clusters * m.hpus_per_cluster * PACKET_WINDOW
        || m.program_size > PROGRAM_MOST
    {
        return false;
    }
    let l2 = claim(L2_BASE, PROGRAM_BASE - L2_BASE);
    let in_l2 = [
        claim(L2_BASE, m.l2_data_size),
        claim(m.handler_mem_base, m.handler_mem_size),
        claim(m.l2_packet_base, m.l2_packet_size),
    ];
    in_l2.iter().all(|&memory| holds(l2, memory)) && disjoint(&claims(m))
}

/// Mostly whole pages up to `most`, sometimes any value.
fn size(most: u32) -> impl Strategy<Value = u32> {
    let pages = (0..=most / PAGE).prop_map(|pages| pages * PAGE);
    prop_oneof![20 => pages, 1 => any::<u32>()]
}

fn base() -> impl Strategy<Value = u32> {
    let pages = (0..0x1000_u32).prop_map(|page| L2_BASE + page * PAGE);
    prop_oneof![20 => pages, 1 => any::<u32>()]
}

prop_compose! {
    fn machine()(
        (clusters, hpus_per_cluster) in (0..6_u32, 0..10_u32),
        l1_size in size(0x28_0000),
        (l2_data_size, handler_mem_size, l2_packet_size) in (size(0x60_0000), size(0x60_0000), size(0x60_0000)),
        (handler_mem_base, l2_packet_base) in (base(), base()),
        program_size in size(2 * PROGRAM_MOST),
    ) -> Machine {
        Machine {
            clusters, hpus_per_cluster, l1_size, l2_data_size, handler_mem_base, handler_mem_size, l2_packet_base,
            l2_packet_size, program_size,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn accepted_is_what_has_a_place_for_everything(machine in machine()) {
        let checked = machine.check();
        prop_assert_eq!(checked.is_ok(), possible(&machine), "{:?}: {:?}", machine, checked);
    }
}

proptest! {
    // Most generated machines are impossible.
    #![proptest_config(ProptestConfig { cases: 500, max_global_rejects: 1_000_000, ..ProptestConfig::default() })]

    #[test]
    fn windows_begin_at_pages_and_lie_in_their_memory(machine in machine()) {
        prop_assume!(machine.check().is_ok());
        for cluster in 0..machine.clusters {
            let l1 = claim(machine.l1_base(cluster), machine.l1_size);
            let scratchpad = claim(machine.scratchpad_base(cluster), machine.scratchpad_size());
            prop_assert!(holds(l1, scratchpad) && machine.scratchpad_base(cluster).is_multiple_of(PAGE));
            for hpu in 0..machine.hpus_per_cluster {
                let stack = machine.stack_base(cluster, hpu);
                let (near, far) = (machine.l1_packet_base(cluster, hpu), machine.l2_packet_window(cluster, hpu));
                prop_assert!([stack, near, far].iter().all(|base| base.is_multiple_of(PAGE)));
                prop_assert!(holds(l1, claim(stack, STACK_WINDOW)) && holds(l1, claim(near, PACKET_WINDOW)));
                let buffer = claim(machine.l2_packet_base, machine.l2_packet_size);
                prop_assert!(holds(buffer, claim(far, PACKET_WINDOW)));
            }
        }
    }
}

#[test]
fn presets_are_possible() {
    for machine in [Machine::PSPIN, Machine::FPSPIN] {
        assert_eq!(machine.check(), Ok(()));
        assert!(possible(&machine));
    }
}

#[test]
fn a_refusal_says_what_and_what_to_do() {
    const P: Machine = Machine::PSPIN;
    let cases = [
        (Machine { clusters: 5, ..P }, "clusters 5: between 1 and 4"),
        (Machine { hpus_per_cluster: 0, ..P }, "hpus_per_cluster 0: between 1 and 8"),
        (Machine { l1_size: 0x10_0001, ..P }, "l1_size 0x100001: a multiple of 4096 (a page), such as 0x100000"),
        (
            Machine { l1_size: 0x1_4000, ..P },
            "l1_size 0x14000: at least 0x15000, for images' data, the stack and the packet window of each HPU",
        ),
        (Machine { l1_size: 0x20_1000, ..P }, "l1_size 0x201000: at most 0x200000"),
        (Machine { program_size: 0x20_0000, ..P }, "program_size 0x200000: at most 0x100000"),
        (
            Machine { l2_packet_size: 0x1000, ..P },
            "l2_packet_size 0x1000: at least 0x20000, for the packet window of each HPU",
        ),
        (
            Machine { handler_mem_size: 0x40_0000, ..P },
            "l2_packet_base 0x1c400000: handler_mem reaches up to 0x1c700000; make handler_mem_size smaller, or move \
             l2_packet_base up",
        ),
        (
            Machine { l2_packet_size: 0x100_0000, ..P },
            "l2_packet_base 0x1c400000: 0x1000000 bytes from there are not within L2 (0x1c000000 to 0x1d000000); move it, or \
             make l2_packet_size smaller",
        ),
    ];
    for (machine, expected) in cases {
        assert_eq!(machine.check().unwrap_err().to_string(), expected);
    }
    let paper = Machine { handler_mem_size: 0x40_0000, l2_packet_base: 0x1c70_0000, ..P };
    assert_eq!(paper.check(), Ok(()), "the paper's 4 MiB of handler memory");
    let same = Machine { handler_mem_base: P.l2_packet_base, ..P };
    assert!(matches!(same.check(), Err(MachineError::Overlap { .. })));
}
