//! An image of ordinary code that is larger than PsPIN's program memory: `bench/large`, a library of C and handlers that run
//! programs of its operations.
//!
//! * [`work`]: packets with programs, and what handler memory tells of their results.
//! * [`variant`]: the interface of every way to run the handlers.
//! * [`guest`]: an image, translated or interpreted.
//! * [`native`]: the library compiled for the host.
//! * [`translating`]: cost of translating the image.

pub mod guest;
#[allow(unsafe_code, reason = "machine code from a shared library is entered")]
pub mod native;
pub mod translating;
pub mod variant;
pub mod work;

#[cfg(test)]
mod tests;
