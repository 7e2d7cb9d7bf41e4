//! Packet views, byte by byte: queued, seen by handlers, sent and passed on.

use spin_abi::control::{Abi, Install};
use spin_abi::counters::Counter;

use super::common::{Kind, ROOT, udp};
use super::{FPSPIN, PSPIN, Target, build};

/// Sends each packet as the handler sees it, from the copy in L1 or L2.
fn mirror(target: Target, frames: &[Vec<u8>], options: &[&str]) -> Vec<Vec<u8>> {
    let mut lab = target.lab(Kind::Check);
    let image = build(target, "clang", "mirror.c", options);
    let install = Install { rules: vec!["any".into()], ..target.install() };
    let (id, _) = lab.try_install(&image, install, ROOT).expect("installs");
    // Frames arrive one by one, since replies of several messages in a batch may be sent in another order.
    let replies = frames.iter().flat_map(|frame| lab.exchange(std::slice::from_ref(frame))).collect();
    assert_eq!(lab.faults(id), []);
    replies
}

fn turned(frame: &[u8]) -> Vec<u8> {
    [&frame[6..12], &frame[..6], &frame[12..]].concat()
}

fn tagged(frame: &[u8], tags: &[[u8; 4]]) -> Vec<u8> {
    [&frame[..12], &tags.concat(), &frame[12..]].concat()
}

#[test]
fn pspin_sees_packets_without_their_link_layer_and_sends_them_with_it() {
    let plain = udp(1, b"odd");
    let vlan = tagged(&plain, &[[0x81, 0, 0, 5]]);
    let two = tagged(&plain, &[[0x88, 0xa8, 0, 5], [0x81, 0, 0, 6]]);
    let other = [&plain[..12], &[0x88, 0xb5], &[9; 30][..]].concat();
    let mut without = plain.clone();
    without[40..42].fill(0);
    let mut fragment = plain.clone();
    fragment[20..22].copy_from_slice(&0x2001u16.to_be_bytes());
    let mut padded = plain.clone();
    padded.resize(60, 0xee);
    for options in [&["-DL2"][..], &[]] {
        let frames = [&plain, &vlan, &two, &other, &without].map(Clone::clone);
        let expected: Vec<_> = frames.iter().map(|frame| turned(frame)).collect();
        assert_eq!(mirror(PSPIN, &frames, options), expected);
        assert_eq!(mirror(PSPIN, &[padded.clone()], options), [turned(&plain)], "padding is no part of a packet");
        // The header checksum no longer matched and is recomputed.
        let [reply] = &mirror(PSPIN, &[fragment.clone()], options)[..] else { panic!("one reply") };
        assert_eq!((&reply[..24], &reply[26..]), (&turned(&fragment)[..24], &fragment[26..]));
    }
}

#[test]
fn fpspin_sees_and_sends_frames() {
    let mut padded = udp(1, b"odd");
    padded.resize(60, 0xee);
    assert_eq!(mirror(FPSPIN, &[padded.clone()], &[]), [padded.clone()]);
    assert_eq!(mirror(FPSPIN, &[padded.clone()], &["-DL2"]), [padded]);
}

#[test]
fn pspin_cannot_answer_a_group() {
    let mut frame = udp(1, b"all");
    frame[..6].fill(0xff);
    let mut lab = PSPIN.lab(Kind::Check);
    let image = build(PSPIN, "clang", "mirror.c", &[]);
    let (id, _) = lab.try_install(&image, Install { rules: vec!["any".into()], ..PSPIN.install() }, ROOT).unwrap();
    assert_eq!(lab.exchange(&[frame]), Vec::<Vec<u8>>::new());
    assert_eq!(lab.count(id, Counter::CommandErrors), 1, "there is no address to send it from");
}

#[test]
fn frames_of_any_length_are_shown_and_sent() {
    for target in [PSPIN, FPSPIN] {
        let whole = udp(1, &[7; 40]);
        let frames: Vec<_> = (14..=whole.len()).map(|len| whole[..len].to_vec()).collect();
        let replies = mirror(target, &frames, &[]);
        // PsPIN's handlers see nothing of a frame that ends with its link-layer header, and send nothing.
        let expected = frames.len() - usize::from(target == PSPIN);
        assert_eq!(replies.len(), expected, "{}", target.abi);
        // The frames are messages of several clusters, so their order may differ.
        let mut lengths: Vec<_> = replies.iter().map(Vec::len).collect();
        lengths.sort_unstable();
        assert_eq!(lengths, (whole.len() + 1 - expected..=whole.len()).collect::<Vec<_>>());
    }
}

/// Packets that a PsPIN handler passes to the kernel are unchanged.
#[test]
fn the_kernel_gets_frames_of_the_wire() {
    let mut lab = PSPIN.lab(Kind::Check);
    let image = build(PSPIN, "clang", "mirror.c", &["-DPASS"]);
    let (id, _) = lab.try_install(&image, Install { verdicts: true, ..PSPIN.install() }, ROOT).expect("installs");
    let frame = udp(9999, b"for the kernel");
    assert_eq!(lab.exchange(std::slice::from_ref(&frame)), Vec::<Vec<u8>>::new());
    assert_eq!(lab.count(id, Counter::Passed), 1);
    assert_eq!(*lab.passed.lock().unwrap(), [frame]);
}

#[test]
fn fpspin_handlers_know_two_clusters() {
    let mut lab = PSPIN.lab(Kind::Jit);
    let image = build(FPSPIN, "clang", "mirror.c", &[]);
    let install = Install { abi: Abi::Fpspin, ..FPSPIN.install() };
    let refused = lab.try_install(&image, install, ROOT).unwrap_err().to_string();
    assert!(refused.contains("run spind --preset fpspin"), "{refused}");
}

#[test]
fn an_image_is_installed_for_the_abi_that_it_was_built_for() {
    for (built, asked) in [(PSPIN, FPSPIN), (FPSPIN, PSPIN)] {
        let image = build(built, "clang", "falls.c", &[]);
        let mut lab = FPSPIN.lab(Kind::Jit);
        let refused = lab.try_install(&image, asked.install(), ROOT).unwrap_err().to_string();
        let told =
            format!("it was built for abi {} (spin-cc --abi), and is to be installed for {}", built.abi, asked.abi);
        assert!(refused.contains(&told), "{refused}");
    }
}
