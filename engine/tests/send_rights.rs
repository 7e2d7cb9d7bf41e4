//! What handlers with restricted rights send: the handler `hostile` forges frames on order.

mod common;
#[path = "common/hostile.rs"]
mod hostile;

use std::sync::Arc;

use common::{Kind, Lab, NO_END, ROOT, rule, udp};
use hostile::{AS_SENT, DESTINATIONS, FORGERIES, NOTHING, Order, PLACES, PROTOCOL, STAGES, VICTIM, reply, source};
use spin_abi::command::Status;
use spin_abi::control::{Abi, Install};
use spin_abi::counters::Counter;
use spin_engine::control::policy::Policy;
use spin_engine::control::policy::host::Host;
use spin_engine::control::policy::section::Section;
use spin_engine::install::{MatchSpec, User};
use spin_pspin::hpu::send_rights::SendRights;
use spin_shm::Region;

struct Case {
    lab: Lab,
    id: u32,
    host: Arc<Region>,
}

impl Case {
    fn new(kind: Kind, rights: SendRights, stages: &[&str]) -> Self {
        Self::with(kind, rights, stages, rule("udp dport 1"))
    }

    fn with(kind: Kind, rights: SendRights, stages: &[&str], install: Install) -> Self {
        let mut lab = Lab::new(kind);
        lab.send = rights;
        let image = spin_handlers::image("hostile", stages);
        let install = Install { host_mem: 4096, handler_mem: 4096, scratchpad: 4096, ..install };
        let (id, host) = lab.try_install(&image, install, ROOT).expect("installs");
        Self { lab, id, host: host.expect("host memory") }
    }

    /// The frames that leave on an order, and how many sends were refused.
    fn send(&mut self, order: Order) -> (Vec<Vec<u8>>, u64) {
        let counters = [Counter::CommandsForbiddenSend, Counter::CommandErrors];
        let before = counters.map(|counter| self.lab.count(self.id, counter));
        self.host.write(0, &[0xff; 8]).expect("inside");
        let frames = self.lab.exchange(&[order.frame()]);
        assert!(self.lab.faults(self.id).is_empty(), "{order:?}: {:?}", self.lab.faults(self.id));
        let after = counters.map(|counter| self.lab.count(self.id, counter));
        let [forbidden, errors] = [0, 1].map(|counter| after[counter] - before[counter]);
        assert_eq!(forbidden, errors, "{order:?}: there are no other errors");
        if order.wait {
            let expected = if forbidden > 0 { Status::ForbiddenSend } else { Status::Done };
            let mut status = [0; 8];
            self.host.read(0, &mut status).expect("inside");
            assert_eq!(u64::from_le_bytes(status), expected as u64, "{order:?}");
        }
        (frames, forbidden)
    }

    fn forbids(&mut self, order: Order, about: &str) {
        let (frames, forbidden) = self.send(order);
        assert_eq!((frames, forbidden), (vec![], 1), "{about}, {order:?}");
    }

    fn allows(&mut self, order: Order, about: &str) -> Vec<u8> {
        let (mut frames, forbidden) = self.send(order);
        assert_eq!((frames.len(), forbidden), (1, 0), "{about}, {order:?}");
        frames.pop().expect("one")
    }
}

/// Each order, from each kind of memory, with a wait for the send and without.
fn everywhere(forgeries: &[u8]) -> impl Iterator<Item = Order> {
    let orders = forgeries.iter().flat_map(|&forgery| PLACES.map(|place| Order::new(forgery, place)));
    orders.flat_map(|order| [false, true].map(|wait| Order { wait, ..order }))
}

const KINDS: [Kind; 3] = [Kind::Jit, Kind::Interp, Kind::Check];

#[test]
fn only_correct_replies_leave() {
    for (kind, stages) in KINDS.into_iter().flat_map(|kind| STAGES.map(|stages| (kind, stages))) {
        let mut case = Case::new(kind, SendRights::reply(source()), stages);
        let about = format!("{kind:?} {stages:?}");
        for order in everywhere(&[NOTHING]) {
            assert_eq!(case.allows(order, &about), reply(order), "{about}, {order:?}");
        }
        let forgeries = [&FORGERIES[..], &DESTINATIONS, &[PROTOCOL, AS_SENT]].concat();
        for order in everywhere(&forgeries) {
            case.forbids(order, &about);
        }
        assert_eq!(case.allows(Order::new(NOTHING, 0), &about), reply(Order::new(NOTHING, 0)), "and still");
        // All frames are back.
        let [matched, released] = [Counter::Matched, Counter::Released].map(|counter| case.lab.count(case.id, counter));
        assert_eq!(matched, released, "{about}");
        assert_eq!(case.lab.total(Counter::TxPackets), case.lab.total(Counter::CommandsSend), "{about}");
    }
}

#[test]
fn own_packets_go_anywhere() {
    for (kind, stages) in KINDS.into_iter().flat_map(|kind| STAGES.map(|stages| (kind, stages))) {
        let mut case = Case::new(kind, SendRights::own(source()), stages);
        let about = format!("{kind:?} {stages:?}");
        for order in everywhere(&[&[NOTHING][..], &DESTINATIONS].concat()) {
            case.allows(order, &about);
        }
        for order in everywhere(&[&FORGERIES[..], &[AS_SENT]].concat()) {
            case.forbids(order, &about);
        }
    }
}

#[test]
fn unrestricted_handlers_send_any_frame() {
    for stages in STAGES {
        let mut case = Case::new(Kind::Jit, SendRights::Raw, stages);
        for order in everywhere(&[&FORGERIES[..], &DESTINATIONS, &[NOTHING, PROTOCOL, AS_SENT]].concat()) {
            case.allows(order, "Raw");
        }
    }
}

/// The host would take a forged packet for one from outside, and might send it on.
#[test]
fn the_kernel_gets_no_packet_with_changed_addresses() {
    // Type of service, payload, and no byte; MAC addresses, EtherType, a fragment, IP addresses, ports.
    let (kept, changed) = ([0, 15, 50], [1, 7, 12, 20, 26, 33, 34, 37]);
    for kind in KINDS {
        for (rights, restricted) in [(SendRights::reply(source()), true), (SendRights::Raw, false)] {
            let mut lab = Lab::new(kind);
            lab.send = rights;
            let image = spin_handlers::image("forwards", &[]);
            let (id, _) =
                lab.try_install(&image, Install { verdicts: true, ..rule("udp dport 1") }, ROOT).expect("installs");
            let packet = |at: u8| udp(1, &[&[at][..], &[7; 30]].concat());
            // One by one on the fast path, then all at once.
            let all: Vec<_> = kept.iter().chain(&changed).map(|&at| packet(at)).collect();
            all.iter().for_each(|packet| drop(lab.exchange(std::slice::from_ref(packet))));
            lab.exchange(&all);
            let expected = if restricted { [kept.len(), changed.len(), changed.len()] } else { [all.len(), 0, 0] };
            let counters = [Counter::Passed, Counter::PassForbidden, Counter::DropVerdict];
            assert_eq!(
                counters.map(|counter| lab.count(id, counter)),
                expected.map(|count| 2 * count as u64),
                "{kind:?}"
            );
            assert_eq!(lab.passed.lock().expect("no panic").len(), 2 * expected[0], "{kind:?}");
        }
    }
}

/// The header handler puts a victim's addresses in place of the sender's.
#[test]
fn an_overwritten_packet_does_not_change_its_sender() {
    for (kind, stages) in KINDS.into_iter().flat_map(|kind| [STAGES[1], STAGES[2]].map(|stages| (kind, stages))) {
        let mut case = Case::new(kind, SendRights::reply(source()), stages);
        let about = format!("{kind:?} {stages:?}");
        for order in everywhere(&[NOTHING]) {
            case.forbids(Order { overwrite: 1, ..order }, &about);
            let order = Order { overwrite: 2, ..order };
            assert_eq!(case.allows(order, &about), reply(order), "the sender is still known: {about}, {order:?}");
            // Memory checks are per page: it may write behind the packet.
            let order = Order { overwrite: 3, ..order };
            assert_eq!(case.allows(order, &about), reply(order), "{about}, {order:?}");
            for forgery in [FORGERIES[0], DESTINATIONS[2], DESTINATIONS[3]] {
                case.forbids(Order { forgery, ..order }, &about);
            }
        }
        let mut raw = Case::new(kind, SendRights::Raw, stages);
        let sent = raw.allows(Order { overwrite: 1, ..Order::new(NOTHING, 0) }, &about);
        assert_eq!((sent[5], sent[33]), (VICTIM, VICTIM), "the handler does overwrite it");
    }
}

/// Tasks that wait for each other are parked. A frame whose send was deferred then leaves as a copy.
#[test]
fn parked_tasks_keep_their_rights() {
    for stages in STAGES {
        let install = Install { hpus: Some(2), ..rule("udp dport 1") };
        let mut case = Case::with(Kind::Jit, SendRights::reply(source()), stages, install);
        let order = |forgery, wait, flags| Order { flags, wait, ..Order::new(forgery, 0) };
        let pair = |forgeries: [u8; 2], wait| [order(forgeries[0], wait, [1, 2]), order(forgeries[1], wait, [2, 1])];
        let pairs = [[NOTHING, 1], [1, NOTHING]].map(|forgeries| [false, true].map(|wait| pair(forgeries, wait)));
        for (round, orders) in (1..).zip(pairs.into_iter().flatten()) {
            // Flags stay set, so each round has flags of its own. Each packet is from another port, and thus of another message.
            let orders = orders.map(|order| Order { flags: order.flags.map(|flag| flag + 10 * round), ..order });
            let requests = orders.map(|order| {
                let mut frame = order.frame();
                frame[35] = order.flags[0];
                frame
            });
            let frames = case.lab.exchange(&requests);
            let correct = orders.into_iter().find(|order| order.forgery == NOTHING).expect("one of both");
            let mut expected = reply(correct);
            expected[37] = correct.flags[0];
            assert_eq!(frames, [expected], "{stages:?}, round {round}");
            assert_eq!(case.lab.count(case.id, Counter::CommandsForbiddenSend), u64::from(round));
        }
        assert!(case.lab.count(case.id, Counter::Parked) > 0, "{stages:?}: tasks were parked");
    }
}

/// PsPIN's view of a packet differs from the frame that arrived, on which the rights depend.
#[test]
fn handlers_of_pspins_view_send_only_replies() {
    // Built for no particular ABI.
    let any_abi = "-Wl,--defsym=__spin_abi=0";
    for (kind, place) in KINDS.into_iter().flat_map(|kind| [0, 1].map(|place| (kind, place))) {
        for overwritten in [false, true] {
            let mut lab = Lab::new(kind);
            lab.send = SendRights::reply(source());
            let arguments: &[&str] = if overwritten { &[any_abi, "-DHEADER"] } else { &[any_abi] };
            let install = Install { abi: Abi::Pspin, ..rule("udp dport 1") };
            let (id, _) =
                lab.try_install(&spin_handlers::image("hostile_ip", arguments), install, ROOT).expect("installs");
            let orders: Vec<_> = (0..6).map(|forgery| Order::new(forgery, place)).collect();
            let sent = lab.exchange(&orders.iter().map(|order| order.frame()).collect::<Vec<_>>());
            // A copy in L1 has the overwritten sender, too.
            let expected = if overwritten { 0 } else { 1 };
            assert_eq!(sent.len(), expected, "{kind:?}, place {place}, {overwritten}: {sent:02x?}");
            assert_eq!(lab.count(id, Counter::CommandsForbiddenSend), 6 - expected as u64);
            let addressed = |frame: &Vec<u8>| (frame[..14].to_vec(), frame[26..38].to_vec());
            let correct = reply(Order::new(NOTHING, place));
            assert!(sent.iter().all(|frame| addressed(frame) == addressed(&correct)), "{sent:02x?}");
        }
    }
}

/// A user's rules come with the user's rights, and an administrator's rules leave them as they are.
#[test]
fn new_rules_change_rights_only_if_they_are_a_users() {
    let policy = Policy::new(Section::default()).expect("no keys");
    let user = User(u32::MAX - 7);
    let grant = policy.grant(user.0, user.0, &Host::Absent);
    let rules = ["udp dport 1-9999".to_owned()];
    let asked = MatchSpec::parse(&["udp dport 9999".to_owned()], None).expect("rules");
    let (granted, _) = grant.admit(asked).expect("by default");
    let mut lab = Lab::new(Kind::Jit);
    let install = Install { handler_mem: 4096, scratchpad: 4096, ..rule("udp dport 9999") };
    let (id, _) = lab.try_install(&spin_handlers::image("hostile", &[]), install, user).expect("installs");
    let sent = |lab: &mut Lab, forgery| {
        let mut frame = Order::new(forgery, 0).frame();
        frame[36..38].copy_from_slice(&9999_u16.to_be_bytes());
        lab.exchange(&[frame]).len()
    };
    assert_eq!(sent(&mut lab, FORGERIES[0]), 1, "unrestricted");
    lab.engine.set_rules(id, user, granted).expect("its own");
    assert_eq!([FORGERIES[0], NOTHING].map(|forgery| sent(&mut lab, forgery)), [0, 1]);
    let wider = MatchSpec::parse(&rules, None).expect("rules");
    lab.engine.set_rules(id, ROOT, wider).expect("root may");
    assert_eq!([FORGERIES[0], NOTHING].map(|forgery| sent(&mut lab, forgery)), [0, 1], "still");
}

/// Batches of packets of one message each, of one message, and of none. Behind a header task, packets are queued.
#[test]
fn queued_packets_keep_their_sender() {
    let ends = [None, Some(NO_END), Some("never")];
    let cases = ends.map(|eom| (eom, STAGES[0])).into_iter().chain([(None, STAGES[1]), (Some(NO_END), STAGES[1])]);
    for (eom, stages) in cases {
        let install = Install { eom: eom.map(str::to_owned), ..rule("udp dport 1") };
        let mut case = Case::with(Kind::Jit, SendRights::reply(source()), stages, install);
        let orders: Vec<_> = (0..60).map(|number| Order::new(number % 2, number % 5)).collect();
        let requests: Vec<_> = orders.iter().map(|order| order.frame()).collect();
        let mut sent = case.lab.exchange(&requests);
        let mut expected: Vec<_> = orders.iter().step_by(2).map(|&order| reply(order)).collect();
        sent.sort();
        expected.sort();
        assert_eq!(sent, expected, "{eom:?} {stages:?}");
        assert_eq!(case.lab.count(case.id, Counter::CommandsForbiddenSend), 30, "{eom:?} {stages:?}");
    }
}
