//! A queue over two capture files: for tests, for replay and for users without root.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use spin_frame::{CHUNK, Frame, HeapPool, MIN_SEND, TxClosed, TxQueue};

use super::reader::Reader;
use super::types::{Packet, PcapError};
use super::writer::Writer;
use crate::error::NicError;
use crate::queue::Queue;
use crate::steering::{AcceptAll, FlowSteering};
use crate::wait::{poll, timespec};

/// Number of frames of the queue.
const FRAMES: usize = 1024;

/// Receives the packets of one capture, and writes sent frames to a new one.
///
/// A sent frame carries the time of the last received packet, so equal input gives equal output. Packets longer than
/// [`CHUNK`] and truncated packets are counted and skipped. A broken record ends the input; the next flush reports it,
/// once.
///
/// Unlike in the other backends, `receive` and `send` may read and write files.
pub struct PcapQueue {
    pool: HeapPool,
    input: CaptureFile<Reader<BufReader<File>>>,
    output: CaptureFile<Writer<BufWriter<File>>>,
    packet: Packet,
    at_end: bool,
    error: Option<NicError>,
    counts: Counts,
}

/// An open file, and its name for messages.
struct CaptureFile<T> {
    file: T,
    path: PathBuf,
}

impl<T> CaptureFile<T> {
    fn error(&self, source: impl Into<PcapError>) -> NicError {
        NicError::Pcap { path: self.path.clone(), source: source.into() }
    }
}

#[derive(Default)]
struct Counts {
    received: u64,
    sent: u64,
    too_long: u64,
    truncated: u64,
    tx_invalid: u64,
    passed: u64,
    foreign_frames: u64,
}

impl PcapQueue {
    /// Opens `input` (pcap or pcapng) and creates or empties `output` (pcap).
    ///
    /// # Errors
    /// [`NicError::Pcap`], which names the file: it cannot be opened, is no capture of Ethernet, or both are the same file.
    pub fn open(input: &Path, output: &Path) -> Result<Self, NicError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source: PcapError| NicError::Pcap { path, source }
        };
        let (reader, identity) = open_input(input).map_err(failed(input))?;
        let writer = open_output(output, identity).map_err(failed(output))?;
        Ok(Self {
            pool: HeapPool::new(FRAMES),
            input: CaptureFile { file: reader, path: input.to_owned() },
            output: CaptureFile { file: writer, path: output.to_owned() },
            packet: Packet::default(),
            at_end: false,
            error: None,
            counts: Counts::default(),
        })
    }

    /// Fills `frame` with the next packet that fits. `false` at the end of the input.
    fn read_into(&mut self, frame: &mut Frame) -> bool {
        while !self.at_end {
            match self.input.file.next(&mut self.packet) {
                Ok(true) if (self.packet.wire_len as usize) > self.packet.data.len() => self.counts.truncated += 1,
                Ok(true) if frame.fill(&self.packet.data).is_ok() => return true,
                Ok(true) => self.counts.too_long += 1,
                Ok(false) => self.at_end = true,
                Err(error) => {
                    self.at_end = true;
                    self.error = Some(self.input.error(error));
                }
            }
        }
        false
    }

    fn write(&mut self, frame: &Frame) {
        // A frame is at most CHUNK long.
        match self.output.file.write(self.packet.time, frame.len() as u32, frame) {
            Ok(()) => self.counts.sent += 1,
            Err(error) => self.error = self.error.take().or_else(|| Some(self.output.error(error))),
        }
    }
}

/// Device and inode: equal for two names of one file.
type Identity = (u64, u64);

fn open_input(path: &Path) -> Result<(Reader<BufReader<File>>, Identity), PcapError> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    Ok((Reader::new(BufReader::new(file))?, (metadata.dev(), metadata.ino())))
}

/// Empties the file only after checking that it is not the input.
fn open_output(path: &Path, input: Identity) -> Result<Writer<BufWriter<File>>, PcapError> {
    let file = File::options().write(true).create(true).truncate(false).open(path)?;
    let metadata = file.metadata()?;
    if (metadata.dev(), metadata.ino()) == input {
        return Err(PcapError::SameFile);
    }
    if metadata.is_file() {
        file.set_len(0)?;
    }
    Ok(Writer::new(BufWriter::new(file))?)
}

impl TxQueue for PcapQueue {
    fn allocate(&mut self) -> Option<Frame> {
        self.pool.allocate()
    }

    fn low_on_buffers(&self) -> bool {
        self.pool.is_low()
    }

    fn send(&mut self, batch: &mut Vec<Frame>) -> usize {
        let count = batch.len();
        for frame in batch.drain(..) {
            if self.pool.owns(&frame) {
                if frame.len() < MIN_SEND {
                    self.counts.tx_invalid += 1;
                } else {
                    self.write(&frame);
                }
            }
            self.recycle(frame);
        }
        count
    }

    /// The capacity of a heap frame.
    fn max_frame(&self) -> usize {
        CHUNK
    }

    fn recycle(&mut self, frame: Frame) {
        self.counts.foreign_frames += u64::from(self.pool.recycle(frame).is_err());
    }

    /// `send` has written the frames. [`Queue::flush`] reports an error.
    fn flush_tx(&mut self) -> Result<(), TxClosed> {
        if self.error.is_some() { Err(TxClosed) } else { Ok(()) }
    }
}

impl Queue for PcapQueue {
    fn receive(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        for count in 0..max {
            let Some(mut frame) = self.pool.allocate() else { return count };
            if !self.read_into(&mut frame) {
                self.recycle(frame);
                return count;
            }
            self.counts.received += 1;
            out.push(frame);
        }
        max
    }

    /// `send` writes frames at once; `flush` writes out the buffer of the file.
    fn pending(&self) -> usize {
        0
    }

    /// The output holds sent frames only. A passed frame is not written: it is in the input already.
    fn pass_to_kernel(&mut self, batch: &mut Vec<Frame>) -> usize {
        let count = batch.iter().filter(|frame| self.pool.owns(frame)).count();
        self.recycle_all(batch);
        self.counts.passed += count as u64;
        count
    }

    fn flush(&mut self) -> Result<(), NicError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        self.output.file.flush().map_err(|error| self.output.error(error))
    }

    fn wait(&mut self, wake: Option<BorrowedFd<'_>>, timeout: Duration) -> Result<(), NicError> {
        if !self.exhausted() {
            return Ok(());
        }
        let mut fds: Vec<_> = wake.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).into_iter().collect();
        poll(&mut fds, &timespec(timeout))
    }

    fn exhausted(&self) -> bool {
        self.at_end
    }

    fn steering(&self) -> Arc<dyn FlowSteering> {
        Arc::new(AcceptAll)
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        let counts = &self.counts;
        vec![
            ("rx_frames", counts.received),
            ("tx_frames", counts.sent),
            ("rx_too_long", counts.too_long),
            ("rx_cut_short", counts.truncated),
            ("tx_invalid", counts.tx_invalid),
            ("passed", counts.passed),
            ("foreign_frames", counts.foreign_frames),
        ]
    }

    fn describe(&self) -> String {
        let (input, output) = (self.input.path.display(), self.output.path.display());
        format!("pcap: from {input} to {output}, frames up to {CHUNK} B")
    }
}

#[cfg(test)]
mod tests {
    use super::PcapQueue;
    use crate::error::NicError;
    use crate::pcap::{Packet, PcapError, read_all, write_all};
    use crate::queue::Queue;
    use spin_frame::{CHUNK, TxQueue};
    use std::fs;
    use std::path::PathBuf;
    use std::time::Duration;

    /// A temporary folder, removed on drop.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("spin-nic-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a temporary folder");
            Self(path)
        }

        fn with(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, bytes).expect("written");
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn replays_and_records() {
        let folder = Folder::new("replay");
        let truncated = Packet { wire_len: 100, ..Packet::whole(2000, vec![2; 60]) };
        let long = Packet::whole(3000, vec![3; CHUNK + 1]);
        let packets = [Packet::whole(1000, vec![1; 60]), truncated, long, Packet::whole(4000, vec![4; CHUNK])];
        let input = folder.with("in.pcap", &write_all(&packets));
        let output = folder.with("out.pcap", b"old content, longer than what will be written");
        let mut queue = PcapQueue::open(&input, &output).expect("opens");
        let mut batch = Vec::new();
        assert_eq!(queue.receive(&mut batch, 1), 1);
        batch[0].trim(0, 20).expect("within");
        queue.send(&mut batch);
        assert_eq!((queue.receive(&mut batch, 10), batch[0].len()), (1, queue.max_frame()));
        assert!(queue.exhausted());
        let mut own = queue.allocate().expect("free");
        own.fill(&[9; 13]).expect("fits");
        batch.push(own);
        queue.send(&mut batch);
        batch.extend(queue.allocate());
        assert_eq!((queue.pass_to_kernel(&mut batch), batch.len()), (1, 0));
        assert_eq!(queue.pending(), 0);
        queue.flush().expect("written");
        queue.wait(None, Duration::from_millis(1)).expect("times out");
        let written = read_all(&fs::read(&output).expect("there")).expect("own output");
        assert_eq!(written, [Packet::whole(1000, vec![1; 20]), Packet::whole(4000, vec![4; CHUNK])]);
        let counters = queue.counters();
        let expected = [
            ("rx_frames", 2),
            ("tx_frames", 2),
            ("rx_too_long", 1),
            ("rx_cut_short", 1),
            ("tx_invalid", 1),
            ("passed", 1),
        ];
        for expected in expected {
            assert!(counters.contains(&expected), "{expected:?} in {counters:?}");
        }
    }

    #[test]
    fn a_broken_end_is_reported_once_after_the_good_frames() {
        let folder = Folder::new("broken");
        let mut bytes = write_all(&[Packet::whole(0, vec![1; 60]), Packet::whole(0, vec![2; 60])]);
        bytes.pop();
        let input = folder.with("in.pcap", &bytes);
        let mut queue = PcapQueue::open(&input, &folder.0.join("out.pcap")).expect("opens");
        let mut batch = Vec::new();
        assert_eq!(queue.receive(&mut batch, 10), 1);
        let error = queue.flush().expect_err("truncated");
        assert!(matches!(&error, NicError::Pcap { source: PcapError::Truncated { at: 100 }, .. }), "{error}");
        assert!(error.to_string().contains("in.pcap"), "{error}");
        assert!(queue.flush().is_ok() && queue.exhausted());
    }

    #[test]
    fn bad_files_are_named() {
        let folder = Folder::new("bad");
        let good = folder.with("good.pcap", &write_all(&[]));
        let junk = folder.with("junk", b"not a capture");
        let open = |input: &PathBuf, output: &PathBuf| PcapQueue::open(input, output).map(drop).expect_err("refused");
        let absent = folder.0.join("absent");
        assert!(open(&absent, &junk).to_string().contains("absent"));
        assert!(open(&junk, &absent).to_string().contains("neither pcap nor pcapng"));
        assert!(open(&good, &folder.0.join("no/folder")).to_string().contains("no/folder"));
        fs::hard_link(&good, folder.0.join("alias")).expect("linked");
        let error = open(&good, &folder.0.join("alias"));
        assert!(matches!(error, NicError::Pcap { source: PcapError::SameFile, .. }), "{error}");
        assert!(read_all(&fs::read(&good).expect("there")).is_ok(), "the input was harmed");
    }
}
