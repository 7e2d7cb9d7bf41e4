//! Cases: a handler on packets of one size.

use std::fmt;

/// Frame sizes of the paper's handlers in bytes, without check sequence.
pub const SIZES: [usize; 4] = [64, 512, 1024, 2048];
/// Frame sizes of the other handlers.
pub const UNTUNED_SIZES: [usize; 2] = [512, 1024];

/// A handler of the paper's §IV-C, one of two that bound those from below, or one of [`Handler::UNTUNED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// Does nothing.
    Empty,
    /// Sends the packet back.
    Pingpong,
    /// Looks up the source and rewrites a port.
    Filtering,
    /// Answers from a set-associative cache.
    Kvstore,
    /// Scatters the payload over host memory.
    StridedDdt,
    /// Sums the payload.
    Aggregate,
    /// Adds the payload to a vector.
    Reduce,
    /// Counts the payload's values.
    Histogram,
    /// Counts TCP segments by flag and option.
    TcpHeader,
    /// Verifies a CRC-32 at the payload's end.
    Crc32,
    /// Hashes the payload by `SipHash`-2-4.
    Siphash,
    /// Checks that the payload is an LZ4 block.
    Lz4Check,
    /// Looks up the source in a Bloom filter and inserts it.
    Bloom,
    /// Limits the rate of each flow.
    TokenBucket,
    /// Finds the next hop of the destination in a trie.
    TrieLookup,
    /// Finds an integer in a JSON text.
    JsonField,
}

impl Handler {
    /// All handlers, the cheapest of the paper's first.
    pub const ALL: [Self; 16] = [
        Self::Empty,
        Self::Pingpong,
        Self::Filtering,
        Self::Kvstore,
        Self::StridedDdt,
        Self::Aggregate,
        Self::Reduce,
        Self::Histogram,
        Self::TcpHeader,
        Self::Crc32,
        Self::Siphash,
        Self::Lz4Check,
        Self::Bloom,
        Self::TokenBucket,
        Self::TrieLookup,
        Self::JsonField,
    ];

    /// Handlers in `bench/handlers`, written without regard to the translator. They show how fast translated code is in
    /// general; the paper's handlers are those that the translator was tuned by.
    pub const UNTUNED: [Self; 8] = [
        Self::TcpHeader,
        Self::Crc32,
        Self::Siphash,
        Self::Lz4Check,
        Self::Bloom,
        Self::TokenBucket,
        Self::TrieLookup,
        Self::JsonField,
    ];

    /// Returns the frame sizes that are measured.
    #[must_use]
    pub fn sizes(self) -> &'static [usize] {
        if Self::UNTUNED.contains(&self) { &UNTUNED_SIZES } else { &SIZES }
    }

    /// Returns the name in cases.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Pingpong => "pingpong",
            Self::Filtering => "filtering",
            Self::Kvstore => "kvstore",
            Self::StridedDdt => "strided_ddt",
            Self::Aggregate => "aggregate",
            Self::Reduce => "reduce",
            Self::Histogram => "histogram",
            Self::TcpHeader => "tcp_header",
            Self::Crc32 => "crc32",
            Self::Siphash => "siphash",
            Self::Lz4Check => "lz4_check",
            Self::Bloom => "bloom",
            Self::TokenBucket => "token_bucket",
            Self::TrieLookup => "trie_lookup",
            Self::JsonField => "json_field",
        }
    }

    /// Returns the name as an image and as a native function.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Pingpong => "udp_pingpong",
            other => other.name(),
        }
    }
}

/// A handler on packets of one size, displayed as `NAME/SIZE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Handler to run.
    pub handler: Handler,
    /// Frame size in bytes.
    pub size: usize,
}

impl Case {
    /// Returns every handler with each of its sizes.
    pub fn all() -> impl Iterator<Item = Self> {
        let of = |handler: Handler| handler.sizes().iter().map(move |&size| Self { handler, size });
        Handler::ALL.into_iter().flat_map(of)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.handler.name(), self.size)
    }
}
