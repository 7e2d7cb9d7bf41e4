//! Rings with one writer and one reader: those of rtrb, or a queue behind a lock for loom.

#[cfg(not(loom))]
pub use on_rtrb::{next_slots, peek, read, send_all, take, write};
#[cfg(not(loom))]
pub use rtrb::{Consumer, Producer, RingBuffer};

#[cfg(loom)]
pub use modelled::{Consumer, Producer, RingBuffer, next_slots, peek, read, send_all, take, write};

#[cfg(not(loom))]
mod on_rtrb {
    //! Taking no item writes nothing: the writer reads the reader's position, too.

    use std::mem::MaybeUninit;

    use rtrb::chunks::ChunkError;
    use rtrb::{Consumer, Producer};

    /// Writes all `items`, which become visible to the reader together. With too few free slots it writes none, and fails with the number
    /// of free slots.
    pub fn send_all<T>(ring: &mut Producer<T>, items: impl ExactSizeIterator<Item = T>) -> Result<usize, usize> {
        match ring.write_chunk_uninit(items.len()) {
            Ok(chunk) => Ok(chunk.fill_from_iter(items)),
            Err(ChunkError::TooFewSlots(room)) => Err(room),
        }
    }

    /// Takes the first `count` items together, or none if there are fewer. Returns how many.
    pub fn take<T>(ring: &mut Consumer<T>, count: usize, each: impl FnMut(T)) -> usize {
        if count == 0 {
            return 0;
        }
        let Ok(chunk) = ring.read_chunk(count) else { return 0 };
        chunk.into_iter().for_each(each);
        count
    }

    /// Shows the waiting items, at most `max`, without taking them.
    pub fn peek<T>(ring: &mut Consumer<T>, max: usize, mut look: impl FnMut(&[T])) {
        let count = ring.slots().min(max);
        let Ok(chunk) = ring.read_chunk(count) else { return };
        let (first, rest) = chunk.as_slices();
        look(first);
        look(rest);
    }

    /// Shows the slots that are written next, at most `max`.
    pub fn next_slots<T>(ring: &mut Producer<T>, max: usize, mut look: impl FnMut(&[MaybeUninit<T>])) {
        // Do not call `slots`: it reads the reader's index, whose cache line is mostly in the other core's cache. The cached index is
        // enough.
        let count = match ring.write_chunk_uninit(max) {
            Ok(_) => max,
            Err(ChunkError::TooFewSlots(room)) => room,
        };
        let Ok(mut chunk) = ring.write_chunk_uninit(count) else { return };
        let (first, rest) = chunk.as_mut_slices();
        look(first);
        look(rest);
    }

    /// Copies all `items` into the ring. Returns `false`, and copies none, when there is no room.
    pub fn write<T: Copy>(ring: &mut Producer<T>, items: &[T]) -> bool {
        ring.push_entire_slice(items).is_ok()
    }

    /// Shows the first `count` items and takes them. Returns `false`, and takes none, when there are fewer.
    pub fn read<T: Copy>(ring: &mut Consumer<T>, count: usize, each: impl FnMut(&T)) -> bool {
        if count == 0 {
            return true;
        }
        let Ok(chunk) = ring.read_chunk(count) else { return false };
        let (first, rest) = chunk.as_slices();
        first.iter().chain(rest).for_each(each);
        chunk.commit_all();
        true
    }
}

/// The part of rtrb that the channels use.
#[cfg(loom)]
mod modelled {
    use std::collections::VecDeque;
    use std::marker::PhantomData;

    use loom::sync::{Arc, Mutex};

    #[derive(Debug)]
    pub struct RingBuffer<T>(PhantomData<T>);
    #[derive(Debug)]
    pub struct Producer<T>(Arc<Mutex<VecDeque<T>>>, usize);
    #[derive(Debug)]
    pub struct Consumer<T>(Arc<Mutex<VecDeque<T>>>);

    impl<T> RingBuffer<T> {
        #[allow(clippy::new_ret_no_self, reason = "as rtrb has it")]
        pub fn new(capacity: usize) -> (Producer<T>, Consumer<T>) {
            let queue = Arc::new(Mutex::new(VecDeque::new()));
            (Producer(queue.clone(), capacity), Consumer(queue))
        }
    }

    impl<T> Producer<T> {
        pub fn slots(&self) -> usize {
            self.1 - self.0.lock().unwrap().len()
        }

        pub fn push(&mut self, item: T) -> Result<(), T> {
            let mut queue = self.0.lock().unwrap();
            if queue.len() == self.1 {
                return Err(item);
            }
            queue.push_back(item);
            Ok(())
        }

        pub fn is_abandoned(&self) -> bool {
            Arc::strong_count(&self.0) == 1
        }
    }

    impl<T> Consumer<T> {
        pub fn slots(&self) -> usize {
            self.0.lock().unwrap().len()
        }

        pub fn is_empty(&self) -> bool {
            self.slots() == 0
        }

        pub fn pop(&mut self) -> Result<T, ()> {
            self.0.lock().unwrap().pop_front().ok_or(())
        }

        pub fn is_abandoned(&self) -> bool {
            Arc::strong_count(&self.0) == 1
        }
    }

    pub fn send_all<T>(ring: &mut Producer<T>, items: impl ExactSizeIterator<Item = T>) -> Result<usize, usize> {
        let mut queue = ring.0.lock().unwrap();
        let (count, room) = (items.len(), ring.1 - queue.len());
        if count > room {
            return Err(room);
        }
        queue.extend(items);
        Ok(count)
    }

    pub fn take<T>(ring: &mut Consumer<T>, count: usize, each: impl FnMut(T)) -> usize {
        let taken: Vec<T> = {
            let mut queue = ring.0.lock().unwrap();
            if count > queue.len() {
                return 0;
            }
            queue.drain(..count).collect()
        };
        taken.into_iter().for_each(each);
        count
    }

    pub fn write<T: Copy>(ring: &mut Producer<T>, items: &[T]) -> bool {
        send_all(ring, items.iter().copied()).is_ok()
    }

    pub fn peek<T>(_: &mut Consumer<T>, _: usize, _: impl FnMut(&[T])) {}

    pub fn next_slots<T>(_: &mut Producer<T>, _: usize, _: impl FnMut(&[std::mem::MaybeUninit<T>])) {}

    pub fn read<T: Copy>(ring: &mut Consumer<T>, count: usize, mut each: impl FnMut(&T)) -> bool {
        take(ring, count, |item| each(&item)) == count
    }
}
