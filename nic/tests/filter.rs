//! The XDP program decides as `spin_abi::rules` specifies. Test runs in the kernel are compared with a slow oracle, on
//! generated frames and tables.

mod common;

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32};

use common::{root, udp_to};
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof};
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use spin_abi::rules::{
    Base, END_OF_RULE, ExactKey, KeyRule, LITTLE_ENDIAN, MAX_TESTS, RuleSet, Target, Test, ZERO_BEYOND,
};
use spin_nic::{Filter, FlowSteering, NicError};

/// A direct transcription of the specification, with bytes as `Option`s.
mod oracle {
    use super::{Base, END_OF_RULE, ExactKey, LITTLE_ENDIAN, Test, ZERO_BEYOND};

    #[derive(Default)]
    pub struct Layout {
        pub kind: u32,
        /// Position and limit of Ip, L4, Payload.
        pub ip: Option<(usize, usize)>,
        pub l4: Option<(usize, usize)>,
        pub payload: Option<(usize, usize)>,
    }

    fn half(frame: &[u8], at: usize) -> Option<usize> {
        Some(usize::from(*frame.get(at)?) << 8 | usize::from(*frame.get(at + 1)?))
    }

    pub fn layout(frame: &[u8]) -> Layout {
        let (mut at, mut ethertype) = (12, half(frame, 12));
        for _ in 0..2 {
            if matches!(ethertype, Some(0x8100 | 0x88a8)) {
                at += 4;
                ethertype = half(frame, at);
            }
        }
        let ethertype = ethertype.unwrap_or(0);
        let mut layout = Layout { kind: (ethertype as u32) << 16, ..Layout::default() };
        let transport = match ethertype {
            0x0800 => ipv4(frame, at + 2, &mut layout),
            0x86dd => ipv6(frame, at + 2, &mut layout),
            _ => None,
        };
        let Some((protocol, l4, end)) = transport else { return layout };
        layout.kind |= protocol as u32;
        layout.l4 = Some((l4, end));
        let length = match protocol {
            17 | 1 | 58 => Some(8),
            6 if l4 + 13 <= end => Some(usize::from(frame[l4 + 12] >> 4) * 4).filter(|&length| length >= 20),
            _ => None,
        };
        layout.payload = length.map(|length| (l4 + length, end)).filter(|&(start, end)| start <= end);
        layout
    }

    /// Protocol, position and end of L4.
    fn ipv4(frame: &[u8], start: usize, layout: &mut Layout) -> Option<(u8, usize, usize)> {
        let header = frame.get(start..start + 20)?;
        let (length, total) = (usize::from(header[0] % 16) * 4, half(header, 2)?);
        if header[0] / 16 != 4 || length < 20 || start + length > frame.len() || total < length {
            return None;
        }
        layout.kind |= 4 << 8;
        layout.ip = Some((start, frame.len().min(start + total)));
        let fragment = half(header, 6)? & 0x3fff != 0;
        let there = !fragment && start + total <= frame.len() && total > length && header[9] != 0;
        there.then_some((header[9], start + length, start + total))
    }

    fn ipv6(frame: &[u8], start: usize, layout: &mut Layout) -> Option<(u8, usize, usize)> {
        let header = frame.get(start..start + 40)?;
        if header[0] / 16 != 6 {
            return None;
        }
        let end = start + 40 + half(header, 4)?;
        layout.kind |= 6 << 8;
        layout.ip = Some((start, frame.len().min(end)));
        let packet = frame.get(..end)?;
        let (mut next, mut at) = (header[6], start + 40);
        let mut skipped = 0;
        while matches!(next, 0 | 43 | 60) {
            if skipped == 4 {
                return None;
            }
            let length = 8 * (1 + usize::from(*packet.get(at + 1)?));
            next = packet[at];
            at += length;
            skipped += 1;
            if at > end {
                return None;
            }
        }
        (next != 44 && at < end).then_some((next, at, end))
    }

    pub fn matched(frame: &[u8], tests: &[Test]) -> bool {
        let layout = layout(frame);
        let rules = tests.split_inclusive(|test| test.flags & END_OF_RULE != 0);
        rules.into_iter().any(|rule| rule.iter().all(|test| holds(frame, &layout, test)))
    }

    /// The destination of a frame of TCP or UDP.
    pub fn key(frame: &[u8]) -> Option<ExactKey> {
        let layout = layout(frame);
        let ((ip, _), (l4, end)) = (layout.ip?, layout.l4?);
        let [_, _, version, protocol] = layout.kind.to_be_bytes();
        let port = frame[..end].get(l4 + 2..l4 + 4)?;
        let from = if version == 4 { &frame[ip + 16..ip + 20] } else { &frame[ip + 24..ip + 40] };
        let mut address = [0; 16];
        address[..from.len()].copy_from_slice(from);
        let key = ExactKey { address, port: [port[0], port[1]], version, protocol };
        [6, 17].contains(&protocol).then_some(key)
    }

    fn holds(frame: &[u8], layout: &Layout, test: &Test) -> bool {
        let word = match test.base {
            Base::Kind => Some(layout.kind),
            Base::Frame => word(frame, (0, frame.len()), test),
            Base::Ip => layout.ip.and_then(|extent| word(frame, extent, test)),
            Base::L4 => layout.l4.and_then(|extent| word(frame, extent, test)),
            Base::Payload => layout.payload.and_then(|extent| word(frame, extent, test)),
        };
        word.is_some_and(|word| (test.min..=test.max).contains(&(word & test.mask)))
    }

    fn word(frame: &[u8], (position, limit): (usize, usize), test: &Test) -> Option<u32> {
        let mut bytes = [0; 4];
        for (i, byte) in bytes.iter_mut().enumerate() {
            let at = position as i64 + i64::from(test.offset) + i as i64;
            match usize::try_from(at).ok().filter(|&at| at < limit) {
                Some(at) => *byte = frame[at],
                None if test.flags & ZERO_BEYOND != 0 => {}
                None => return None,
            }
        }
        Some(if test.flags & LITTLE_ENDIAN == 0 { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }
}

/// Bytes that look like a packet, with right, wrong or truncated lengths.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let tags = prop::collection::vec(prop::sample::select(vec![0x8100_u16, 0x88a8]), 0..4);
    let body = prop_oneof![4 => ipv4(), 4 => ipv6(), 1 => any_bytes(60).prop_map(|bytes| (0x0806, bytes))];
    (tags, body, 0..20_usize, 0..12_u32, 0..200_usize).prop_map(|(tags, (ethertype, body), padding, cut, at)| {
        let mut frame = vec![0x02; 12];
        for tag in tags {
            frame.extend(tag.to_be_bytes());
            frame.extend([0, 7]);
        }
        frame.extend(u16::to_be_bytes(ethertype));
        frame.extend(body);
        frame.resize(frame.len() + padding, 0);
        if cut == 0 {
            // The kernel runs no test on less than an Ethernet header.
            frame.truncate(at.max(14));
        }
        frame
    })
}

fn any_bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0), Just(1), any::<u8>()], 0..max)
}

/// Mostly zero, otherwise any value: a deviation from the right value.
fn rarely<T: std::fmt::Debug + Clone + Default + 'static>(
    other: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = T> {
    prop_oneof![8 => Just(T::default()), 1 => other]
}

fn protocol() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![0_u8, 1, 6, 6, 17, 17, 58, 44, 43, 60, 51, 59, 200])
}

/// Random bytes with a plausible TCP data offset at byte 12.
fn segment() -> impl Strategy<Value = Vec<u8>> {
    (any_bytes(48), 3..9_u8).prop_map(|(mut bytes, offset)| {
        if let Some(byte) = bytes.get_mut(12) {
            *byte = offset << 4;
        }
        bytes
    })
}

fn ipv4() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let fragment = prop::sample::select(vec![0x2000_u16, 0x2001, 1, 0x1fff, 0x4000, 0x8000]);
    let odd = (rarely(any::<u8>()), rarely(-40..40_i32), rarely(fragment));
    (0..4_u8, protocol(), segment(), odd).prop_map(|(options, protocol, segment, (version, length, fragment))| {
        let header_length = 20 + 4 * usize::from(options);
        let total = (header_length + segment.len()) as i32 + length;
        let mut packet = vec![(0x45 + options) ^ version, 0];
        packet.extend((total.max(0) as u16).to_be_bytes());
        packet.extend([0, 1]);
        packet.extend(fragment.to_be_bytes());
        packet.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.resize(header_length, 1);
        packet.extend(segment);
        (0x0800, packet)
    })
}

fn ipv6() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let extension = (prop::sample::select(vec![0_u8, 43, 60, 60, 44]), prop_oneof![4 => 0..2_u8, 1 => any::<u8>()]);
    let extensions =
        prop_oneof![prop::collection::vec(extension.clone(), 0..2), prop::collection::vec(extension, 0..7)];
    let odd = (rarely(any::<u8>()), rarely(-40..40_i32));
    (extensions, protocol(), segment(), odd).prop_map(|(extensions, protocol, segment, (version, length))| {
        let mut rest = Vec::new();
        for (i, &(_, units)) in extensions.iter().enumerate() {
            rest.extend([extensions.get(i + 1).map_or(protocol, |next| next.0), units, 0, 0, 0, 0, 0, 0]);
            // A wild length mostly ends outside the packet.
            rest.resize(rest.len() + if units < 2 { 8 * usize::from(units) } else { 0 }, 0);
        }
        rest.extend(segment);
        let total = rest.len() as i32 + length;
        let mut packet = vec![0x60 ^ version, 0, 0, 0];
        packet.extend((total.max(0) as u16).to_be_bytes());
        packet.extend([extensions.first().map_or(protocol, |first| first.0), 64]);
        packet.resize(40, 0xfd);
        packet.extend(rest);
        (0x86dd, packet)
    })
}

/// A test that matches often enough: few bits of a word near the start.
fn test() -> impl Strategy<Value = Test> {
    let base = prop::sample::select(vec![Base::Frame, Base::Ip, Base::L4, Base::Payload, Base::Kind]);
    let offset = prop_oneof![6 => -6..40_i16, 2 => 40..120_i16, 1 => any::<i16>()];
    let mask = prop_oneof![Just(u32::MAX), Just(0xff), Just(0xff00_0000), Just(3), any::<u32>()];
    let bound = prop_oneof![Just(0), Just(1), Just(17), Just(0x0800_0411), Just(0x0a00_0001), any::<u32>()];
    (base, 0..8_u8, offset, mask, bound, prop_oneof![Just(0), Just(u32::MAX), any::<u32>()]).prop_map(
        |(base, flags, offset, mask, min, more)| Test { base, flags, offset, mask, min, max: min.saturating_add(more) },
    )
}

fn table() -> impl Strategy<Value = Vec<Test>> {
    prop_oneof![8 => prop::collection::vec(test(), 1..6), 1 => prop::collection::vec(test(), MAX_TESTS)].prop_map(
        |mut tests| {
            let last = tests.len() - 1;
            tests[last].flags |= END_OF_RULE;
            tests
        },
    )
}

/// One test as a whole table.
fn alone(base: Base, flags: u8, offset: i16, mask: u32, value: u32) -> Vec<Test> {
    vec![Test { base, flags: flags | END_OF_RULE, offset, mask, min: value, max: value }]
}

/// Tables that each test one property: presence of a base, its end, bits of its words.
fn probes() -> Vec<Vec<Test>> {
    let mut tables = Vec::new();
    for base in [Base::Frame, Base::Ip, Base::L4, Base::Payload] {
        tables.push(alone(base, ZERO_BEYOND, 0, 0, 0));
        tables.extend([-4, -1, 0, 4, 5, 16].map(|offset| alone(base, 0, offset, 0, 0)));
        tables.extend([0x0100_0000, 0x0001_0000, 1].map(|bit| alone(base, ZERO_BEYOND, 0, bit, bit)));
        tables.push(alone(base, ZERO_BEYOND | LITTLE_ENDIAN, -2, 0x0001_0000, 0x0001_0000));
    }
    for kind in [0x0800_0411, 0x0800_0406, 0x0800_0400, 0x0800_0000, 0x86dd_0611, 0x86dd_0600, 0x86dd_0000, 0x8100_0000]
    {
        tables.push(alone(Base::Kind, LITTLE_ENDIAN, 7, u32::MAX, kind));
    }
    tables
}

/// A source of random values, the same at every run.
fn runner() -> TestRunner {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, b"the same frames at every run 012");
    TestRunner::new_with_rng(Config::default(), rng)
}

fn frames(runner: &mut TestRunner, count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|_| frame().new_tree(runner).expect("a frame").current()).collect()
}

#[test]
fn frames_match_the_keys_of_their_destination() {
    if !root() {
        return;
    }
    let filter = Filter::load().expect("loads");
    let frames = frames(&mut runner(), 4000);
    let any = |key: ExactKey| ExactKey { address: ExactKey::ANY_ADDRESS, ..key };
    let all: Vec<_> = frames.iter().filter_map(|frame| oracle::key(frame)).collect();
    // Keys of some frames: a third with the address, a third for any address, a third for another protocol, port or address.
    let keys = all.iter().step_by(2).enumerate().map(|(index, &key)| match index % 9 {
        0..3 => key,
        3..6 => any(key),
        6 => ExactKey { protocol: key.protocol ^ 23, ..key },
        7 => ExactKey { port: [key.port[0] ^ 1, key.port[1]], ..key },
        _ => ExactKey { address: std::array::from_fn(|at| key.address[at] ^ u8::from(at == 0)), ..key },
    });
    let rules = RuleSet { keys: keys.map(KeyRule::user_space).collect(), ..RuleSet::default() };
    filter.set_rules(&rules).expect("rules");
    let (mut matched, mut passed) = (0, 0);
    for frame in &frames {
        let key = oracle::key(frame);
        let expected = key.is_some_and(|key| rules.keys.iter().any(|rule| rule.key == key || rule.key == any(key)));
        assert_eq!(takes(&filter, frame), expected, "{key:?} {frame:02x?}");
        matched += usize::from(expected);
        passed += usize::from(key.is_some() && !expected);
    }
    assert!(matched > 100 && passed > 100, "{matched} frames with a key matched, {passed} did not");
    filter.set_rules(&RuleSet::default()).expect("rules");
    assert!(frames.iter().all(|frame| !takes(&filter, frame)), "the keys are gone");
}

/// A datagram with each half-word of its headers changed in turn, to values around the right one, and cut at each length.
#[test]
fn a_datagram_that_is_not_plain_has_the_key_of_its_layout() {
    if !root() {
        return;
    }
    let filter = Filter::load().expect("loads");
    let plain = datagram();
    let key = ExactKey { address: ExactKey::ANY_ADDRESS, ..oracle::key(&plain).expect("it has a destination") };
    filter.set_rules(&RuleSet { keys: vec![KeyRule::user_space(key)], ..RuleSet::default() }).expect("rules");
    let lengths = (-30..=8).chain([0x1000, 0x2000, 0x4000, -0x4000]);
    let changes = lengths.flat_map(|by| (12..plain.len() - 1).step_by(2).map(move |at| (at, by)));
    let changed = changes.map(|(at, by): (usize, i16)| {
        let mut frame = plain.clone();
        let half = i16::from_be_bytes([frame[at], frame[at + 1]]);
        frame[at..at + 2].copy_from_slice(&half.wrapping_add(by).to_be_bytes());
        frame
    });
    let cut = (14..plain.len()).map(|len| plain[..len].to_vec());
    let mut taken = 0;
    for frame in changed.chain(cut) {
        let expected = oracle::key(&frame).is_some_and(|found| ExactKey { address: key.address, ..found } == key);
        assert_eq!(takes(&filter, &frame), expected, "{frame:02x?}");
        taken += usize::from(expected);
    }
    assert!(taken > 50, "{taken}");
}

#[test]
fn each_frame_is_decided_by_old_or_new_rules() {
    if !root() {
        return;
    }
    let filter = Filter::load().expect("loads");
    let frame = datagram();
    let key = oracle::key(&frame).expect("a datagram has a destination");
    let any = ExactKey { address: ExactKey::ANY_ADDRESS, ..key };
    let list = |keys, target| RuleSet { targets: vec![target; 2], keys, ..RuleSet::list(&udp_to(10)) };
    let keys = |keys| RuleSet { keys, ..RuleSet::default() };
    let [user, one, two] = [Target::UserSpace, Target::Program(1), Target::Program(2)];
    let to = |key, target| KeyRule { target, ..KeyRule::user_space(key) };
    let behind_the_list = KeyRule { tests_before: 2, ..to(key, two) };
    let narrowed = KeyRule { has_narrower: true, ..to(any, one) };
    // Rules that all match the frame, each in another way, and where they lead.
    let all = [
        (keys(vec![to(key, user)]), user),
        (keys(vec![to(any, user)]), user),
        (keys(vec![to(any, one)]), one),
        (keys(vec![narrowed, to(key, two)]), two),
        (list(vec![], user), user),
        (list(vec![], two), two),
        (list(vec![to(any, one)], user), one),
        (list(vec![behind_the_list], one), one),
        (keys(vec![to(key, user), to(any, user)]), user),
    ];
    filter.set_rules(&all[0].0).expect("rules");
    let bit = |target: Target| 1_u32 << target.number();
    // The targets that the frame may go to at present.
    let may = AtomicU32::new(bit(user));
    let ended = AtomicBool::new(false);
    let runs = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut runs = 0;
            while !ended.load(Relaxed) {
                let before = may.load(SeqCst);
                let target = filter.test_run(&frame).expect("runs");
                let target = target.unwrap_or_else(|| panic!("the frame was missed after {runs} runs"));
                // Between two changes both may be seen.
                if before == may.load(SeqCst) {
                    assert!(bit(target) & before != 0, "{target:?} after {runs} runs, not one of {before:b}");
                }
                runs += 1;
            }
            runs
        });
        // From each to each. Meanwhile, user space may decide.
        let pairs = all.iter().flat_map(|old| all.iter().flat_map(move |new| [old, new]));
        let mut last = user;
        let set = pairs.map(|(rules, target)| {
            may.store(bit(user) | bit(last) | bit(*target), SeqCst);
            last = *target;
            filter.set_rules(rules)?;
            may.store(bit(*target), SeqCst);
            assert_eq!(filter.test_run(&frame)?, Some(*target), "{rules:?}");
            Ok(())
        });
        let set = set.collect::<Result<(), NicError>>();
        ended.store(true, Relaxed);
        set.expect("rules");
        watching.join().expect("no frame was missed")
    });
    assert!(runs > 50, "{runs} runs");
}

#[test]
fn kernel_and_oracle_agree() {
    if !root() {
        return;
    }
    const RANDOM_TABLES: usize = 60;
    const FRAMES: usize = 2500;
    let filter = Filter::load().expect("loads");
    let mut runner = runner();
    let frames = frames(&mut runner, FRAMES);
    let mut tables = probes();
    tables.extend((0..RANDOM_TABLES).map(|_| table().new_tree(&mut runner).expect("a table").current()));
    let mut both = 0;
    for tests in &tables {
        filter.set_rules(&RuleSet::list(tests)).expect("rules");
        let mut matched = 0;
        for frame in &frames {
            let expected = oracle::matched(frame, tests);
            assert_eq!(takes(&filter, frame), expected, "{tests:?}\n{frame:02x?}");
            matched += usize::from(expected);
        }
        both += usize::from(matched > 0 && matched < FRAMES);
    }
    // The comparison is meaningful only if most tables match some frames and not others.
    assert!(both > tables.len() / 2, "{both} of {} tables", tables.len());
}

/// Whether the program takes a frame.
fn takes(filter: &Filter, frame: &[u8]) -> bool {
    filter.test_run(frame).expect("runs").is_some()
}

/// A datagram to port 10 of 10.0.0.2.
fn datagram() -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0, 0, 32, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([0, 9, 0, 10, 0, 12, 0, 0, b'a', b'b', b'c', b'd']);
    frame
}

#[test]
fn the_last_of_many_rules_is_reached() {
    if !root() {
        return;
    }
    let filter = Filter::load().expect("loads");
    let frame = datagram();
    assert!(!takes(&filter, &frame), "an empty table matches nothing");
    let never = Test { min: 1, max: 0, ..udp_to(0)[1] };
    let mut tests = vec![never; MAX_TESTS - 2];
    tests.extend(udp_to(10));
    filter.set_rules(&RuleSet::list(&tests)).expect("rules");
    assert!(takes(&filter, &frame));
    filter.set_rules(&RuleSet::list(&tests[..MAX_TESTS - 2])).expect("rules");
    assert!(!takes(&filter, &frame));
    tests.push(never);
    assert!(matches!(filter.set_rules(&RuleSet::list(&tests)), Err(NicError::Rules(_))));
    assert!(filter.test_run(&[0; 13]).is_err(), "the kernel refuses less than a header");
    assert_eq!(filter.counters().expect("counters"), spin_nic::afxdp::FilterCounters::default());
}
