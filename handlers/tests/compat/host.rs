//! FPsPIN's requests to the host program: a handler waits for its answer, which arrives through NIC memory.

use spin_abi::control::Install;
use spin_abi::counters::Counter;
use spin_abi::map::L2_BASE;

use super::common::{Kind, ROOT, udp};
use super::{COMPILERS, FPSPIN, build, host_word};

#[test]
fn a_request_waits_for_the_hosts_answer() {
    for compiler in COMPILERS {
        // The shadow interpreter is tested with whole programs: tests/tests/fpspin.
        for kind in [Kind::Interp, Kind::Jit] {
            let image = build(FPSPIN, compiler, "host.c", &[]);
            let mut lab = FPSPIN.lab(kind);
            // One cluster serves as home for all packets: the answer has another flow than the request.
            let install = Install { hpus: Some(2), rules: vec!["udp".into()], ..FPSPIN.install() };
            let (id, host) = lab.try_install(&image, install, ROOT).expect("installs");
            let host = host.expect("host memory");
            let question: Vec<u8> = (0..40).map(|n| if n == 0 { b'r' } else { n }).collect();
            for request in 1..=3u32 {
                lab.arrive(&[udp(9999, &question)]);
                for _ in 0..50 {
                    lab.poll();
                }
                let page = (0..16u64).find(|hpu| host_word(&host, hpu * 4096) & 0xff == request);
                let hpu = page.expect("an HPU has asked");
                let flag = u64::from(host_word(&host, hpu * 4096 + 4)) << 32 | u64::from(host_word(&host, hpu * 4096));
                assert_eq!((flag >> 8 & 0xffff_ffff, flag >> 40), (40, hpu), "length and HPU");
                let mut asked = vec![0; 40];
                host.read(hpu * 4096 + 64, &mut asked).expect("inside");
                assert_eq!(asked, question, "what is asked");
                assert_eq!(lab.count(id, Counter::Messages), u64::from(request - 1) * 2, "it waits");
                // The host's answer: the request's id, 7 bytes.
                let answer = flag & 0xff | 7 << 8 | hpu << 40;
                let bytes = [&[b'h', u8::try_from(hpu).unwrap(), 0, 0, 0, 0, 0, 0][..], &answer.to_le_bytes()].concat();
                lab.arrive(&[udp(9998, &bytes)]);
                for _ in 0..50 {
                    lab.poll();
                }
                assert_eq!((lab.count(id, Counter::Messages), lab.faults(id)), (u64::from(request) * 2, vec![]));
                let told: Vec<u32> = (0..8).map(|n| host_word(&host, 16 * 4096 + 4 * n)).collect();
                let number = u32::try_from(hpu).unwrap();
                assert_eq!(told[..3], [request, 7, number], "the answer");
                assert_eq!(told[3..5], [7 * request, request], "a counter's sum and count");
                assert!(told[5] > 0 || kind == Kind::Jit, "cycles passed");
                assert_eq!(told[6..], [L2_BASE, number], "where the host finds flags");
            }
        }
    }
}

/// Without a page of host memory for each HPU, `fpspin_check_host_mem` is false, and the handler asks nobody.
#[test]
fn host_memory_has_a_page_for_each_hpu_or_is_too_small() {
    let question: Vec<u8> = (0..40).map(|n| if n == 0 { b'r' } else { n }).collect();
    for compiler in COMPILERS {
        for (host_mem, asks) in [(0, false), (15 * 4096, false), (16 * 4096 - 8, false), (16 * 4096, true)] {
            let image = build(FPSPIN, compiler, "host.c", &[]);
            let mut lab = FPSPIN.lab(Kind::Jit);
            let (id, host) = lab.try_install(&image, Install { host_mem, ..FPSPIN.install() }, ROOT).expect("installs");
            lab.arrive(&[udp(9999, &question)]);
            for _ in 0..50 {
                lab.poll();
            }
            let what = format!("{compiler}, {host_mem} bytes");
            assert_eq!((lab.faults(id), lab.count(id, Counter::CommandErrors)), (vec![], 0), "{what}");
            assert_eq!(lab.count(id, Counter::Messages), u64::from(!asks), "{what}: it waits if it has asked");
            let flags = host.iter().flat_map(|host| (0..host_mem / 4096).map(|page| host_word(host, page * 4096)));
            assert_eq!(flags.filter(|&flag| flag != 0).count(), usize::from(asks), "{what}");
        }
    }
}
