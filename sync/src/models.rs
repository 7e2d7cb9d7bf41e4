//! Models of two threads in all interleavings, or in those with at most the number of preemptions that [`bounded`] allows. loom reports a
//! thread that sleeps forever as a deadlock.

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::{PeerStatus, Wakeup, credit_channel, request_queue, sideband};

/// Builder for models whose interleavings take hours. loom's authors advise a bound, since bugs need few preemptions. Each further
/// preemption multiplies the run time by five.
fn bounded() -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(spin_testing::bounded(4, 5));
    model
}

/// Builder for models whose interleavings take a minute: all of them in `make test-long`.
fn bounded_unless_long() -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = spin_testing::bounded(Some(6), None);
    model
}

#[test]
fn no_item_is_slept_through() {
    bounded_unless_long().check(|| {
        let wakeup = Wakeup::new().unwrap();
        let ring = Arc::new(AtomicUsize::new(0));
        let writer = {
            let (wakeup, ring) = (wakeup.clone(), ring.clone());
            thread::spawn(move || {
                for count in 1..=2 {
                    ring.store(count, Ordering::Release);
                    wakeup.notify();
                }
            })
        };
        // Each wake-up takes everything in the ring.
        while ring.load(Ordering::Acquire) < 2 {
            let seen = ring.load(Ordering::Acquire);
            wakeup.sleep(|waiter| {
                if ring.load(Ordering::Acquire) == seen && seen < 2 {
                    waiter.wait();
                }
            });
        }
        writer.join().unwrap();
    });
}

#[test]
fn a_request_ends_the_sleep_that_it_falls_into() {
    loom::model(|| {
        let (requests, received) = request_queue(Wakeup::new().unwrap());
        let asker = thread::spawn(move || {
            requests.send(1);
            requests.send(2);
            requests
        });
        let mut got = 0;
        while got < 2 {
            match received.next() {
                Some(request) => {
                    got += 1;
                    assert_eq!(request, got);
                }
                // No further check is needed: a write since the last check has signalled.
                None => received.sleep(|waiter| waiter.wait()),
            }
        }
        drop(asker.join().unwrap());
    });
}

#[test]
fn all_items_come_back_and_no_ring_is_ever_full() {
    const ALL: u32 = 3;
    bounded().check(|| {
        let own = Wakeup::new().unwrap();
        let (mut tx, mut items, mut returns) =
            credit_channel::<u32, u32, u32>(3, 1, own.clone(), Wakeup::new().unwrap());
        let receiver = thread::spawn(move || {
            let mut done = 0;
            while done < ALL {
                let count = items.len();
                items.take(count, |item| {
                    done += 1;
                    assert_eq!(item, done, "in order");
                    // Some returns carry a refill.
                    let refill = returns.refill();
                    returns.staged.extend(refill);
                    returns.staged.push(item);
                });
                returns.send();
                if done < ALL && items.is_empty() {
                    let wakeup = items.wakeup().clone();
                    wakeup.sleep(|waiter| {
                        if items.is_empty() {
                            waiter.wait();
                        }
                    });
                }
            }
            returns
        });
        let (mut staged, mut home, mut refills) = (0, 0, 0);
        while home < ALL {
            while staged < ALL && tx.credit() > 0 {
                staged += 1;
                tx.staged.push(staged);
            }
            // One refill, so that there is room for another.
            tx.send(|| {
                (refills == 0).then(|| {
                    refills += 1;
                    100
                })
            });
            let mut came = 0;
            tx.reclaim(|back| {
                came += 1;
                home += u32::from(back < 100);
            });
            if came == 0 && home < ALL && (staged == ALL || tx.credit() == 0) {
                own.sleep(|waiter| {
                    if !tx.has_returns() {
                        waiter.wait();
                    }
                });
            }
        }
        let mut returns = receiver.join().unwrap();
        let refill = returns.refill();
        returns.staged.extend(refill);
        returns.send();
        tx.reclaim(|_| ());
        // One of three is reserved for the missing refill.
        assert_eq!((tx.out(), tx.credit()), (0, 2), "all credit is there again");
    });
}

#[test]
fn items_of_a_receiver_that_has_ended_are_written_off() {
    loom::model(|| {
        let (mut tx, mut items, mut returns) =
            credit_channel::<u32, u32, u32>(2, 0, Wakeup::new().unwrap(), Wakeup::new().unwrap());
        let receiver = thread::spawn(move || {
            let mut given = 0;
            // The thread returns one item. It ends with the second item, or before that arrives.
            items.take(items.len().min(1), |item| {
                given += 1;
                returns.staged.push(item);
            });
            returns.send();
            items.take(items.len(), drop);
            given
        });
        let (mut lent, mut home) = (0, 0);
        while !tx.is_closed() {
            if lent < 2 {
                tx.staged.push(lent);
                lent += 1;
                tx.send(|| None);
            }
            tx.reclaim(|back| {
                assert_eq!(back, home, "in order");
                home += 1;
            });
            thread::yield_now();
        }
        assert_eq!(home, receiver.join().unwrap(), "what came back before is there");
        assert_eq!(tx.write_off(), (lent - home) as usize);
        assert_eq!((tx.out(), tx.credit()), (0, 2), "all credit is there again");
    });
}

#[test]
fn items_that_were_sent_have_their_metadata() {
    bounded().check(|| {
        let (mut tx, mut items, mut returns) =
            credit_channel::<u32, u32, u32>(2, 0, Wakeup::new().unwrap(), Wakeup::new().unwrap());
        let ((mut out, mut metadata), (mut back, mut returned_metadata)) = (sideband::<u32>(2), sideband::<u32>(2));
        let receiver = thread::spawn(move || {
            let mut taken = 0;
            while taken < 3 {
                let first = taken;
                taken += items.take(items.len(), |item| returns.staged.push(item));
                let mut next = first;
                metadata.read(taken - first, |&value| {
                    assert_eq!(value, 10 + next as u32, "in order");
                    next += 1;
                    back.staged.push(value + 10);
                });
                back.write(taken - first);
                returns.send();
                thread::yield_now();
            }
        });
        let (mut staged, mut home) = (0, 0);
        while home < 3 {
            while staged < 3 && tx.credit() > 0 {
                tx.staged.push(staged);
                out.staged.push(10 + staged);
                staged += 1;
            }
            out.write(tx.ready());
            tx.send(|| None);
            let mut came = Vec::new();
            let count = tx.reclaim(|back| came.push(back + 20));
            let mut came = came.into_iter();
            returned_metadata.read(count, |&value| assert_eq!(Some(value), came.next()));
            home += count;
            thread::yield_now();
        }
        receiver.join().unwrap();
    });
}

#[test]
fn a_thread_that_waits_for_peers_to_stop_has_seen_their_last_task() {
    loom::model(|| {
        let (mut tx, mut items, _returns) =
            credit_channel::<u32, u32, u32>(2, 0, Wakeup::new().unwrap(), Wakeup::new().unwrap());
        let status = Arc::new(PeerStatus::default());
        let sender = {
            let status = status.clone();
            thread::spawn(move || {
                for lent in 0..2 {
                    tx.staged.push(lent);
                    tx.send(|| None);
                }
                status.stop_lending();
                tx
            })
        };
        let mut taken = 0;
        loop {
            let needed = status.lends();
            let count = items.len();
            taken += items.take(count, drop);
            if !needed && count == 0 {
                break;
            }
            thread::yield_now();
        }
        assert_eq!(taken, 2);
        drop(sender.join().unwrap());
    });
}
