//! Cases: a handler on packets of one size.

use std::fmt;

/// Frame sizes in bytes, without check sequence.
pub const SIZES: [usize; 4] = [64, 512, 1024, 2048];

/// A handler of the paper's §IV-C, or one of two that bound the others from below.
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
}

impl Handler {
    /// All handlers, the cheapest first.
    pub const ALL: [Self; 8] = [
        Self::Empty,
        Self::Pingpong,
        Self::Filtering,
        Self::Kvstore,
        Self::StridedDdt,
        Self::Aggregate,
        Self::Reduce,
        Self::Histogram,
    ];

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
    /// Returns every handler with every size.
    pub fn all() -> impl Iterator<Item = Self> {
        Handler::ALL.into_iter().flat_map(|handler| SIZES.map(|size| Self { handler, size }))
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.handler.name(), self.size)
    }
}
