//! Counters. Each cause of a drop has its own counter, so every unprocessed packet is found under its cause.

macro_rules! counters {
    ($($variant:ident $name:literal $meaning:literal)*) => {
        /// A counter. Its discriminant is the index of its value in an array of [`Counter::COUNT`] words.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum Counter {
            $(#[doc = $meaning] $variant,)*
        }

        impl Counter {
            /// Every counter, in index order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// Number of counters.
            pub const COUNT: usize = Self::ALL.len();

            /// Name that users see.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Meaning of one count.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

counters! {
    RxPackets "rx_packets" "frames received from the NIC queue"
    RxBytes "rx_bytes" "bytes in rx_packets"
    Matched "matched" "frames that matched a context's rules and were queued"
    RxTime "rx_time_ns" "nanoseconds spent receiving, matching and queueing or dropping frames of this context, charged to it; counted only while several contexts share a thread by time"
    UnmatchedTime "unmatched_time_ns" "nanoseconds spent receiving and matching frames of no context, charged to the daemon; counted under the same condition as rx_time_ns"
    Released "released" "matched frames whose packet buffer was released after processing"
    HeaderRuns "header_runs" "header handlers started"
    PayloadRuns "payload_runs" "payload handlers started"
    CompletionRuns "completion_runs" "completion handlers started"
    Faults "faults" "handlers ended by a fault"
    Messages "messages" "messages completed"
    TxPackets "tx_packets" "frames sent by handlers, staged for the NIC queue"
    TxBytes "tx_bytes" "bytes in tx_packets"
    TxMoved "tx_moved" "of tx_packets: sent from the receive buffer itself, without a copy"
    CommandsSend "commands_send" "NIC send commands executed"
    CommandsDma "commands_dma" "DMA commands executed"
    CommandsHostDirect "commands_host_direct" "HostDirect commands executed"
    CommandErrors "command_errors" "commands refused; no data was moved"
    CommandsOverBudget "commands_over_budget" "of command_errors: the task had used up its command budget"
    CommandsMalformed "commands_malformed" "of command_errors: not a command that this engine implements"
    CommandsBadNicAddress "commands_bad_nic_address" "of command_errors: NIC memory that the context may not access in this way; sends from an image's constants are refused"
    CommandsBadHostAddress "commands_bad_host_address" "of command_errors: outside the context's host memory, or the context has none"
    CommandsBadLength "commands_bad_length" "of command_errors: empty, or shorter or longer than a frame may be"
    CommandsForbiddenSend "commands_forbidden_send" "of command_errors: a frame that the context may not send, such as one with a forged source; nothing was sent"
    CommandsNoBuffer "commands_no_buffer" "of command_errors: no transmit buffer became free in time"
    CheckDifferences "check_differences" "handlers for which interpreter and translation differed (spind --engine check)"
    DmaToHostBytes "dma_to_host_bytes" "bytes written to host memory by DMA and HostDirect"
    DmaFromHostBytes "dma_from_host_bytes" "bytes read from host memory by DMA and sends"
    HerStalls "her_stalls" "polls that received nothing because no HER was free, a packet was stalled or too many frames waited to be sent; on a receive-only thread, number of such stalls"
    DropUnmatched "drop_unmatched" "frames dropped: they reached user space and match no context"
    DropRemoved "drop_removed" "frames dropped: their context was removed while they were queued"
    MessagesEvicted "messages_evicted" "open messages ended early because another message needed their queue"
    MessagesTimedOut "messages_timed_out" "open messages ended because their next packet did not arrive in time"
    MessagesKilled "messages_killed" "messages cancelled because their context's share of the packet buffer was full"
    DropShare "drop_share" "frames dropped: the context had used up its share (packet buffer, packet channel or kernel hand-over), or another message took over the queue"
    DropKilled "drop_killed" "frames dropped: their message was cancelled because its context's share was full"
    EcnMarked "ecn_marked" "frames marked as having met congestion (ECN) because much of their context's share of the packet buffer was in use"
    Parked "parked" "times a handler was suspended while it waited, so that others could run"
    Overflowed "overflowed" "of payload_runs: run on a cluster other than the message's home, because the home was overloaded or its HPUs held waiting handlers"
    DropNoMpq "drop_no_mpq" "frames of a new message dropped: open messages held all message queues"
    DropNoHeader "drop_no_header" "frames dropped: the header of their message did not arrive in time, or too many waited for it; with --early drop, frames that arrived before their header"
    Passed "passed_verdict" "frames left to the kernel by a handler's verdict, from matched or arriving later in the message; the NIC counter passed has those that got there"
    DropVerdict "drop_verdict" "frames dropped by a handler's verdict, from matched or arriving later in the message"
    DropVerdictBytes "drop_verdict_bytes" "bytes in drop_verdict"
    PassForbidden "pass_forbidden" "of drop_verdict: frames that a handler left to the kernel after it had changed their addresses, ports or tags, or that have no ports and are no ICMP: its user may not do that"
    BadVerdicts "bad_verdicts" "handlers that returned an invalid verdict"
    HandedOver "handed_over" "frames that arrived on the queue of a thread that does not run their context or message, handed to one that does, which copies them"
    HookRuns "hook_runs" "of payload_runs: run in the kernel's XDP hook"
    HookHeld "hook_held" "of matched: reached user space because the context had used up its share in the kernel's XDP hook"
    DropHook "drop_hook" "frames dropped: their handler in the XDP hook had written memory when it came to something that only user space does"
}

/// Counters that the engine alone has: what they count belongs to no context.
pub const ENGINE_ONLY: [Counter; 5] =
    [Counter::RxPackets, Counter::RxBytes, Counter::HerStalls, Counter::DropUnmatched, Counter::DropRemoved];

/// Meanings of NIC counters by name, for AF_XDP, captures and memory pairs.
const NIC: [(&str, &str); 23] = [
    ("passed_kernel", "frames that matched no rule, left to the kernel"),
    ("passed_kernel_bytes", "bytes in passed_kernel"),
    (
        "redirected",
        "frames that matched a rule, redirected to the sockets; all of them arrived except those counted as rx_ losses",
    ),
    ("redirected_bytes", "bytes in redirected"),
    ("unserved", "of passed_kernel: frames that matched a rule, on a queue without a socket"),
    ("called", "frames for which the XDP program called the program of a handler"),
    ("rx_frames", "frames received"),
    ("rx_dropped", "frames dropped by the kernel: no free buffer, or longer than a buffer"),
    ("rx_ring_full", "frames dropped by the kernel: the receive ring was full"),
    ("rx_fill_empty", "times the kernel found no free buffer; in copy mode rx_dropped counts the frame as well"),
    ("rx_invalid", "receive buffers that the kernel refused"),
    ("rx_too_long", "frames of the capture skipped: longer than a buffer"),
    ("rx_cut_short", "frames of the capture skipped: not captured completely"),
    ("tx_frames", "frames handed to the kernel, or written to the capture, for sending"),
    ("tx_busy", "flushes after which frames waited because the kernel could not send at that time"),
    ("tx_dropped", "of tx_frames: dropped by the device: no carrier, or longer than its peer accepts"),
    ("tx_invalid", "frames not sent: shorter than an Ethernet header"),
    ("tx_oversize", "frames not sent: longer than the interface can send"),
    ("tx_invalid_kernel", "of tx_frames: refused by the kernel"),
    ("passed", "frames returned to the kernel's stack by a verdict"),
    ("pass_failed", "frames lost: a verdict left them to the kernel, which did not accept them"),
    ("bad_descriptors", "descriptors from the kernel that name a buffer it does not hold"),
    ("foreign_frames", "buffers of another NIC returned to this one: a bug in spind"),
];

/// Meaning of one count of a NIC counter, if known.
#[must_use]
pub fn nic_meaning(name: &str) -> Option<&'static str> {
    NIC.iter().find(|(known, _)| *known == name).map(|(_, meaning)| *meaning)
}

#[cfg(test)]
mod tests {
    use super::Counter;

    #[test]
    fn indices_follow_the_list() {
        for (index, counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, index);
        }
    }
}
