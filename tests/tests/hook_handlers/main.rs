//! Handlers of the SDK in the kernel: those that are eligible load, and do what the interpreter does on every frame, with
//! verdict, frame, memory and counters. Others are refused with a reason.

mod compare;
#[path = "../../../handlers/tests/frames/mod.rs"]
#[allow(dead_code, reason = "a part of it is for tests of replies")]
mod frames;
mod hostile;
mod loaded;
#[path = "../../../hpu-vm/tests/qemu/random.rs"]
#[allow(dead_code, reason = "a part of it is for other tests")]
mod random;
mod reference;
mod traffic;

use compare::{Fared, Pair};
use loaded::{Form, Handler, pin};
use random::Random;
use spin_testing::skip;

/// Frames of sample traffic.
const SAMPLES: usize = 100;

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("loading programs of the XDP hook needs root");
    }
    root
}

/// What has to come of a handler.
enum Expected {
    /// The handler loads in this form, and its samples fare like this.
    Loads(Form, Fared),
    /// The handler is refused for a reason that begins like this.
    Refused(&'static str),
}

use Expected::{Loads, Refused};

const COMMAND: Expected = Refused(
    "not eligible: a command other than a send, or a write or copy to host memory of up to 128 bytes whose number is known (pc 0x1d",
);

/// The handlers of the SDK.
const SHIPPED: [(&str, Expected); 8] = [
    ("udp_pingpong", Loads(Form::Plain, Fared::Sent)),
    ("icmp_echo", Loads(Form::Forgetful, Fared::Sent)),
    ("filtering", COMMAND),
    ("kvstore", Loads(Form::Plain, Fared::Sent)),
    ("strided_ddt", COMMAND),
    ("aggregate", Loads(Form::Plain, Fared::Dropped)),
    ("reduce", Loads(Form::OpaqueForgetful, Fared::Dropped)),
    ("histogram", Loads(Form::Plain, Fared::Dropped)),
];

#[test]
fn handlers_of_the_sdk_load_or_have_a_reason() {
    if !is_root() {
        return;
    }
    let processor = pin();
    for (name, expected) in SHIPPED {
        let handler = Handler::new(name, false, processor);
        match expected {
            Refused(text) => {
                let reason = handler.load(Form::Plain).err().unwrap_or_else(|| panic!("{name} is loaded"));
                assert!(reason.starts_with(text), "{name}: {reason}");
            }
            Loads(form, fared) => {
                let loaded = handler.load(form).unwrap_or_else(|reason| panic!("{name}: {reason}"));
                let (mut pair, mut random) = (Pair::new(&loaded), Random::new(1));
                for _ in 0..SAMPLES {
                    let frame = traffic::sample(name, &mut random);
                    assert_eq!(pair.step(&frame), Ok(fared), "{name}: {frame:02x?}");
                }
                assert_eq!(pair.compare_shared(), Ok(()), "{name}");
            }
        }
    }
}
