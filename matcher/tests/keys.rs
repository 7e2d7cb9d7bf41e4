//! Message keys are equal exactly when the flows are.

use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq};
use proptest::{collection::vec, proptest};
use spin_matcher::testing::{frames, honest_frames, keys};
use spin_matcher::{Headers, KeySpec};
use spin_testing::bounded;

/// Flow by its documentation, as a list of named values.
fn flow(frame: &[u8], headers: &Headers) -> Vec<(&'static str, Vec<u8>)> {
    let bytes = |start: usize, length: usize| frame[start..start + length].to_vec();
    let mut flow: Vec<_> = (0..usize::from(headers.tags))
        .map(|tag| ("vlan", vec![frame[14 + 4 * tag] & 0x0f, frame[15 + 4 * tag]]))
        .collect();
    let Some(ip) = headers.ip.map(usize::from) else {
        flow.push(("ethernet", [bytes(0, 12), headers.ethertype.to_be_bytes().to_vec()].concat()));
        return flow;
    };
    let (v4, field) = if headers.ip_version == 4 { (true, 9) } else { (false, 6) };
    flow.push(if v4 { ("ipv4", bytes(ip + 12, 8)) } else { ("ipv6", bytes(ip + 8, 32)) });
    let Some(l4) = headers.l4.map(usize::from) else {
        flow.push(("protocol", bytes(ip + field, 1)));
        if v4 {
            flow.push(("identification", bytes(ip + 4, 2)));
        }
        return flow;
    };
    flow.push(("protocol", vec![headers.protocol]));
    let there = headers.end as usize - l4;
    let echo = matches!((headers.protocol, frame[l4]), (1, 0 | 8) | (58, 128 | 129));
    if matches!(headers.protocol, 6 | 17 | 33 | 132 | 136) && there >= 4 {
        flow.push(("ports", bytes(l4, 4)));
    } else if echo && there >= 6 {
        flow.push(("echo", bytes(l4 + 4, 2)));
    }
    flow
}

proptest! {
    #![proptest_config(ProptestConfig { cases: bounded(1000, 3000), ..ProptestConfig::default() })]

    #[test]
    fn keys_are_equal_exactly_when_flows_are(frames in vec(honest_frames(), 2..20)) {
        let spec = KeySpec::default();
        let named: Vec<_> = frames
            .iter()
            .map(|built| (flow(&built.bytes, &built.headers), spec.extract(&built.bytes, &built.headers)))
            .collect();
        for (a, b) in named.iter().flat_map(|a| named.iter().map(move |b| (a, b))) {
            prop_assert_eq!(a.0 == b.0, a.1 == b.1, "{:?} {:?}", a, b);
            prop_assert!(a.1 != b.1 || a.1.hash() == b.1.hash());
        }
    }

    #[test]
    fn every_frame_has_every_key(frame in frames(), spec in keys()) {
        let headers = Headers::parse(&frame);
        let key = spec.extract(&frame, &headers);
        // All ranges fit: they are the end of the key, complete.
        let ranges: Vec<u8> = spec.parts().iter().flat_map(|part| {
            let (start, limit) = match part.base {
                spin_abi::rules::Base::Frame => (Some(0), frame.len()),
                spin_abi::rules::Base::Ip => (headers.ip, headers.end as usize),
                spin_abi::rules::Base::L4 => (headers.l4, headers.end as usize),
                _ => (headers.payload, headers.end as usize),
            };
            let wanted = start.map_or(0..0, |start| {
                let first = usize::from(start) + usize::from(part.offset);
                first..first + usize::from(part.length)
            });
            let bytes: Vec<u8> = wanted.filter(|at| *at < limit).map(|at| frame[at]).collect();
            [vec![u8::try_from(bytes.len()).expect("short")], bytes].concat()
        }).collect();
        prop_assert!(key.to_vec().ends_with(&ranges), "{:?} {:?}", key, ranges);
        prop_assert_eq!(key.to_vec().len() == ranges.len(), !spec.flow());
    }
}

/// Checks that the comparison above meets pairs of equal flows.
#[test]
fn some_flows_repeat() {
    use proptest::strategy::{Strategy, ValueTree};
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let flows: Vec<_> = (0..2000)
        .map(|_| honest_frames().new_tree(&mut runner).expect("a value").current())
        .map(|built| flow(&built.bytes, &built.headers))
        .collect();
    let distinct: std::collections::BTreeSet<_> = flows.iter().collect();
    assert!(distinct.len() > 200 && flows.len() - distinct.len() > 200, "{} distinct", distinct.len());
}
