//! spinctl
fn main() {}
