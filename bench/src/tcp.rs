//! A bulk transfer with a checksum at both ends.

use crate::content;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const BLOCK: usize = 1 << 16;

/// Result at one end of a transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Transfer {
    /// Bytes written or read.
    pub bytes: u64,
    /// SHA-256 of the bytes, in hexadecimal.
    pub sha256: String,
}

fn transfer(bytes: u64, hash: Sha256) -> Transfer {
    let sha256 = hash.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    Transfer { bytes, sha256 }
}

/// Connects and writes `bytes` bytes that depend on `seed`; no single wait is longer than `timeout`.
///
/// # Errors
/// Connecting or writing failed or timed out.
pub fn send(to: SocketAddr, bytes: u64, seed: u64, timeout: Duration) -> io::Result<Transfer> {
    let mut stream = TcpStream::connect_timeout(&to, timeout)?;
    stream.set_write_timeout(Some(timeout))?;
    let (mut hash, mut block, mut done) = (Sha256::new(), vec![0; BLOCK], 0);
    while done < bytes {
        let length = usize::try_from(bytes - done).map_or(BLOCK, |left| left.min(BLOCK));
        content::fill(&mut block[..length], seed ^ done);
        stream.write_all(&block[..length])?;
        hash.update(&block[..length]);
        done += length as u64;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    Ok(transfer(done, hash))
}

/// Accepts one connection and reads it to its end; no single wait is longer than `timeout`.
///
/// # Errors
/// Accepting or reading failed or timed out.
pub fn receive(listener: &TcpListener, timeout: Duration) -> io::Result<Transfer> {
    let mut stream = accept(listener, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    let (mut hash, mut block, mut done) = (Sha256::new(), vec![0; BLOCK], 0);
    loop {
        let length = match stream.read(&mut block) {
            Ok(0) => return Ok(transfer(done, hash)),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hash.update(&block[..length]);
        done += length as u64;
    }
}

/// Accepts a connection by polling every few milliseconds, since the standard library has no accept timeout.
fn accept(listener: &TcpListener, timeout: Duration) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let end = Instant::now() + timeout;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            Err(_) if Instant::now() > end => return Err(ErrorKind::TimedOut.into()),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{receive, send};
    use std::net::TcpListener;
    use std::time::Duration;

    #[test]
    fn both_ends_agree() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let limit = Duration::from_secs(30);
        let sender = std::thread::spawn(move || send(to, 1_000_003, 9, limit).unwrap());
        let received = receive(&listener, limit).unwrap();
        assert_eq!(received.bytes, 1_000_003);
        assert_eq!(received, sender.join().unwrap());
        assert_eq!(received.sha256.len(), 64);
    }

    #[test]
    fn nobody_comes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = receive(&listener, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    }
}
