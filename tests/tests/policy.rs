//! spind on an interface for users who do not trust each other: what they may match and send, and the ports that become theirs.

#[path = "../../nic/tests/common/mod.rs"]
mod common;
#[path = "../../nic/tests/packet_socket/mod.rs"]
mod packet_socket;

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use common::{FAR, LINK, Link, NEAR, root, run, within};
use rustix::process::Signal;
use spin_tests::{Spind, binary, wait_until};

/// Order to the handler `hostile`: a correct reply.
const NOTHING: u8 = 0;
/// Orders that end in a frame with a forged header: all but a cut one, and the packet as it was sent.
const FORGERIES: std::ops::RangeInclusive<u8> = 1..=15;
/// Memory that frames are sent from: L2, L1, handler memory, scratchpad.
const PLACES: std::ops::Range<u8> = 0..4;
/// Payload behind an order.
const MARK: [u8; 20] = [0x5a; 20];

/// Ordinary users.
const ALICE: u32 = 1101;
const BOB: u32 = 1102;

/// spind in a namespace, with a policy, and programs that all users can run.
struct Lab {
    spind: Spind,
    link: Link,
}

impl Lab {
    fn start(policy: &str) -> Self {
        let link = Link::new(1);
        let spind = within(&link.near, || Spind::start_configured(policy, &["--iface", LINK]));
        let at = |name: &str| spind.socket().with_file_name(name);
        // The folder of the programs may not be open to all users.
        fs::copy(binary("spinctl"), at("spinctl")).expect("a copy");
        for (name, file) in [("udp_pingpong", "reply.elf"), ("hostile", "hostile.elf")] {
            fs::write(at(file), spin_handlers::image(name, &[])).expect("written");
            fs::set_permissions(at(file), fs::Permissions::from_mode(0o644)).expect("chmod");
        }
        Self { spind, link }
    }

    fn folder(&self) -> std::path::PathBuf {
        self.spind.socket().parent().expect("a folder").to_owned()
    }

    /// Runs spinctl as a user. Returns what it printed, or its errors.
    fn ctl(&self, uid: u32, arguments: &[&str]) -> Result<String, String> {
        let mut spinctl = Command::new(self.folder().join("spinctl"));
        spinctl.args(arguments).arg("--socket").arg(self.spind.socket()).uid(uid).gid(uid);
        let output = spinctl.output().expect("it starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// Installs the reply handler as a user, with a name.
    fn install(&self, uid: u32, name: &str, rule: &str) -> Result<String, String> {
        let image = self.folder().join("reply.elf").display().to_string();
        self.ctl(uid, &["install", &image, "--name", name, "--rule", rule])
    }

    /// Installs a handler that forges frames on order.
    fn install_hostile(&self, uid: u32, port: u16) {
        let image = self.folder().join("hostile.elf").display().to_string();
        let (rule, memory) = (format!("udp dport {port}"), ["--handler-mem", "4096", "--scratchpad", "4096"]);
        let arguments = [&["install", &image, "--name", "hostile", "--rule", &rule][..], &memory].concat();
        self.ctl(uid, &arguments).expect("the user may match that");
    }

    /// Orders forgeries from the handler at a port, then a correct reply. Returns how many forged frames arrived at the far end.
    fn forge(&self, port: u16, forgeries: &[[u8; 2]]) -> usize {
        let arrived = packet_socket::listen(&self.link.far, LINK);
        let socket = Link::udp(&self.link.far, &format!("{FAR}:0"));
        let order = |[forgery, place]: [u8; 2]| [&[forgery, place, 0, 0, 0, 0][..], &MARK].concat();
        for &forgery in forgeries.iter().chain([&[NOTHING, 0]]) {
            socket.send_to(&order(forgery), (NEAR, port)).expect("sent");
        }
        let (mut datagram, reply) = ([0; 64], order([NOTHING, 0]));
        // Some forgeries reach the socket, too, if they leave.
        let mut next = || socket.recv(&mut datagram).map(|len| datagram[..len] == reply);
        while !next().expect("a correct reply arrives") {}
        let frames = std::iter::from_fn(|| packet_socket::receive(&arrived));
        // A forged VLAN tag moves the end of the payload out of the frame.
        let mark = &MARK[..MARK.len() - 4];
        let has = |frame: &[u8], bytes: &[u8]| frame.windows(bytes.len()).any(|window| window == bytes);
        frames.filter(|frame| has(frame, mark) && !has(frame, &reply)).count()
    }

    /// Whether a datagram to this port of the near end is answered with itself.
    fn answers(&self, port: u16) -> bool {
        let socket = Link::udp(&self.link.far, &format!("{FAR}:0"));
        // Silence is expected only after another port has answered: the answer would be there at once.
        socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        socket.send_to(b"hello", (NEAR, port)).expect("sent");
        socket.recv(&mut [0; 16]).is_ok_and(|len| len == 5)
    }
}

#[test]
fn a_user_gets_unprivileged_ports_of_the_host_and_nobody_else_has_them() {
    if !root() {
        return;
    }
    let lab = Lab::start("");
    lab.install(ALICE, "echo", "udp dport 9999").expect("by default");
    assert!(lab.answers(9999));
    let listed = lab.ctl(0, &["list"]).expect("root may");
    assert!(listed.contains(&format!("udp dport 9999 and ip dst {NEAR}")), "{listed}");
    let held = run(&format!("ip netns exec {} ss -Hlune sport = :9999", lab.link.near));
    assert!(held.contains(&format!("uid:{ALICE}")), "{held}");
    let refused = lab.install(BOB, "echo", "udp dport 9999").expect_err("taken");
    assert!(refused.contains(&format!("UDP port 9999 is taken by a context of user {ALICE}")), "{refused}");
    lab.install(ALICE, "again", "udp dport 9999").expect("a user's contexts may share a port");
    for name in ["echo", "again"] {
        lab.ctl(ALICE, &["rm", name]).expect("the user's own");
    }
    let free = || within(&lab.link.near, || UdpSocket::bind("0.0.0.0:9999")).is_ok();
    wait_until(free);
    lab.install(BOB, "echo", "udp dport 9999").expect("free again");
}

#[test]
fn other_rules_are_refused_with_the_line_of_the_policy() {
    if !root() {
        return;
    }
    let lab = Lab::start("");
    let other_address = format!("udp dport 9999 and ip dst {FAR}");
    for rule in ["any", "icmp echo", "udp dport 53", "udp dport 40000", "ip[9:1] = 17 and l4[2:2] = 9999"] {
        let refused = lab.install(ALICE, "greedy", rule).expect_err(rule);
        assert!(refused.contains("policy.ports (unprivileged)"), "{refused}");
        assert!(refused.contains(&format!("[policy.user.{ALICE}]")), "{refused}");
        lab.install(0, "root", rule).expect("root may match everything");
        lab.ctl(0, &["rm", "root"]).expect("root's own");
    }
    let refused = lab.install(ALICE, "greedy", &other_address).expect_err("another host's");
    assert!(refused.contains("no packet for an address of this host"), "{refused}");
    let socket = Link::udp(&lab.link.near, &format!("{NEAR}:9990"));
    let refused = lab.install(ALICE, "thief", "udp dport 9990").expect_err("root has a socket there");
    assert!(refused.contains("UDP port 9990 is in use by a socket of user 0"), "{refused}");
    drop(socket);
    lab.install(ALICE, "echo", "udp dport 9990").expect("free");
}

#[test]
fn an_administrator_opens_ports_and_rules_to_users() {
    if !root() {
        return;
    }
    let policy = format!(
        "[policy]\nports = ['udp 53']\n[policy.user.{ALICE}]\nrules = ['icmp echo', 'udp dport 7000-7999']\n\
         [policy.group.{BOB}]\nports = ['unprivileged', 'tcp 80']\n"
    );
    let lab = Lab::start(&policy);
    lab.install(ALICE, "dns", "udp dport 53").expect("opened to all");
    assert!(lab.answers(53));
    lab.install(ALICE, "ping", "icmp echo").expect("opened to the user");
    lab.install(ALICE, "all", "any").expect("narrowed");
    let listed = lab.ctl(ALICE, &["list"]).expect("anybody may");
    assert!(listed.contains("udp dport 7000-7999"), "{listed}");
    assert!(lab.answers(7777) && !lab.answers(9999), "the rule was narrowed");
    let refused = lab.install(ALICE, "echo", "udp dport 9999").expect_err("closed to all");
    assert!(refused.contains("policy.ports (udp 53)"), "{refused}");
    lab.install(BOB, "web", "tcp dport 80").expect("opened to the group");
    lab.install(BOB, "echo", "udp dport 9999").expect("opened to the group");
    let refused = lab.install(BOB, "dns", "udp dport 53").expect_err("the group has ports of its own");
    assert!(refused.contains(&format!("policy.group.{BOB}.ports (unprivileged, tcp 80)")), "{refused}");
}

#[test]
fn nothing_stays_behind_a_killed_spind() {
    if !root() {
        return;
    }
    let lab = Lab::start("");
    lab.install(ALICE, "echo", "udp dport 9999").expect("by default");
    let socket = lab.spind.socket();
    lab.spind.signal(Signal::KILL);
    let gone = || !socket.exists() && within(&lab.link.near, || UdpSocket::bind("0.0.0.0:9999")).is_ok();
    wait_until(gone);
}

#[test]
fn a_user_sends_nothing_but_replies() {
    if !root() {
        return;
    }
    let lab = Lab::start(&format!("[policy.user.{BOB}]\nsend = 'own'\n"));
    let forgeries: Vec<_> = FORGERIES.flat_map(|forgery| PLACES.map(move |place| [forgery, place])).collect();
    lab.install_hostile(ALICE, 9999);
    assert_eq!(lab.forge(9999, &forgeries), 0);
    let counted = |count| format!("commands_forbidden_send  {count}");
    let stats = || lab.ctl(0, &["stats"]).expect("anybody may").split_whitespace().collect::<Vec<_>>().join("  ");
    assert!(stats().contains(&counted(forgeries.len())), "{}", stats());
    lab.ctl(ALICE, &["rm", "hostile"]).expect("the user's own");
    // Destinations are free: a group, another port, another IP address, another MAC address.
    lab.install_hostile(BOB, 9998);
    assert_eq!(lab.forge(9998, &forgeries), 4 * PLACES.len());
    lab.ctl(BOB, &["rm", "hostile"]).expect("the user's own");
    lab.install_hostile(0, 9997);
    assert_eq!(lab.forge(9997, &forgeries), forgeries.len(), "root sends any frame");
}
