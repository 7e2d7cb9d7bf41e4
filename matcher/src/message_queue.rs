//! FPsPIN's mapping of frames to message queues.

/// Number of message queues in FPsPIN's mapping.
pub const MESSAGE_QUEUES: u32 = 16;
/// Number of bits in FPsPIN's message ids.
const MESSAGE_ID_BITS: u32 = 10;

/// The message queue that FPsPIN assigns to a frame: the message id modulo the number of queues. The id is the lower
/// bits of bytes 44 to 47, read little-endian. Ids of different senders share a queue. All SLMP ids below 2^24 share
/// one queue, because SLMP writes its ids in network order.
#[must_use]
pub fn message_queue(frame: &[u8]) -> u8 {
    let byte = |at: usize| u32::from(frame.get(at).copied().unwrap_or(0));
    let id = (byte(44) | byte(45) << 8) & ((1 << MESSAGE_ID_BITS) - 1);
    #[allow(clippy::cast_possible_truncation, reason = "the number of queues fits")]
    let queue = (id % MESSAGE_QUEUES) as u8;
    queue
}
