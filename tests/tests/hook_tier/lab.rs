//! spind with a kernel tier on a veth, and what programs are in the kernel.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use libbpf_rs::query::{MapInfoIter, ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use serde_json::Value;
use spin_nic::traffic::{Header, Hook, HookProgram, Pattern, Plan};
use spin_tests::{Spind, binary};

use crate::common::{FAR, LINK, Link, NEAR, within};

/// An ordinary user, whom the policy allows the kernel tier.
pub const ALICE: u32 = 1101;

/// spind with a kernel tier on one end of a link. The other end accepts frames that an XDP program sends.
pub struct Lab {
    pub spind: Spind,
    pub link: Link,
    /// The program at the far end, which has frames accepted there.
    pub far: Hook,
}

/// Any pattern: the program that accepts frames does not look at them.
fn pattern() -> Pattern {
    let (source, destination) = (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
    let (lengths, flows, header) = (vec![64], vec![1], Header::None);
    Pattern::new(Plan { macs: [[0; 6]; 2], source, destination, port: 1, lengths, flows, header, run: 0 })
        .expect("a plan")
}

impl Lab {
    pub fn start(arguments: &[&str]) -> Self {
        let link = Link::new(1);
        Self::start_with(link, HookProgram::Accept, &pattern(), arguments, "")
    }

    /// With more lines of configuration.
    pub fn start_configured(lines: &str) -> Self {
        Self::start_with(Link::new(1), HookProgram::Accept, &pattern(), &[], lines)
    }

    /// With a program of its own at the far end of a link.
    pub fn start_with(link: Link, program: HookProgram, pattern: &Pattern, arguments: &[&str], lines: &str) -> Self {
        let far = within(&link.far, || Hook::attach(LINK, program, pattern).expect("root may"));
        let arguments = [&["--iface", LINK], arguments].concat();
        let config = format!("kernel_tier = true\n[policy.user.{ALICE}]\nkernel_tier = true\n{lines}");
        let spind = within(&link.near, || Spind::start_configured(&config, &arguments));
        Self { spind, link, far }
    }

    /// The path of a handler's image.
    pub fn image(&self, handler: &str) -> String {
        let image = self.spind.socket().with_file_name(format!("{handler}.elf"));
        std::fs::write(&image, spin_handlers::image(handler, &[])).expect("written");
        image.display().to_string()
    }

    pub fn install(&self, handler: &str, arguments: &[&str]) {
        self.spind.ctl_ok(&[&["install", &self.image(handler), "--name", handler], arguments].concat());
    }

    /// Installs a handler for a rule as an ordinary user.
    pub fn install_as(&self, uid: u32, handler: &str, rule: &str, tier: &str) {
        let image = self.image(handler);
        // The folder of the programs may not be open to all users.
        let spinctl = self.spind.socket().with_file_name("spinctl");
        std::fs::copy(binary("spinctl"), &spinctl).expect("a copy");
        let mut command = Command::new(spinctl);
        command
            .args(["install", &image, "--name", handler, "--rule", rule, "--tier", tier])
            .arg("--socket")
            .arg(self.spind.socket());
        assert!(command.uid(uid).gid(uid).status().expect("it starts").success(), "{handler} as user {uid}");
    }

    /// The daemon's errors when it refuses to install a handler.
    pub fn refused(&self, handler: &str, arguments: &[&str]) -> String {
        let output = self.spind.ctl(&[&["install", &self.image(handler)], arguments].concat());
        assert!(!output.status.success(), "{handler} is installed");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    pub fn json(&self, request: &str) -> Value {
        let text = self.spind.ctl_ok(&[request, "--json"]);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Counters of one context, by name.
    pub fn counts<const N: usize>(&self, context: u32, names: [&str; N]) -> [u64; N] {
        let stats = self.json("stats");
        let counters = &stats["contexts"][context.to_string()]["counters"];
        names.map(|name| counters[name].as_u64().unwrap_or_else(|| panic!("{name} in {counters}")))
    }

    /// Counters of the engine, by name.
    pub fn totals<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        let stats = self.json("stats");
        names.map(|name| stats["engine"][name].as_u64().unwrap_or_else(|| panic!("{name} in {stats}")))
    }

    pub fn client(&self) -> UdpSocket {
        Link::udp(&self.link.far, &format!("{FAR}:0"))
    }

    /// Sends datagrams to a port one by one, and counts those that come back.
    pub fn exchange(&self, port: u16, count: u32, len: usize) -> u32 {
        let socket = self.client();
        socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        let mut answer = vec![0; 2048];
        let is_answered = |number: &u32| {
            let mut payload = vec![0x5a; len];
            payload[..4].copy_from_slice(&number.to_be_bytes());
            socket.send_to(&payload, (NEAR, port)).expect("sent");
            socket.recv(&mut answer).is_ok_and(|got| answer[..got] == payload)
        };
        (0..count).filter(is_answered).count() as u32
    }
}

/// The programs in the kernel with this name.
pub fn programs(name: &str) -> Vec<ProgramInfo> {
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    ProgInfoIter::with_query_opts(options).filter(|program| program.name == name).collect()
}

/// Whether one of the programs, or one of their maps, is still in the kernel.
pub fn exist(of: &[ProgramInfo]) -> bool {
    ProgInfoIter::default().any(|program| of.iter().any(|other| other.id == program.id))
        || MapInfoIter::default().any(|map| of.iter().any(|other| other.map_ids.contains(&map.id)))
}
