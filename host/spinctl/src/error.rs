//! Errors of `spinctl`.

use std::path::PathBuf;

use libspin::MAX_BLOB;

/// Errors reported to the user.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("{}: too long, spind takes at most {MAX_BLOB} bytes; longer captures it reads itself (spind --nic pcap:IN,OUT)", path.display())]
    TooLong { path: PathBuf },
    #[error("{}: it is what is replayed; write what was sent to another file", path.display())]
    SameFile { path: PathBuf },
    #[error(transparent)]
    Spin(#[from] libspin::Error),
    #[error("the context has {len} bytes of host memory: there are no bytes {offset} to {end}")]
    Outside { offset: u64, end: u64, len: u64 },
    #[error("host memory: {0}")]
    Bounds(#[from] libspin::OutOfBounds),
    #[error("--watch has no JSON with lists of pairs: give --json")]
    WatchInPairs,
    #[error("standard output: {0}")]
    Output(#[from] std::io::Error),
}
