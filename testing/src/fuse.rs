//! A file of a FUSE file system (linux/fuse.h) that does not answer when the file is closed.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

/// Longest wait for a close.
const LIMIT: Duration = Duration::from_secs(20);

/// Operations.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
/// Inodes: the folder, and the file, which has any name.
const FOLDER: u32 = 1;
const FILE: u32 = 2;
/// Linux's number of an operation that does not exist.
const ENOSYS: i32 = 38;
/// Length in bytes of the header of a request, and the longest request.
const HEADER: usize = 40;
const LONGEST: usize = 1 << 17;

/// A file whose close blocks other processes until this is dropped. No test may start a process while it has the file open: its copy
/// would be closed by exec(2). So a test of it has a program of its own.
#[derive(Debug)]
pub struct UnansweredFile {
    closes: Receiver<()>,
    folder: TempDir,
}

impl UnansweredFile {
    /// Mounts the file system. `None` if the test may not.
    ///
    /// # Panics
    /// When the system has no folder for it.
    #[must_use]
    pub fn mount() -> Option<Self> {
        let Ok(device) = File::options().read(true).write(true).open("/dev/fuse") else {
            crate::skip("a FUSE file system needs root, and /dev/fuse");
            return None;
        };
        let folder = tempfile::tempdir().expect("a folder");
        if !mount(&device, folder.path()) {
            crate::skip("a FUSE file system needs the right to mount");
            return None;
        }
        let (closed, closes) = channel();
        thread::spawn(move || serve(&device, &closed));
        Some(Self { closes, folder })
    }

    /// Opens the file. Closing this one does not block.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    pub fn open(&self) -> File {
        File::open(self.folder.path().join("file")).expect("it opens")
    }

    /// Waits until a process is blocked because it closes the file. Each call waits for another one.
    ///
    /// # Panics
    /// When none does.
    pub fn wait_for_close(&self) {
        self.closes.recv_timeout(LIMIT).expect("the file is closed");
    }
}

impl Drop for UnansweredFile {
    fn drop(&mut self) {
        // Ends the connection to the kernel at once, and with it all closes that wait.
        let _ = Command::new("umount").args(["--force", "--lazy"]).arg(self.folder.path()).status();
    }
}

/// Mounts a file system that is served through the device. Returns whether that is allowed.
fn mount(device: &File, folder: &Path) -> bool {
    let mut command = Command::new("mount");
    let options = "fd=0,rootmode=40000,user_id=0,group_id=0,nosuid,nodev,noexec";
    command.args(["--internal-only", "-t", "fuse", "-o", options, "spin-test"]).arg(folder);
    command.stdin(Stdio::from(device.try_clone().expect("a descriptor")));
    command.status().expect("mount(8) runs").success()
}

/// Answers the kernel until the file system is unmounted.
fn serve(mut device: &File, closed: &Sender<()>) {
    let mut request = vec![0; LONGEST];
    loop {
        match device.read(&mut request) {
            Ok(HEADER..) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::NotFound) => continue,
            _ => return,
        }
        let word = |index: usize| u32::from_ne_bytes(request[4 * index..][..4].try_into().expect("4 bytes"));
        let (operation, id, inode) = (word(1), [word(2), word(3)], word(4));
        let (error, body) = match operation {
            // The id is that of a thread.
            FLUSH if Path::new(&format!("/proc/self/task/{}", word(8))).exists() => (0, Vec::new()),
            FLUSH => {
                // The test may have ended.
                let _ = closed.send(());
                continue;
            }
            FORGET => continue,
            // Version 7.31, writes of 4096 bytes, times in nanoseconds.
            INIT => (0, [&[7, 31, 0, 0, 0, 4096, 1][..], &[0; 9]].concat()),
            LOOKUP => (0, [&[FILE, 0, 0, 0, 60, 0, 60, 0, 0, 0][..], &attributes(FILE)].concat()),
            GETATTR => (0, [&[60, 0, 0, 0][..], &attributes(inode)].concat()),
            OPEN => (0, vec![0; 4]),
            _ => (-ENOSYS, Vec::new()),
        };
        let len = 4 * (4 + body.len());
        let header = [u32::try_from(len).expect("short"), error.cast_unsigned(), id[0], id[1]];
        let reply: Vec<u8> = header.into_iter().chain(body).flat_map(u32::to_ne_bytes).collect();
        // The kernel may have given up the request.
        let _ = device.write_all(&reply);
    }
}

/// `struct fuse_attr` of an inode: its numbers of 64 bits are two words, the lower one first.
fn attributes(inode: u32) -> [u32; 22] {
    let mut words = [0; 22];
    let mode = if inode == FOLDER { 0o040_755 } else { 0o100_666 };
    // ino, mode, nlink, blksize
    (words[0], words[15], words[16], words[20]) = (inode, mode, 1, 4096);
    words
}
