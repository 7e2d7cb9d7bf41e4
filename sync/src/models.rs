//! Interleavings of two threads: all of them, or all in which no thread is preempted more often than [`bounded`] says. A thread that sleeps for
//! ever is a deadlock, which loom reports.

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::{Bell, Standing, lane, mailbox, notes};

/// As loom's authors advise for what would take long: bugs need few preemptions. All interleavings of these models take hours, those with
/// one preemption more five times as long.
fn bounded() -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(5);
    model
}

#[test]
fn nothing_is_slept_through() {
    loom::model(|| {
        let bell = Bell::new().unwrap();
        let ring = Arc::new(AtomicUsize::new(0));
        let writer = {
            let (bell, ring) = (bell.clone(), ring.clone());
            thread::spawn(move || {
                for count in 1..=2 {
                    ring.store(count, Ordering::Release);
                    bell.ring();
                }
            })
        };
        // Each time it wakes it takes all there is.
        while ring.load(Ordering::Acquire) < 2 {
            let seen = ring.load(Ordering::Acquire);
            bell.sleep(|waiter| {
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
        let (mail, inbox) = mailbox(Bell::new().unwrap());
        let asker = thread::spawn(move || {
            mail.put(1);
            mail.put(2);
            mail
        });
        let mut got = 0;
        while got < 2 {
            match inbox.next() {
                Some(request) => {
                    got += 1;
                    assert_eq!(request, got);
                }
                // Without another look: what came since the last one has signalled.
                None => inbox.sleep(|waiter| waiter.wait()),
            }
        }
        drop(asker.join().unwrap());
    });
}

#[test]
fn all_that_is_lent_comes_back_and_no_ring_is_ever_full() {
    const ALL: u32 = 3;
    bounded().check(|| {
        let own = Bell::new().unwrap();
        let (mut lane, mut arrivals, mut returns) = lane::<u32, u32, u32>(3, 1, own.clone(), Bell::new().unwrap());
        let borrower = thread::spawn(move || {
            let mut done = 0;
            while done < ALL {
                let count = arrivals.len();
                arrivals.take(count, |arrival| {
                    done += 1;
                    assert_eq!(arrival, done, "in order");
                    // Some of them are answered.
                    let blank = returns.blank();
                    returns.staged.extend(blank);
                    returns.staged.push(arrival);
                });
                returns.give_back();
                if done < ALL && arrivals.is_empty() {
                    let bell = arrivals.bell().clone();
                    bell.sleep(|waiter| {
                        if arrivals.is_empty() {
                            waiter.wait();
                        }
                    });
                }
            }
            returns
        });
        let (mut staged, mut home, mut blanks) = (0, 0, 0);
        while home < ALL {
            while staged < ALL && lane.credit() > 0 {
                staged += 1;
                lane.staged.push(staged);
            }
            // One, so that it leaves room.
            lane.hand_over(|| {
                (blanks == 0).then(|| {
                    blanks += 1;
                    100
                })
            });
            let mut came = 0;
            lane.take_back(|back| {
                came += 1;
                home += u32::from(back < 100);
            });
            if came == 0 && home < ALL && (staged == ALL || lane.credit() == 0) {
                own.sleep(|waiter| {
                    if !lane.has_news() {
                        waiter.wait();
                    }
                });
            }
        }
        let mut returns = borrower.join().unwrap();
        let blank = returns.blank();
        returns.staged.extend(blank);
        returns.give_back();
        lane.take_back(|_| ());
        // Of three, one is for the blank that is missing.
        assert_eq!((lane.out(), lane.credit()), (0, 2), "all credit is there again");
    });
}

#[test]
fn what_a_borrower_has_when_it_ends_is_written_off() {
    loom::model(|| {
        let (mut lane, mut arrivals, mut returns) =
            lane::<u32, u32, u32>(2, 0, Bell::new().unwrap(), Bell::new().unwrap());
        let borrower = thread::spawn(move || {
            let mut given = 0;
            // It gives one back, and ends with the other one, or before it came.
            arrivals.take(arrivals.len().min(1), |arrival| {
                given += 1;
                returns.staged.push(arrival);
            });
            returns.give_back();
            arrivals.take(arrivals.len(), drop);
            given
        });
        let (mut lent, mut home) = (0, 0);
        while !lane.is_over() {
            if lent < 2 {
                lane.staged.push(lent);
                lent += 1;
                lane.hand_over(|| None);
            }
            lane.take_back(|back| {
                assert_eq!(back, home, "in order");
                home += 1;
            });
            thread::yield_now();
        }
        assert_eq!(home, borrower.join().unwrap(), "what came back before is there");
        assert_eq!(lane.write_off(), (lent - home) as usize);
        assert_eq!((lane.out(), lane.credit()), (0, 2), "all credit is there again");
    });
}

#[test]
fn what_was_handed_over_has_its_note() {
    bounded().check(|| {
        let (mut lane, mut arrivals, mut returns) =
            lane::<u32, u32, u32>(2, 0, Bell::new().unwrap(), Bell::new().unwrap());
        let ((mut out, mut noted), (mut back, mut heeded)) = (notes::<u32>(2), notes::<u32>(2));
        let borrower = thread::spawn(move || {
            let mut taken = 0;
            while taken < 3 {
                let first = taken;
                taken += arrivals.take(arrivals.len(), |arrival| returns.staged.push(arrival));
                let mut next = first;
                noted.read(taken - first, |&note| {
                    assert_eq!(note, 10 + next as u32, "in order");
                    next += 1;
                    back.staged.push(note + 10);
                });
                back.write(taken - first);
                returns.give_back();
                thread::yield_now();
            }
        });
        let (mut staged, mut home) = (0, 0);
        while home < 3 {
            while staged < 3 && lane.credit() > 0 {
                lane.staged.push(staged);
                out.staged.push(10 + staged);
                staged += 1;
            }
            out.write(lane.ready());
            lane.hand_over(|| None);
            let mut came = Vec::new();
            let count = lane.take_back(|back| came.push(back + 20));
            let mut came = came.into_iter();
            heeded.read(count, |&note| assert_eq!(Some(note), came.next()));
            home += count;
            thread::yield_now();
        }
        borrower.join().unwrap();
    });
}

#[test]
fn who_waits_for_others_to_lend_no_more_has_seen_the_last_of_it() {
    loom::model(|| {
        let (mut lane, mut arrivals, _returns) =
            lane::<u32, u32, u32>(2, 0, Bell::new().unwrap(), Bell::new().unwrap());
        let standing = Arc::new(Standing::default());
        let lender = {
            let standing = standing.clone();
            thread::spawn(move || {
                for lent in 0..2 {
                    lane.staged.push(lent);
                    lane.hand_over(|| None);
                }
                standing.stop_lending();
                lane
            })
        };
        let mut taken = 0;
        loop {
            let needed = standing.lends();
            let count = arrivals.len();
            taken += arrivals.take(count, drop);
            if !needed && count == 0 {
                break;
            }
            thread::yield_now();
        }
        assert_eq!(taken, 2);
        drop(lender.join().unwrap());
    });
}
