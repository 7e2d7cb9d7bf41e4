//! Reading a context's event ring.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spin_abi::events::{DOORBELL, Event, PAGE, RECORD, RECORDS};
use spin_shm::{EventFd, Region};

use crate::error::Error;

/// Readable events of a page: spind may be overwriting the oldest one.
const KEPT: u64 = RECORDS - 1;

/// A context's event ring in host memory: spind writes it, and the client reads it without a request to spind.
#[derive(Debug)]
pub struct Events {
    region: Arc<Region>,
    /// Number of events read so far, for each page.
    read: Vec<u64>,
    lost: u64,
}

impl Events {
    pub(crate) fn new(region: Region) -> Self {
        let pages = usize::try_from(region.len() / PAGE).unwrap_or(0);
        Self { region: Arc::new(region), read: vec![0; pages], lost: 0 }
    }

    /// Returns the number of events that were overwritten before they were read.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Sleeps until an event can be read, or for `longest`. Returns whether there is one. spind wakes the sleeper after
    /// a batch of packets, or later if the context requests it ([`crate::Install::doorbell_us`]).
    pub fn wait(&self, longest: Duration) -> bool {
        let begun = Instant::now();
        loop {
            let heard = self.region.rings(DOORBELL);
            if self.is_behind() {
                return true;
            }
            let Some(left) = longest.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) else { return false };
            self.region.sleep(DOORBELL, heard, left);
        }
    }

    /// A descriptor for epoll(7) and event loops. It becomes readable when events arrive, and may be readable without one.
    /// [Clear](EventFd::clear) it, then read events until there is none. A thread sleeps until it is dropped, so a
    /// program that can wait for nothing else should [wait](Self::wait).
    ///
    /// # Errors
    /// [`Error::System`] when there is no descriptor or no thread.
    pub fn eventfd(&self) -> Result<EventFd, Error> {
        Ok(EventFd::new(self.region.clone(), DOORBELL)?)
    }

    /// Whether more events were written than read.
    fn is_behind(&self) -> bool {
        let pages = self.read.iter().zip((0..).step_by(PAGE as usize));
        pages.into_iter().any(|(&read, start)| self.written(start).is_some_and(|written| written > read))
    }

    /// Updates the count of lost events, and returns the next event of a page.
    fn next_of(&mut self, page: usize) -> Option<Event> {
        let start = page as u64 * PAGE;
        loop {
            let written = self.written(start)?;
            let number = self.read[page].max(written.saturating_sub(KEPT));
            if number >= written {
                return None;
            }
            self.lost += number - self.read[page];
            self.read[page] = number + 1;
            let mut record = [0; RECORD];
            self.region.read(start + Event::place(number), &mut record).ok()?;
            // The record may have been overwritten during the read; it is then partly or wholly another event's.
            let known = self.written(start)?.saturating_sub(KEPT) <= number;
            match Event::decode(&record, number).filter(|_| known) {
                Some(event) => return Some(event),
                None => self.lost += 1,
            }
        }
    }

    fn written(&self, start: u64) -> Option<u64> {
        let mut count = [0; 8];
        self.region.read(start, &mut count).ok()?;
        Some(u64::from_le_bytes(count))
    }
}

/// Iterates over the unread events. More may be written after it has returned `None`.
impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        (0..self.read.len()).find_map(|page| self.next_of(page))
    }
}

#[cfg(test)]
mod tests {
    use super::{Events, KEPT};
    use spin_abi::events::{Event, PAGE, What};
    use spin_shm::Region;

    fn write(region: &Region, page: u64, number: u64) {
        let event = Event { flow: u32::try_from(number).expect("small"), what: What::TimedOut };
        region.write(page * PAGE + Event::place(number), &event.encode(number)).expect("inside");
        region.write(page * PAGE, &(number + 1).to_le_bytes()).expect("inside");
    }

    fn flows(events: &mut Events) -> Vec<u32> {
        events.map(|event| event.flow).collect()
    }

    #[test]
    fn events_of_all_pages_are_read_once() {
        let region = Region::create(2 * PAGE).expect("memory");
        let fd = region.fd().try_clone_to_owned().expect("a descriptor");
        let mut events = Events::new(Region::from_fd(fd, 2 * PAGE).expect("the same memory"));
        assert!(flows(&mut events).is_empty());
        (0..3).for_each(|number| write(&region, 0, number));
        (0..2).for_each(|number| write(&region, 1, number));
        assert_eq!(flows(&mut events), [0, 1, 2, 0, 1]);
        write(&region, 1, 2);
        assert_eq!((flows(&mut events), events.lost()), (vec![2], 0));
    }

    #[test]
    fn what_was_overwritten_is_counted() {
        let region = Region::create(PAGE).expect("memory");
        (0..KEPT + 10).for_each(|number| write(&region, 0, number));
        let fd = region.fd().try_clone_to_owned().expect("a descriptor");
        let mut events = Events::new(Region::from_fd(fd, PAGE).expect("the same memory"));
        let kept = u32::try_from(KEPT).expect("small");
        assert_eq!(flows(&mut events), (10..kept + 10).collect::<Vec<_>>());
        assert_eq!(events.lost(), 10);
        // An impossible count: no event must be returned.
        region.write(0, &u64::MAX.to_le_bytes()).expect("inside");
        assert!(flows(&mut events).is_empty());
    }
}
