//! Limits for the payload of requests: the bytes behind a request. There is a limit by kind of request, and one for all requests of a
//! user that are under way. A payload is read before its contents are known. Without limits, the connections of one user together could
//! make spind hold some hundred megabytes, and those of all users some gigabytes.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use spin_abi::control::{MAX_BLOB, Request};
use spin_abi::map::Machine;

use crate::control::config::max_image_size;

/// Maximum payload bytes of a user's requests at the same time: two of the longest payloads.
const USER_BYTES: u64 = 2 * MAX_BLOB as u64;

/// Checks that a request may have a payload of `len` bytes.
///
/// # Errors
/// A text for the user, when it may not.
pub fn check(request: &Request, len: u32, machine: &Machine) -> Result<(), String> {
    let (what, most) = match request {
        Request::Install(_) => ("an image", max_image_size(machine)),
        // At most the whole of one memory.
        Request::WriteMemory { .. } => {
            let memories = [machine.l1_size, machine.l2_data_size.saturating_add(machine.handler_mem_size)];
            ("a write to memory", memories.into_iter().max().unwrap_or(0).into())
        }
        Request::Replay => ("a capture to replay", MAX_BLOB as u64),
        _ if len == 0 => return Ok(()),
        _ => {
            return Err(format!("{len} bytes behind a request that has none: only an image, a write or a capture has"));
        }
    };
    let fits = u64::from(len) <= most;
    fits.then_some(()).ok_or_else(|| format!("{what} of {len} bytes: at most {most} on this machine"))
}

/// Payload bytes of requests that are under way, by user.
#[derive(Default)]
pub struct PayloadLimit {
    users: Mutex<HashMap<u32, u64>>,
    released: Condvar,
}

impl PayloadLimit {
    /// Waits until a user's requests may have `len` further bytes. Other users do not wait.
    pub fn take(&self, user: u32, len: u32) -> PayloadPermit<'_> {
        let len = u64::from(len);
        let many = |users: &mut HashMap<u32, u64>| users.get(&user).is_some_and(|held| held + len > USER_BYTES);
        let users = self.released.wait_while(self.lock(), many);
        *users.unwrap_or_else(PoisonError::into_inner).entry(user).or_default() += len;
        PayloadPermit { limit: self, user, len }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, u64>> {
        // The counts are consistent after every step, even if a thread panics.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The payload bytes of one request, released when dropped.
pub struct PayloadPermit<'l> {
    limit: &'l PayloadLimit,
    user: u32,
    len: u64,
}

impl Drop for PayloadPermit<'_> {
    fn drop(&mut self) {
        let mut users = self.limit.lock();
        if let Some(held) = users.get_mut(&self.user) {
            *held -= self.len;
            if *held == 0 {
                users.remove(&self.user);
            }
        }
        self.limit.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::SeqCst;
    use std::thread;

    use spin_abi::control::{MAX_BLOB, Request};
    use spin_abi::map::Machine;

    use super::{PayloadLimit, USER_BYTES, check};

    #[test]
    fn each_user_has_so_many_at_a_time() {
        let (limit, each) = (PayloadLimit::default(), [0; 3].map(AtomicU64::new));
        thread::scope(|scope| {
            for round in 0..60 {
                let (limit, own) = (&limit, &each[round % 3]);
                scope.spawn(move || {
                    let len = if round % 2 == 0 { MAX_BLOB as u32 } else { round as u32 * 1000 };
                    let _permit = limit.take((round % 3) as u32, len);
                    assert!(own.fetch_add(len.into(), SeqCst) + u64::from(len) <= USER_BYTES);
                    thread::yield_now();
                    own.fetch_sub(len.into(), SeqCst);
                });
            }
        });
        assert!(limit.lock().is_empty());
    }

    #[test]
    fn each_kind_has_a_bound() {
        let install = || Request::Install(Box::default());
        let write = || Request::WriteMemory { context: 1, address: 0, unit: 0 };
        for machine in [Machine::PSPIN, Machine::FPSPIN] {
            for (request, fits) in
                [(install(), 8 << 20), (write(), machine.l1_size), (Request::Replay, MAX_BLOB as u32)]
            {
                assert_eq!(check(&request, fits, &machine), Ok(()));
            }
            let said = [(install(), 15 << 20), (write(), 9 << 20), (Request::List, 1)]
                .map(|(request, len)| check(&request, len, &machine).expect_err("too many"));
            assert!(said[0].starts_with("an image of 15728640 bytes: at most"), "{said:?}");
            assert!(said[1].starts_with("a write to memory of 9437184 bytes: at most"), "{said:?}");
            assert!(said[2].starts_with("1 bytes behind a request that has none"), "{said:?}");
        }
    }
}
