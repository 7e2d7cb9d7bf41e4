//! Handlers in the kernel's XDP hook beside the kernel's own programs and beside user space, in interleaved rounds.
//!
//! * [`program`]: what answers.
//! * [`icmp`]: round trips of ICMP echo.
//! * [`round`]: a round of all measurements.
//! * [`ratio`]: ratios of two programs, by round.
//! * [`bounds`]: what the ratios should be.

pub mod bounds;
pub mod icmp;
pub mod program;
pub mod ratio;
pub mod round;
