//! Contexts whose handlers run in the XDP hook of a veth: tier `kernel`.

#[path = "../../nic/tests/common/mod.rs"]
mod common;

use std::net::Ipv4Addr;

use common::{FAR, LINK, Link, NEAR, root, within};
use serde_json::Value;
use spin_nic::traffic::{Header, Hook, HookProgram, Pattern, Plan};
use spin_tests::{Spind, binary, wait_until};

/// Datagrams of a test.
const COUNT: u32 = 1000;

/// spind with a kernel tier on one end of a link. The other end accepts frames that an XDP program sends.
struct Lab {
    spind: Spind,
    link: Link,
    _accept: Hook,
}

/// Any pattern: the program that accepts frames does not look at them.
fn pattern() -> Pattern {
    let (source, destination) = (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
    let (lengths, flows, header) = (vec![64], vec![1], Header::None);
    Pattern::new(Plan { macs: [[0; 6]; 2], source, destination, port: 1, lengths, flows, header, run: 0 }).expect("a plan")
}

impl Lab {
    fn start(arguments: &[&str]) -> Self {
        let link = Link::new(1);
        let accept = within(&link.far, || Hook::attach(LINK, HookProgram::Accept, &pattern()).expect("root may"));
        let arguments = [&["--iface", LINK], arguments].concat();
        let spind = within(&link.near, || Spind::start_configured("kernel_tier = true\n", &arguments));
        Self { spind, link, _accept: accept }
    }

    fn install(&self, handler: &str, arguments: &[&str]) -> String {
        let image = self.spind.socket().with_file_name(format!("{handler}.elf"));
        std::fs::write(&image, spin_handlers::image(handler, &[])).expect("written");
        let image = image.display().to_string();
        self.spind.ctl_ok(&[&["install", &image, "--name", handler], arguments].concat())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let text = self.spind.ctl_ok(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Sends datagrams to a port one by one, and counts those that come back.
    fn exchange(&self, port: u16, count: u32, len: usize) -> u32 {
        let socket = Link::udp(&self.link.far, &format!("{FAR}:0"));
        let mut answer = vec![0; 2048];
        (0..count)
            .filter(|number| {
                let mut payload = vec![0; len];
                payload[..4].copy_from_slice(&number.to_be_bytes());
                socket.send_to(&payload, (NEAR, port)).expect("sent");
                socket.recv(&mut answer).is_ok_and(|got| answer[..got] == payload)
            })
            .count() as u32
    }
}

#[test]
fn a_handler_in_the_hook_answers_and_counts() {
    if !root() {
        return;
    }
    let _ = binary("spind");
    let lab = Lab::start(&[]);
    let printed = lab.install("udp_pingpong", &["--rule", "udp dport 9999", "--tier", "kernel"]);
    println!("{printed}");
    println!("{}", lab.spind.ctl_ok(&["list"]));
    assert_eq!(lab.exchange(9999, COUNT, 64), COUNT);
    println!("{}", lab.spind.ctl_ok(&["stats"]));
    println!("{}", lab.json(&["stats"]));
    wait_until(|| true);
}
