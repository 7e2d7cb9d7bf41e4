//! Figures that papers and their data files state. All were measured or simulated on other hardware than this run.

/// A published figure.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// Where it stands.
    pub source: &'static str,
    /// What it is about.
    pub what: &'static str,
    /// The values, as stated.
    pub value: &'static str,
    /// The measurement of a run that it may be compared with.
    pub comparable: Option<Comparable>,
}

/// A measurement of a run beside a published figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparable {
    /// Latency of a lone packet.
    Latency,
    /// Cores that empty handlers need.
    CoresNeeded,
    /// Time per packet of empty handlers.
    EmptyInterval,
    /// Outbound throughput.
    Outbound,
    /// Throughput of the first three handlers.
    FastHandlers,
    /// Throughput of the other three handlers.
    SlowHandlers,
    /// Round trip of a UDP datagram through a handler.
    RoundTrip,
}

/// Cell of a figure whose paper states no value.
pub const NOT_STATED: &str = "not stated";

/// Latency from HER to completion of an empty handler on an unloaded PsPIN, simulated at 1 GHz (PsPIN paper, §IV-B1): frame size,
/// nanoseconds. The sizes are those of [`crate::engine::case::UNLOADED`].
pub const LATENCY: [(usize, u32); 2] = [(64, 26), (1024, 40)];
/// HPUs that empty handlers need on packets of 64 bytes.
pub const HPUS_NEEDED: u32 = 19;
/// Nanoseconds between packets of 64 bytes at 400 Gbit/s.
pub const INTERVAL: f64 = 1.28;
/// HPUs of the closed form of the budget.
pub const HPUS: u32 = 32;
/// Rates of the closed form of the budget, in Gbit/s.
pub const BUDGET_RATES: [u32; 2] = [200, 400];

/// Speed of a handler on a core of PsPIN, against the best of Xeon and ARM (PsPIN paper, figures 11 and 12).
pub const PER_CORE: [(&str, &str); 6] = [
    ("filtering", "others up to 40× faster"),
    ("kvstore", "PsPIN 1.9× faster"),
    ("strided_ddt", "others up to 36× faster"),
    ("aggregate", "others up to 1.8× faster"),
    ("reduce", "PsPIN 5.3× faster"),
    ("histogram", "PsPIN 1.3× faster"),
];

/// Throughput of a handler on all of PsPIN (PsPIN paper, figure 10).
pub const FIGURE_10: [(&str, &str); 6] = [
    ("filtering", "400 Gbit/s from 512 B"),
    ("kvstore", "400 Gbit/s from 512 B"),
    ("strided_ddt", "400 Gbit/s from 512 B"),
    ("aggregate", "above 200 Gbit/s from 512 B"),
    ("reduce", "above 200 Gbit/s from 512 B"),
    ("histogram", "above 200 Gbit/s from 512 B"),
];

/// Outbound throughput (PsPIN paper, §IV-B, figure 9): frame size, value.
pub const FIGURE_9: [(usize, &str); 2] = [(64, "from L1 about 200 Gbit/s, from L2 400 Gbit/s"), (512, "full rate")];

const PSPIN: &str = "PsPIN paper";
const DATA: &str = "FPsPIN data files";

const fn published(source: &'static str, what: &'static str, value: &'static str) -> Published {
    Published { source, what, value, comparable: None }
}

const fn beside(source: &'static str, what: &'static str, value: &'static str, comparable: Comparable) -> Published {
    Published { source, what, value, comparable: Some(comparable) }
}

/// All published figures.
pub const ALL: [Published; 31] = [
    beside(PSPIN, "§IV-B1, HER to completion, unloaded", "26 ns (64 B), 40 ns (1024 B)", Comparable::Latency),
    published(
        PSPIN,
        "§IV-B1, parts of that latency",
        "3 ns to the cluster scheduler, 12–26 ns L2→L1 DMA, 1 cycle assignment, 7 ns invocation, 1 cycle doorbell, 1 ns notification, arbitration +6/+2 ns",
    ),
    published(PSPIN, "runtime overhead", "8 cycles a packet"),
    beside(PSPIN, "HPUs needed for empty handlers, 64 B", "19 HPUs", Comparable::CoresNeeded),
    published(PSPIN, "HPUs needed for small handlers, 512 and 1024 B", "1 HPU"),
    beside(PSPIN, "packet rate at 400 Gbit/s, 64 B", "one per 1.28 ns", Comparable::EmptyInterval),
    published(PSPIN, "packet rate per cluster at 400 Gbit/s, 64 B", "one per 5.12 ns"),
    published(PSPIN, "DMA issue", "6 cycles"),
    published(PSPIN, "figure 6, budget", "HPUs × packet bits / rate (32 HPUs; 200 and 400 Gbit/s)"),
    beside(
        PSPIN,
        "§IV-B, figure 9, outbound, 64 B",
        "from L1 about 200 Gbit/s, from L2 400 Gbit/s",
        Comparable::Outbound,
    ),
    published(PSPIN, "§IV-B, figure 9, outbound, from 512 B", "full rate"),
    published(PSPIN, "§IV-B, ping-pong handler", "27 instructions (20 swap, 7 issue)"),
    beside(
        PSPIN,
        "§IV-C, figure 10, filtering, kvstore, strided_ddt",
        "400 Gbit/s from 512 B",
        Comparable::FastHandlers,
    ),
    beside(
        PSPIN,
        "§IV-C, figure 10, aggregate, reduce, histogram",
        "above 200 Gbit/s from 512 B",
        Comparable::SlowHandlers,
    ),
    published(
        PSPIN,
        "figures 11 and 12, per core against the best of Xeon and ARM",
        "PsPIN faster: histogram 1.3×, kvstore 1.9×, reduce 5.3×; others faster by up to 1.8× (aggregate), 40× (filtering), 36× (strided_ddt)",
    ),
    published(PSPIN, "figure 13, buffer: rate × latency", "800 Gbit/s × 3 µs = 300 KiB"),
    published(DATA, "UDP round trip, median, host alone", "16 B: 83 µs, 116 B: 82, 516 B: 84, 1016 B: 82, 1416 B: 85"),
    beside(
        DATA,
        "UDP round trip, median, handler alone",
        "16 B: 42 µs, 116 B: 42, 516 B: 42, 1016 B: 36, 1416 B: 36",
        Comparable::RoundTrip,
    ),
    published(
        DATA,
        "UDP round trip, median, handler and host",
        "16 B: 60 µs, 116 B: 63, 516 B: 63, 1016 B: 65, 1416 B: 62",
    ),
    published(DATA, "ICMP round trip, median, host alone", "16 B: 40 µs, 116 B: 40, 516 B: 41, 1016 B: 41, 1416 B: 42"),
    published(
        DATA,
        "ICMP round trip, median, handler alone",
        "16 B: 27 µs, 116 B: 32, 516 B: 47, 1016 B: 67, 1416 B: 83",
    ),
    published(
        DATA,
        "ICMP round trip, median, handler and host",
        "16 B: 39 µs, 116 B: 31, 516 B: 46, 1016 B: 53, 1416 B: 59",
    ),
    published(
        DATA,
        "SLMP goodput, 200 MiB, median",
        "window 1: 0.52 Gbit/s, 4: 1.79, 16: 4.07, 64: 5.55, 256 with 2 threads: 6.68 (best), 1024: 3.3–6.1 with timeouts",
    ),
    published("FPsPIN paper", "MPI datatypes, overlap", "96 %"),
    published("OSMOSIS", "completion time", "up to 60 % better"),
    published("OSMOSIS", "fairness", "Jain's index up to 83 % better, overhead within ±3 %"),
    published("off-path study", "PCIe packets for 200 Gbit/s between SoC and host", "293 Mpps"),
    published("off-path study", "budget", "256 − 200 = 56 Gbit/s"),
    published("caRVnet", "32 B, one way", "930 ns first, mode 720 ns"),
    published(
        "caRVnet",
        "32 B, one way, plateaus",
        "2000 ns (page walks, 0.06 %), 400 and 600 µs (timer interrupts, 0.03 %)",
    ),
    published(
        "sPIN talk",
        "LogGP parameters",
        "o 65 ns, g 6.7 ns, G 2.5 ps/bit, switch 50 ns, wire 33.4 ns; header match 30 ns + 2 ns a packet",
    ),
];

/// The text of a published value, by a list of names.
#[must_use]
pub fn of<'a>(values: &[(&str, &'a str)], name: &str) -> &'a str {
    values.iter().find(|(known, _)| *known == name).map_or(NOT_STATED, |(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::{
        ALL, BUDGET_RATES, Comparable, FIGURE_9, FIGURE_10, HPUS, HPUS_NEEDED, INTERVAL, LATENCY, NOT_STATED, PER_CORE,
        of,
    };

    fn value(comparable: Comparable) -> &'static str {
        ALL.iter().find(|figure| figure.comparable == Some(comparable)).expect("a figure").value
    }

    /// The value of the figure whose subject contains a text.
    fn about(text: &str) -> &'static str {
        ALL.iter().find(|figure| figure.what.contains(text)).expect("a figure").value
    }

    #[test]
    fn numbers_in_code_are_those_of_the_texts() {
        for (size, ns) in LATENCY {
            assert!(value(Comparable::Latency).contains(&format!("{ns} ns ({size} B)")));
        }
        assert_eq!(value(Comparable::CoresNeeded), format!("{HPUS_NEEDED} HPUs"));
        assert_eq!(value(Comparable::EmptyInterval), format!("one per {INTERVAL} ns"));
        let [low, high] = BUDGET_RATES;
        assert!(about("figure 6").contains(&format!("({HPUS} HPUs; {low} and {high} Gbit/s)")));
        assert_eq!([value(Comparable::Outbound), about("outbound, from 512 B")], FIGURE_9.map(|(_, text)| text));
    }

    #[test]
    fn texts_of_handlers_are_those_of_the_table() {
        for (handler, text) in FIGURE_10 {
            let row = ALL.iter().find(|figure| figure.what.contains("figure 10") && figure.what.contains(handler));
            assert_eq!(row.expect("a figure").value, text);
        }
        let ratios = about("figures 11 and 12");
        for (handler, text) in PER_CORE {
            let ratio = text.split(' ').find(|word| word.ends_with('×')).expect("a ratio");
            let stated = [format!("{handler} {ratio}"), format!("{ratio} ({handler})")];
            let faster = if text.starts_with("PsPIN") { &stated[0] } else { &stated[1] };
            assert!(ratios.contains(faster), "{text}");
        }
    }

    #[test]
    fn values_without_a_text_are_not_stated() {
        assert_eq!([of(&PER_CORE, "kvstore"), of(&PER_CORE, "empty")], ["PsPIN 1.9× faster", NOT_STATED]);
    }
}
