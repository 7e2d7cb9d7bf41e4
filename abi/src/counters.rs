//! Counters: one per cause, so that every packet that was not processed is found under the reason why.

use alloc::string::String;
use alloc::vec::Vec;

macro_rules! counters {
    ($($variant:ident $name:literal $meaning:literal)*) => {
        /// A counter. Its value in an array of [`Counter::COUNT`] words is its index.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Counter {
            $(#[doc = $meaning] $variant,)*
        }

        impl Counter {
            /// Every counter, in index order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// Name as users see it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What one count means.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

counters! {
    RxPackets "rx_packets" "frames received from the NIC queue"
    RxBytes "rx_bytes" "bytes of those frames"
    Matched "matched" "frames that matched a context's rules and were queued"
    RxTime "rx_time_ns" "nanoseconds in which frames of this context were received, matched, queued or dropped, charged to it; only counted while several contexts share a thread by time"
    UnmatchedTime "unmatched_time_ns" "nanoseconds of the same for frames that match no context: the daemon's"
    Released "released" "matched frames whose packet buffer was given back after processing"
    HeaderRuns "header_runs" "header handlers started"
    PayloadRuns "payload_runs" "payload handlers started"
    CompletionRuns "completion_runs" "completion handlers started"
    Faults "faults" "handlers ended by a fault"
    Messages "messages" "messages completed"
    TxPackets "tx_packets" "frames that handlers sent, staged for the NIC queue"
    TxBytes "tx_bytes" "bytes of those frames"
    TxMoved "tx_moved" "of tx_packets: sent from the receive buffer itself, without a copy"
    CommandsSend "commands_send" "NIC send commands carried out"
    CommandsDma "commands_dma" "DMA commands carried out"
    CommandsHostDirect "commands_host_direct" "HostDirect commands carried out"
    CommandErrors "command_errors" "commands refused; nothing was moved"
    CommandsOverBudget "commands_over_budget" "of command_errors: the task had asked for more than a task may"
    CommandsMalformed "commands_malformed" "of command_errors: they name no command that this engine carries out"
    CommandsBadNicAddress "commands_bad_nic_address" "of command_errors: from or to NIC memory that the context may not touch so; nothing is sent from an image's constants"
    CommandsBadHostAddress "commands_bad_host_address" "of command_errors: outside the context's host memory, or it has none"
    CommandsBadLength "commands_bad_length" "of command_errors: no bytes, or fewer or more than a frame has"
    CommandsNoBuffer "commands_no_buffer" "of command_errors: no transmit buffer came free in time"
    CheckDifferences "check_differences" "handlers on which interpreter and translation differed (spind --engine check)"
    DmaToHostBytes "dma_to_host_bytes" "bytes written to host memory by DMA and HostDirect"
    DmaFromHostBytes "dma_from_host_bytes" "bytes read from host memory by DMA and sends"
    HerStalls "her_stalls" "turns that took nothing since no HER was free or too many frames waited to be sent; of a thread that only receives, times that began"
    DropUnmatched "drop_unmatched" "frames that reached user space and match no context"
    DropRemoved "drop_removed" "frames queued for a context when it was removed"
    MessagesEvicted "messages_evicted" "open messages ended early because another message needed their queue"
    MessagesTimedOut "messages_timed_out" "open messages ended because their next packet did not come in time"
    MessagesKilled "messages_killed" "messages given up because their context's share of the packet buffer was full"
    DropShare "drop_share" "frames of a context whose share of the packet buffer, or of a thread's packet channel, was full, or whose message gave its queue to another context's; or that it would have left to the kernel at others' expense"
    DropKilled "drop_killed" "frames of messages that were given up"
    EcnMarked "ecn_marked" "frames marked as having met congestion, since much of their context's share of the packet buffer was taken"
    Parked "parked" "times a handler was left where it waits, for others to run"
    Overflowed "overflowed" "of payload_runs: on another cluster than the message's home, which had more to do than it could, or HPUs with handlers that wait"
    DropNoMpq "drop_no_mpq" "frames of a new message while every message queue was taken by open messages"
    Passed "passed_verdict" "frames that a handler's verdict left to the kernel, those in matched and what came behind them; the NIC queue counts which got there"
    DropVerdict "drop_verdict" "frames discarded because a handler's verdict said so, those in matched and what came behind them"
    DropVerdictBytes "drop_verdict_bytes" "bytes of those frames"
    BadVerdicts "bad_verdicts" "handlers that returned no verdict where one was asked for"
}

/// What the counters of NICs mean, by name: of AF_XDP, captures and pairs in memory.
const NIC: [(&str, &str); 22] = [
    ("passed_kernel", "frames that no rule matched, left to the kernel"),
    ("passed_kernel_bytes", "bytes of those frames"),
    (
        "redirected",
        "frames that a rule matched, handed to the sockets: those that are in no `rx_` counter of losses arrived",
    ),
    ("redirected_bytes", "bytes of those frames"),
    ("unserved", "of passed_kernel: matched, but no socket is bound to their queue"),
    ("rx_frames", "frames received"),
    ("rx_dropped", "frames lost by the kernel for want of a free buffer, or longer than one"),
    ("rx_ring_full", "frames lost since the ring of received ones was full"),
    ("rx_fill_empty", "times the kernel found no free buffer; in copy mode the frame is in rx_dropped too"),
    ("rx_invalid", "buffers that the kernel would not fill"),
    ("rx_too_long", "frames of the capture left out: longer than a buffer"),
    ("rx_cut_short", "frames of the capture left out: not captured in full"),
    ("tx_frames", "frames given to the kernel, or the capture, to be sent"),
    ("tx_busy", "times the kernel could not send for now: frames waited"),
    ("tx_dropped", "of tx_frames: not sent by the device, which has no carrier or whose peer takes none as long"),
    ("tx_invalid", "frames not sent: shorter than an Ethernet header"),
    ("tx_oversize", "frames not sent: longer than the interface sends"),
    ("tx_invalid_kernel", "of tx_frames: refused by the kernel"),
    ("passed", "frames handed on to the kernel for a verdict"),
    ("pass_failed", "frames that the kernel did not take for a verdict: lost"),
    ("bad_descriptors", "buffers that the kernel named and does not have"),
    ("foreign_frames", "buffers of another NIC that were given back here: mistakes of spind's"),
];

/// What one count of a NIC's counter means, if it is known.
#[must_use]
pub fn nic_meaning(name: &str) -> Option<&'static str> {
    NIC.iter().find(|(known, _)| *known == name).map(|(_, meaning)| *meaning)
}

/// Adds the values of counters to those of the same names, and appends the others.
pub fn add_named(sums: &mut Vec<(String, u64)>, counters: impl IntoIterator<Item = (String, u64)>) {
    for (name, value) in counters {
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += value,
            None => sums.push((name, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Counter, add_named};
    use alloc::string::ToString;
    use alloc::vec;

    #[test]
    fn counters_add_up_by_name() {
        let mut sums = vec![("a".to_string(), 1), ("b".to_string(), 2)];
        add_named(&mut sums, vec![("b".to_string(), 5), ("c".to_string(), 7)]);
        assert_eq!(sums, [("a".to_string(), 1), ("b".to_string(), 7), ("c".to_string(), 7)]);
    }

    #[test]
    fn indices_follow_the_list() {
        for (index, counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, index);
        }
    }
}
