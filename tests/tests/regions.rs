//! Regions that applications attach to contexts: kinds of memory, addresses, and what an application may do to its memory.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use libspin::{Client, Error, Install, Lifetime, Region};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use spin_abi::counters::Counter;
use spin_nic::pcap::{Packet, read_all, write_all};
use spin_testing::bounded;
use spin_tests::{Spind, image, udp};

const PAGE: u64 = 4096;
const HUGE_PAGE: u64 = 2 << 20;
/// Bytes of a request of `host_copy.c` before those of the copy.
const HEAD: usize = 10;
/// Asks for a copy from host memory.
const FROM_HOST: u16 = 0x8000;
/// Longest copy in a datagram.
const LONGEST: usize = 1400;
/// Offset of the payload in a datagram's frame.
const PAYLOAD: usize = 42;
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Huge pages of the machine, for one test at a time. Their number is what it was when this is dropped.
struct HugePages {
    before: u64,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl HugePages {
    const FILE: &str = "/proc/sys/vm/nr_hugepages";

    /// Has the machine keep pages in reserve; `None` if this is not allowed or there is no memory.
    fn reserve(pages: u64) -> Option<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // Those in surplus go when a program ends that has them.
        let kept = Self { before: Self::count("HugePages_Total:") - Self::count("HugePages_Surp:"), _turn: turn };
        let is_there = Self::set(kept.before + pages) && Self::count("HugePages_Free:") >= pages;
        if !is_there {
            spin_testing::skip("there are no huge pages");
        }
        is_there.then_some(kept)
    }

    fn set(pages: u64) -> bool {
        fs::write(Self::FILE, pages.to_string()).is_ok()
    }

    /// A count of /proc/meminfo.
    fn count(name: &str) -> u64 {
        let text = fs::read_to_string("/proc/meminfo").expect("there");
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("known");
        line.trim().parse().expect("a number")
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        Self::set(self.before);
    }
}

/// Starts spind with regions of up to 1 GiB, and a client of it.
fn start() -> (Spind, Client) {
    let spind = Spind::start_configured("[limits]\nhost_mem = '1G'\n", &["--nic", "loopback"]);
    let client = Client::connect(spind.socket()).expect("it listens");
    (spind, client)
}

/// Installs `host_copy.c` for a port.
fn install(client: &mut Client, port: u16, host_mem: u64, lifetime: Lifetime) -> libspin::Context {
    let rules = vec![format!("udp dport {port}")];
    client
        .install(&Install { rules, host_mem, lifetime, ..Install::default() }, &image("host_copy"))
        .expect("installed")
}

/// A datagram that asks for a copy to host memory, or from there.
fn request(port: u16, address: u64, flags: u16, bytes: &[u8]) -> Packet {
    let word = u16::try_from(bytes.len()).expect("short") | flags;
    Packet::whole(0, udp(port, &[&address.to_le_bytes()[..], &word.to_le_bytes(), bytes].concat()))
}

/// Replays datagrams. Returns the bytes read from host memory.
fn replay(client: &mut Client, packets: &[Packet]) -> Vec<Vec<u8>> {
    let sent = read_all(&client.replay(&write_all(packets)).expect("replayed")).expect("a capture");
    sent.into_iter().map(|packet| packet.data[PAYLOAD + HEAD..].to_vec()).collect()
}

/// A counter of a context.
fn count(client: &mut Client, context: u32, counter: Counter) -> u64 {
    let contexts = client.contexts().expect("a list");
    contexts.iter().find(|info| info.context == context).expect("installed").counters.get(counter)
}

/// A memory file, and its first `allocated` bytes.
fn memfd(len: u64, allocated: u64, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
    rustix::fs::ftruncate(&fd, len).expect("a length");
    if allocated > 0 {
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, allocated).expect("memory");
    }
    rustix::fs::fcntl_add_seals(&fd, seals).expect("seals");
    fd
}

/// Punches a hole of a whole file.
fn punch(region: &Region) {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(region.fd(), hole, 0, region.len()).expect("a hole");
}

/// The first four bytes of a region.
fn first_bytes(region: &Region) -> [u8; 4] {
    region.load_u32(0).expect("within it").to_le_bytes()
}

/// A region of the test, and what it should hold.
struct Shadow {
    region: Region,
    bytes: Vec<u8>,
}

impl Shadow {
    fn new(region: Region) -> Self {
        let bytes = vec![0; usize::try_from(region.len()).expect("memory")];
        Self { region, bytes }
    }

    /// A random range of at most [`LONGEST`] bytes, often at one of the ends.
    fn range(&self, random: &mut Rng) -> std::ops::Range<usize> {
        let len = random.usize(1..=LONGEST);
        let last = self.bytes.len() - len;
        let start = [0, last, random.usize(..=last), random.usize(..=last)][random.usize(..4)];
        start..start + len
    }

    fn address(&self, offset: usize) -> u64 {
        self.region.address() + offset as u64
    }
}

/// Sizes of regions: three in huge pages, and seven in others. With `SPIN_TEST_LONG=1` they are 1 GiB in all.
fn sizes() -> ([u64; 3], [u64; 7]) {
    let some = ([HUGE_PAGE; 3], [8 << 20, 4 << 20, 1 << 20, 64 << 10, PAGE, 3 * PAGE, 7 * PAGE]);
    let huge = [HUGE_PAGE, 30 * HUGE_PAGE, 33 * HUGE_PAGE];
    let small = [512 << 20, 128 << 20, 127 << 20, 126 << 20, PAGE, 3 * PAGE, (3 << 20) - 4 * PAGE];
    assert_eq!(huge.iter().chain(&small).sum::<u64>(), 1 << 30);
    bounded(some, (huge, small))
}

#[test]
fn ten_regions_of_mixed_kinds_are_reached_by_their_own_addresses() {
    let (_spind, mut client) = start();
    let (huge, small) = sizes();
    let reserved = HugePages::reserve(huge.iter().sum::<u64>() / HUGE_PAGE);
    let context = install(&mut client, 9999, PAGE, Lifetime::Connection);
    let own = Shadow::new(context.host.expect("host memory"));
    let mut regions = vec![own];
    for len in huge {
        let made = if reserved.is_some() { Region::create_huge(len, HUGE_PAGE) } else { Region::create(len) };
        regions.push(Shadow::new(made.expect("memory")));
    }
    for (index, len) in small.into_iter().enumerate() {
        // Those of libspin and those that a program made itself.
        let made = if index % 2 == 0 { Region::create(len) } else { Region::from_fd(memfd(len, len, SEALS), len) };
        regions.push(Shadow::new(made.expect("memory")));
    }
    regions[1..].iter().for_each(|shadow| client.attach(context.id, &shadow.region).expect("attached"));
    let mut random = Rng::with_seed(52);
    let mut refused = 0;
    for _ in 0..bounded(4, 100) {
        let (mut packets, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..1000 {
            let index = random.usize(..regions.len());
            let shadow = &mut regions[index];
            let range = shadow.range(&mut random);
            let bytes: Vec<u8> = range.clone().map(|_| random.u8(..)).collect();
            match random.u8(..8) {
                0 | 1 => {
                    packets.push(request(9999, shadow.address(range.start), FROM_HOST, &bytes));
                    expected.push(shadow.bytes[range].to_vec());
                }
                // Beyond the end or before the start by one byte, which may be another region's.
                2 if bytes.len() > 1 => {
                    let outside = [shadow.address(shadow.bytes.len() - bytes.len() + 1), shadow.address(0) - 1];
                    packets.push(request(9999, outside[random.usize(..2)], 0, &bytes));
                    refused += 1;
                }
                _ => {
                    packets.push(request(9999, shadow.address(range.start), 0, &bytes));
                    shadow.bytes[range].copy_from_slice(&bytes);
                }
            }
        }
        assert!(replay(&mut client, &packets) == expected, "bytes that were read differ");
    }
    for (index, shadow) in regions.iter().enumerate() {
        let mut bytes = vec![0; shadow.bytes.len()];
        shadow.region.read(0, &mut bytes).expect("all of it");
        assert!(bytes == shadow.bytes, "bytes of region {index} differ");
    }
    assert_eq!(count(&mut client, context.id, Counter::CommandsBadHostAddress), refused);
    for shadow in &regions[1..] {
        client.detach(context.id, shadow.region.address()).expect("attached");
        replay(&mut client, &[request(9999, shadow.region.address(), 0, b"?")]);
    }
    let detached = regions.len() as u64 - 1;
    assert_eq!(count(&mut client, context.id, Counter::CommandsBadHostAddress), refused + detached);
}

/// Attaches a file, which must be refused for a reason.
fn refused(client: &mut Client, context: u32, file: &dyn AsFd, (address, len): (u64, u64), reason: &str) {
    match client.attach_file(context, file.as_fd(), address, len) {
        Err(Error::Refused(said)) => assert!(said.contains(reason), "{reason}: {said}"),
        other => panic!("{reason}: {other:?}"),
    }
    // The connection goes on.
    assert_eq!(client.contexts().expect("a list").len(), 1);
}

#[test]
fn what_cannot_be_attached_is_refused_with_the_reason() {
    let (_spind, mut client) = start();
    let context = install(&mut client, 9999, PAGE, Lifetime::Connection).id;
    let whole = Region::create(PAGE).expect("memory");
    let (at, seals) = (0x7000_0000, "F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_SEAL");
    let folder = tempfile::tempdir().expect("a folder");
    let on_disk = tempfile::tempfile_in(folder.path()).expect("a file");
    let socket = std::os::unix::net::UnixStream::pair().expect("sockets").0;
    let pipe = std::io::pipe().expect("a pipe").0;
    let device = fs::File::open("/dev/zero").expect("a device");
    for file in [&on_disk as &dyn AsFd, &socket, &pipe, &device, &fs::File::open(folder.path()).expect("a folder")] {
        refused(&mut client, context, file, (at, PAGE), "not of a memory file");
    }
    let shm = tempfile::tempfile_in("/dev/shm").expect("a file on tmpfs");
    rustix::fs::ftruncate(&shm, PAGE).expect("a length");
    refused(&mut client, context, &shm, (at, PAGE), seals);
    for missing in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
        refused(&mut client, context, &memfd(PAGE, PAGE, SEALS - missing), (at, PAGE), seals);
    }
    refused(&mut client, context, &memfd(PAGE, PAGE, SEALS | SealFlags::WRITE), (at, PAGE), "sealed against writing");
    refused(
        &mut client,
        context,
        &memfd(PAGE, PAGE, SEALS | SealFlags::FUTURE_WRITE),
        (at, PAGE),
        "sealed against writing",
    );
    refused(&mut client, context, &memfd(5000, 5000, SEALS), (at, 5000), "not whole pages");
    refused(&mut client, context, &memfd(2 * PAGE, PAGE, SEALS), (at, 2 * PAGE), "fallocate(2)");
    refused(&mut client, context, &whole.fd(), (at, 2 * PAGE), "8192 were announced");
    refused(&mut client, context, &whole.fd(), (at, 2 << 30), "host_mem = 2147483648");
    refused(&mut client, context, &whole.fd(), (u64::MAX - 1, PAGE), "beyond the last address");
    let read_only = fs::File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&whole.fd())));
    refused(&mut client, context, &read_only.expect("it may be read"), (at, PAGE), "map shared memory");
    for index in 0..16 {
        client.attach_file(context, whole.fd(), at + index * PAGE, PAGE).expect("attached");
    }
    refused(&mut client, context, &whole.fd(), (0x9000_0000, PAGE), "16 attached regions");
    client.detach(context, at).expect("attached");
    refused(&mut client, context, &whole.fd(), (at + 1, PAGE), "overlap");
    assert!(client.detach(context, at).expect_err("it is detached").to_string().contains("no attached region"));
    assert!(client.attach(context + 1, &whole).expect_err("no such context").to_string().contains("no context"));
}

#[test]
fn what_an_application_does_to_its_memory_costs_no_neighbour_a_packet() {
    let (spind, mut client) = start();
    let neighbour = install(&mut client, 1, PAGE, Lifetime::Connection);
    let there = neighbour.host.expect("host memory").address();
    let reserved = HugePages::reserve(4);
    let huge = reserved.as_ref().map(|_| Region::create_huge(4 * HUGE_PAGE, HUGE_PAGE).expect("huge pages"));
    let (punched, left) = (Region::create(1 << 20).expect("memory"), Region::create(1 << 20).expect("memory"));
    let mut application = Client::connect(spind.socket()).expect("it listens");
    let context = install(&mut application, 2, 0, Lifetime::Daemon).id;
    let regions: Vec<_> = [&punched, &left].into_iter().chain(&huge).collect();
    for region in &regions {
        application.attach(context, region).expect("attached");
        assert_eq!(rustix::fs::ftruncate(region.fd(), 0), Err(rustix::io::Errno::PERM), "it is sealed");
    }
    let mut written = 0;
    let mut all_write = |client: &mut Client, addresses: &[u64]| {
        let packets: Vec<_> = (0..50)
            .flat_map(|number| addresses.iter().map(move |address| request(2, address + number * 512, 0, b"mine")))
            .flat_map(|mine| [mine, request(1, there, 0, b"neighbour"), request(1, there, FROM_HOST, b"?")])
            .collect();
        let answered = replay(client, &packets).len();
        assert_eq!(answered, packets.len() / 3, "a neighbour's packet was lost");
        written += answered as u64;
        written
    };
    let addresses: Vec<_> = regions.iter().map(|region| region.address()).collect();
    all_write(&mut client, &addresses);
    assert_eq!(first_bytes(&punched), *b"mine");

    punch(&punched);
    assert_eq!(first_bytes(&punched), [0; 4]);
    all_write(&mut client, &addresses);
    assert_eq!((first_bytes(&punched), count(&mut client, context, Counter::CommandErrors)), (*b"mine", 0));

    // The application unmaps a region, and dies.
    drop((left, application));
    all_write(&mut client, &addresses);
    assert_eq!(count(&mut client, context, Counter::CommandErrors), 0);

    if let Some(huge) = &huge {
        punch(huge);
        // The machine has no huge page left for the hole.
        assert!(HugePages::set(0) && HugePages::count("HugePages_Free:") == 0);
        let lost = all_write(&mut client, &addresses[2..]);
        assert!(lost > 0);
        let refused = count(&mut client, context, Counter::CommandsBadHostAddress);
        // The first copy reached zeroes of spind instead of the application.
        assert_eq!(refused, 49, "later copies are refused and counted");
        all_write(&mut client, &addresses[..2]);
    }
    drop(reserved);
    client.remove(context).expect("installed");
    all_write(&mut client, &[]);
}
