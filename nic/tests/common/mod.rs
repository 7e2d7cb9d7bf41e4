//! Two network namespaces joined by a veth pair, which the test creates and removes.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use spin_abi::rules::{Base, END_OF_RULE, Test};
use spin_nic::{AfXdp, AfXdpConfig, Frame, NicError, Queue};

/// The limit of every wait.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// The name of the interface at both ends.
pub const LINK: &str = "v0";
/// The address of the near end, which has the XDP program.
pub const NEAR: &str = "10.7.0.1";
/// The address of the far end, which has plain sockets.
pub const FAR: &str = "10.7.0.2";

/// Whether the test can run. Prints a message when not.
pub fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        spin_testing::skip("needs root");
    }
    root
}

/// Held while a process starts: between fork and exec the child holds all open descriptors.
static STARTS: RwLock<()> = RwLock::new(());

/// Starts a process.
pub fn start(command: &mut Command) -> io::Result<Child> {
    let _starting = STARTS.read().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// Runs `work` while no other test starts a process. For work that must drop the last reference to a descriptor.
pub fn alone<R>(work: impl FnOnce() -> R) -> R {
    let _alone = STARTS.write().unwrap_or_else(PoisonError::into_inner);
    work()
}

/// Runs a command that must succeed. Returns its output.
pub fn run(command: &str) -> String {
    let mut words = command.split_whitespace();
    let mut process = Command::new(words.next().expect("a command"));
    process.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = start(&mut process).and_then(Child::wait_with_output);
    let output = output.unwrap_or_else(|error| panic!("{command}: {error}"));
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The two namespaces. Dropping it removes them and the link.
pub struct Link {
    pub near: String,
    pub far: String,
}

impl Link {
    /// A veth pair with `queues` queues at each end or more, if `SPIN_UNITS` asks for more units: addressed, up, without offloads.
    pub fn new(queues: u32) -> Self {
        Self::exactly(u64::from(queues).max(spin_testing::from_environment("SPIN_UNITS", 0)))
    }

    /// A veth pair with as many queues.
    pub fn exactly(queues: u64) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("spin-nic-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let link = Self { near: format!("{name}-near"), far: format!("{name}-far") };
        for namespace in [&link.near, &link.far] {
            run(&format!("ip netns add {namespace}"));
            // No neighbour discovery among the frames that a test counts.
            for scope in ["all", "default"] {
                run(&format!("ip netns exec {namespace} sysctl -qw net.ipv6.conf.{scope}.disable_ipv6=1"));
            }
        }
        let sizes = format!("numrxqueues {queues} numtxqueues {queues}");
        let (near, far) = (&link.near, &link.far);
        run(&format!("ip link add {LINK} netns {near} {sizes} type veth peer name {LINK} netns {far} {sizes}"));
        for (namespace, address) in [(near, NEAR), (far, FAR)] {
            run(&format!("ip netns exec {namespace} ethtool -K {LINK} tx off txvlan off rxvlan off"));
            run(&format!("ip -n {namespace} addr add {address}/24 dev {LINK}"));
            run(&format!("ip -n {namespace} link set {LINK} up"));
        }
        // The first frame must need no ARP.
        let mac = |namespace: &str| {
            let shown = run(&format!("ip -n {namespace} -br link show {LINK}"));
            shown.split_whitespace().nth(2).expect("a MAC").to_owned()
        };
        run(&format!("ip -n {far} neigh replace {NEAR} lladdr {} dev {LINK}", mac(near)));
        run(&format!("ip -n {near} neigh replace {FAR} lladdr {} dev {LINK}", mac(far)));
        link
    }

    /// Opens the near end.
    pub fn open(&self, config: &AfXdpConfig) -> Result<AfXdp, NicError> {
        within(&self.near, || AfXdp::open(config))
    }

    /// A plain UDP socket in a namespace, with the read timeout of the tests.
    pub fn udp(namespace: &str, address: &str) -> UdpSocket {
        let socket = within(namespace, || UdpSocket::bind(address)).expect("binds");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        socket
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for namespace in [&self.near, &self.far] {
            let mut command = Command::new("ip");
            command.args(["netns", "del", namespace]).stderr(Stdio::null());
            let _ = start(&mut command).and_then(|mut process| process.wait());
        }
    }
}

/// Runs `work` in a new thread inside a namespace. Sockets that it opens stay in that namespace.
pub fn within<R: Send>(namespace: &str, work: impl FnOnce() -> R + Send) -> R {
    let file = File::open(format!("/run/netns/{namespace}")).expect("the namespace is there");
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(LinkNameSpaceType::Network))
                .expect("setns");
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// One rule: IPv4 UDP to this port.
pub fn udp_to(port: u16) -> [Test; 2] {
    let kind = 0x0800 << 16 | 4 << 8 | 17;
    [
        Test { base: Base::Kind, flags: 0, offset: 0, mask: u32::MAX, min: kind, max: kind },
        Test { base: Base::L4, flags: END_OF_RULE, offset: 0, mask: 0xffff, min: port.into(), max: port.into() },
    ]
}

/// Waits for `count` frames.
pub fn receive(queue: &mut AfXdp, count: usize) -> Vec<Frame> {
    let begin = Instant::now();
    let mut frames = Vec::new();
    while frames.len() < count {
        assert!(begin.elapsed() < TIMEOUT, "{} of {count} frames came; {:?}", frames.len(), queue.counters());
        let wanted = count - frames.len();
        if queue.receive(&mut frames, wanted) == 0 {
            queue.flush().expect("flush");
            queue.wait(None, Duration::from_millis(100)).expect("wait");
        }
    }
    frames
}

/// The value of a counter.
pub fn counter(queue: &mut AfXdp, name: &str) -> u64 {
    let counters = queue.counters();
    counters.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no {name} in {counters:?}")).1
}

/// Swaps source and destination of an untagged IPv4 UDP frame. The checksums stay valid.
pub fn swap_addresses(frame: &mut [u8]) {
    for (a, b, len) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
        for i in 0..len {
            frame.swap(a + i, b + i);
        }
    }
}
