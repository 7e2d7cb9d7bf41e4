//! Expected results of a case, computed one packet at a time. Written from the handlers' descriptions, independently of
//! their code.

use super::case::Handler;
use super::command::{Copies, Send};
use super::measure::{BATCH, LAPS};
use super::memory::{Memory, OwnedMemory};
use super::work::{
    BINS, CACHE_SET_BYTES, CACHE_SETS, CACHE_WAYS, FILTER_ENTRIES, FILTER_PROBES, FILTER_RECORD, HEADERS, OFFSET_BYTES,
    PACKETS, Work, filter_hash,
};

mod bucket;
mod json;
mod lz4;
mod tcp;
mod untuned;

/// Memory after a round, and the commands of each batch with offsets instead of addresses.
#[derive(Debug)]
pub struct Expected {
    /// Expected memory.
    pub memory: OwnedMemory,
    /// Expected commands.
    pub commands: Vec<Commands>,
}

/// The commands of a batch.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    /// Sent frames.
    pub sends: Vec<Send>,
    /// Copies to host memory.
    pub copies: Copies,
}

impl Expected {
    /// Computes the expected results.
    #[must_use]
    pub fn of(work: &Work) -> Self {
        let mut owned = OwnedMemory::new(work);
        let mut memory = owned.parts();
        memory.reset(work);
        let mut commands = vec![Commands::default(); LAPS * PACKETS / BATCH];
        for (number, batch) in commands.iter_mut().enumerate() {
            let first = number * BATCH % PACKETS;
            memory.place(work, first..first + BATCH);
            for packet in first..first + BATCH {
                Task { work, at: packet * work.stride, memory: &mut memory, commands: batch }.run();
            }
        }
        Self { memory: owned, commands }
    }
}

struct Task<'t, 'm> {
    work: &'t Work,
    /// Offset of the packet in the windows.
    at: usize,
    memory: &'t mut Memory<'m>,
    commands: &'t mut Commands,
}

impl Task<'_, '_> {
    fn run(&mut self) {
        match self.work.case.handler {
            Handler::Empty => {}
            Handler::Pingpong => self.reply(),
            Handler::Filtering => self.filter(),
            Handler::Kvstore => self.serve(),
            Handler::StridedDdt => self.scatter(),
            Handler::Aggregate => {
                let sum = self.integers().fold(0, u32::wrapping_add);
                add(self.memory.scratchpad, 0, sum);
            }
            Handler::Reduce => {
                for (element, value) in self.integers().enumerate() {
                    add(self.memory.scratchpad, element, value);
                }
            }
            Handler::Histogram => {
                for value in self.integers().filter(|value| *value < BINS) {
                    add(self.memory.scratchpad, value as usize, 1);
                }
            }
            _ => self.run_untuned(),
        }
    }

    fn frame(&mut self) -> &mut [u8] {
        &mut self.memory.packets[self.at..self.at + self.work.case.size]
    }

    /// Returns the complete 32-bit integers of the payload.
    fn integers(&mut self) -> impl Iterator<Item = u32> + use<> {
        let data = self.frame()[HEADERS..].to_vec();
        (0..data.len() / 4).map(move |index| word(&data, index))
    }

    fn reply(&mut self) {
        let frame = self.frame();
        for (left, right, length) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
            for byte in 0..length {
                frame.swap(left + byte, right + byte);
            }
        }
        self.commands.sends.push(Send { from: self.at as u64, length: self.work.case.size as u64 });
    }

    fn copy_out(&mut self, from: usize, bytes: usize, to: usize) {
        let source = self.at + from;
        self.memory.host[to..to + bytes].copy_from_slice(&self.memory.packets[source..source + bytes]);
        self.commands.copies.add(1, bytes as u64);
    }

    fn filter(&mut self) {
        let source: [u8; 4] = self.frame()[26..30].try_into().expect("four bytes");
        let entries = (0..FILTER_PROBES).map(|probe| (filter_hash(source) + probe) % FILTER_ENTRIES);
        let mut entries = entries.take_while(|entry| self.memory.handler[entry * 8..entry * 8 + 4] != [0; 4]);
        let Some(entry) = entries.find(|entry| self.memory.handler[entry * 8..entry * 8 + 4] == source) else { return };
        let port = [self.memory.handler[entry * 8 + 4], self.memory.handler[entry * 8 + 5]];
        self.rewrite_port(port);
        self.copy_out(0, HEADERS, entry * FILTER_RECORD);
    }

    /// Overwrites the destination port and recomputes the checksum.
    fn rewrite_port(&mut self, port: [u8; 2]) {
        let frame = self.frame();
        frame[36..38].copy_from_slice(&port);
        frame[40..42].fill(0);
        let length = [frame[38], frame[39]];
        let sum = crate::wire::checksum(&[&frame[26..34], &[0, crate::wire::UDP], &length, &frame[34..]]);
        let field = if sum == 0 { 0xffff } else { sum };
        frame[40..42].copy_from_slice(&field.to_be_bytes());
    }

    fn serve(&mut self) {
        let request = self.frame()[HEADERS..].to_vec();
        let [operation, key] = [0, 1].map(|index| word(&request, index));
        let at = key.swap_bytes() as usize % CACHE_SETS * CACHE_SET_BYTES;
        let set = &mut self.memory.handler[at..at + CACHE_SET_BYTES];
        let (answer, value) = match operation.swap_bytes() {
            1 => find(set, key).map_or((4u32, word(&request, 2)), |way| (3, word(set, 2 + CACHE_WAYS + way))),
            _ => {
                store(set, key, word(&request, 2));
                (5, word(&request, 2))
            }
        };
        let frame = self.frame();
        put(&mut frame[HEADERS..], 0, answer.swap_bytes());
        put(&mut frame[HEADERS..], 2, value);
        frame[40..42].fill(0);
        self.reply();
    }

    fn scatter(&mut self) {
        let (block, stride) = (word(self.memory.handler, 0) as usize, word(self.memory.handler, 1) as usize);
        let start = word(&self.frame()[HEADERS..], 0).swap_bytes() as usize;
        let data = HEADERS + OFFSET_BYTES;
        let end = start + self.work.case.size - data;
        let mut at = start;
        while at < end {
            let next = ((at / block + 1) * block).min(end);
            self.copy_out(data + at - start, next - at, at / block * stride + at % block);
            at = next;
        }
    }
}

/// Returns the way of a set that holds `key`.
fn find(set: &[u8], key: u32) -> Option<usize> {
    let filled = (word(set, 1) as usize).min(CACHE_WAYS);
    (0..filled).find(|way| word(set, 2 + way) == key)
}

/// Replaces the key's value, or else the set's oldest entry.
fn store(set: &mut [u8], key: u32, value: u32) {
    let way = find(set, key).unwrap_or_else(|| {
        let filled = word(set, 1);
        put(set, 1, filled + 1);
        filled as usize % CACHE_WAYS
    });
    put(set, 2 + way, key);
    put(set, 2 + CACHE_WAYS + way, value);
}

fn word(bytes: &[u8], index: usize) -> u32 {
    u32::from_le_bytes(bytes[4 * index..4 * index + 4].try_into().expect("four bytes"))
}

fn put(bytes: &mut [u8], index: usize, value: u32) {
    bytes[4 * index..4 * index + 4].copy_from_slice(&value.to_le_bytes());
}

fn add(bytes: &mut [u8], index: usize, value: u32) {
    put(bytes, index, word(bytes, index).wrapping_add(value));
}
