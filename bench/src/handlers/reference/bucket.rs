//! Token buckets.

use super::{Task, add, word};
use crate::handlers::work::bucket::{BUCKET, BUCKETS, BUCKETS_AT, MAX_REORDERING, TOKENS_PER_BYTE};

impl Task<'_, '_> {
    /// Sends the packet back if its flow has tokens.
    pub(super) fn limit(&mut self) {
        let payload = self.payload();
        let Some(time) = payload.first_chunk() else { return };
        let (now, frame) = (u32::from_be_bytes(*time), self.frame().to_vec());
        let flow: [u8; 16] =
            [&frame[26..34], &frame[34..38], &[frame[23], 0, 0, 0]].concat().try_into().expect("16 bytes");
        let memory = &mut *self.memory.handler;
        let (burst, rate) = (double(memory, 0), u64::from(word(memory, 2)));
        let at = BUCKETS_AT + hash(&flow) as usize % BUCKETS * BUCKET;
        let bucket = &mut memory[at..at + BUCKET];
        let elapsed = now.wrapping_sub(word(bucket, 1));
        let (time, tokens) = if bucket[16..] != flow {
            (now, burst)
        } else if elapsed >= MAX_REORDERING.wrapping_neg() {
            (word(bucket, 1), double(bucket, 8))
        } else {
            (now, burst.min(double(bucket, 8) + u64::from(elapsed) * rate))
        };
        let price = frame.len() as u64 * TOKENS_PER_BYTE;
        let left = tokens.checked_sub(price);
        bucket[4..8].copy_from_slice(&time.to_le_bytes());
        bucket[8..16].copy_from_slice(&left.unwrap_or(tokens).to_le_bytes());
        bucket[16..].copy_from_slice(&flow);
        // The words behind the rate: passed and dropped packets.
        add(memory, if left.is_some() { 3 } else { 4 }, 1);
        if left.is_some() {
            self.reply();
        }
    }
}

fn double(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Returns the hash of source, destination, ports and protocol.
fn hash(flow: &[u8; 16]) -> u32 {
    let steps = [(0, 0, 0x9e37_79b1), (1, 15, 0x85eb_ca6b), (2, 13, 0xc2b2_ae35)];
    let mixed = steps.into_iter().fold(0u32, |hash, (field, bits, factor): (usize, u32, u32)| {
        let shifted = if bits == 0 { 0 } else { hash >> bits };
        (hash ^ shifted ^ word(flow, field)).wrapping_mul(factor)
    });
    mixed ^ mixed >> 16 ^ word(flow, 3)
}
