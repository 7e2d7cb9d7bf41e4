//! Rights to send of tasks that run on other threads.

use spin_abi::control::{Install, Schedule};
use spin_abi::counters::Counter;
use spin_pspin::hpu::send_rights::SendRights;

use crate::common::{Kind, NO_END, rule};
use crate::hostile::{Order, reply, source};
use crate::two::Two;

/// A deferred send leaves from the home thread, after the task ran on another thread; all others leave from there.
#[test]
fn lent_tasks_keep_their_rights() {
    let mut away = 0;
    for (kind, place) in [Kind::Jit, Kind::Interp].into_iter().flat_map(|kind| [0, 1, 2].map(|place| (kind, place))) {
        let mut two = Two::new(kind, Schedule::Wlbvt);
        two.send = SendRights::reply(source());
        let install = Install { handler_mem: 4096, eom: Some(NO_END.into()), ..rule("udp dport 1") };
        let id = two.install("hostile", install);
        let orders: Vec<_> = [0, 1].repeat(200).into_iter().map(|forgery| Order::new(forgery, place)).collect();
        let requests: Vec<_> = orders.iter().map(|order| order.frame()).collect();
        let mut sent = Vec::new();
        for requests in requests.chunks(50) {
            two.arrive(0, requests);
            sent.extend(two.settle());
        }
        let right = reply(Order::new(0, place));
        assert!(sent.iter().all(|frame| *frame == right), "{kind:?}, place {place}");
        let forbidden: u64 = [0, 1].map(|at| two.count(at, id, Counter::CommandsForbiddenSend)).iter().sum();
        assert_eq!((sent.len(), forbidden), (200, 200), "{kind:?}, place {place}");
        away += two.sum(Counter::Overflowed);
        two.verify_sums();
    }
    assert!(away > 100, "{away} ran on another thread");
}
