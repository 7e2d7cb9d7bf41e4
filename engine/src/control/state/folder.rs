//! The files of the state folder. One spind at a time has it. All calls may wait for a disk.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::error::StateError;
use crate::control::privileges::Account;

/// Beginning of the names of files that are not complete.
const TEMPORARY: &str = "new-";

/// An open and locked folder.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
    /// Number of temporary files so far.
    files: AtomicU64,
}

impl Folder {
    /// Opens a folder, and creates it if it does not exist. It is to belong to `account`, by default the one of this process.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn open(path: &Path, account: Option<&Account>) -> Result<Self, StateError> {
        let failed = |errno: Errno| StateError::Open { path: path.to_owned(), source: errno.into() };
        let created = match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(failed(errno)),
        };
        let fd = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
        if let Some(account) = account.filter(|_| created && rustix::process::geteuid().is_root()) {
            account.own(&fd).map_err(|source| StateError::Open { path: path.to_owned(), source })?;
        }
        let (found, uid) = (rustix::fs::fstat(&fd).map_err(failed)?, owner(account));
        if found.st_uid != uid {
            return Err(StateError::Owner { path: path.to_owned(), found: found.st_uid, needed: uid });
        }
        if found.st_mode & 0o077 != 0 {
            return Err(StateError::Mode { path: path.to_owned(), mode: found.st_mode & 0o7777 });
        }
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { fd, path: path.to_owned(), files: AtomicU64::default() }),
            Err(Errno::WOULDBLOCK) => Err(StateError::Taken(path.to_owned())),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of all files that are complete. Removes the others, which a killed spind left.
    ///
    /// # Errors
    /// The system refuses.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for file in Dir::read_from(&self.fd)? {
            let name = file?.file_name().to_string_lossy().into_owned();
            if name.starts_with(TEMPORARY) {
                // If it stays, it harms nothing.
                let _ = rustix::fs::unlinkat(&self.fd, &name, AtFlags::empty());
            } else if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Reads a regular file of at most `most` bytes.
    ///
    /// # Errors
    /// The system refuses, or it is another kind of file or longer.
    pub fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        // A pipe would block without NONBLOCK.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.fd, name, flags, Mode::empty())?;
        let found = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("it is no regular file"));
        }
        let len = u64::try_from(found.st_size).unwrap_or(u64::MAX);
        if len > most {
            return Err(io::Error::other(format!("it has {len} bytes: at most {most} on this machine")));
        }
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(std::fs::File::from(file), most), &mut bytes)?;
        Ok(bytes)
    }

    /// Writes a temporary file. Its contents are durable on return, its name is not.
    ///
    /// # Errors
    /// The system refuses.
    pub fn write(&self, parts: &[&[u8]]) -> io::Result<TemporaryFile<'_>> {
        let name = format!("{TEMPORARY}{}", self.files.fetch_add(1, Relaxed));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.fd, &name, flags, Mode::RUSR | Mode::WUSR)?;
        let temporary = TemporaryFile { folder: self, name: Some(name) };
        let mut file = std::fs::File::from(file);
        parts.iter().try_for_each(|part| io::Write::write_all(&mut file, part))?;
        file.sync_all()?;
        Ok(temporary)
    }

    /// Removes a file. The removal is durable on return.
    ///
    /// # Errors
    /// The system refuses.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            // An administrator may have removed it.
            Ok(()) | Err(Errno::NOENT) => self.sync(),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Makes the names of files durable.
    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(self.fd.as_fd())?)
    }
}

fn owner(account: Option<&Account>) -> u32 {
    let effective = rustix::process::geteuid();
    account.filter(|_| effective.is_root()).map_or(effective.as_raw(), Account::uid)
}

/// A complete file without a lasting name. Removed on drop.
#[derive(Debug)]
pub struct TemporaryFile<'f> {
    folder: &'f Folder,
    /// `None`: it was renamed.
    name: Option<String>,
}

impl TemporaryFile<'_> {
    /// Gives the file its name, in place of any other file of that name. Both are durable on return.
    ///
    /// # Errors
    /// The system refuses.
    pub fn rename(mut self, name: &str) -> io::Result<()> {
        let Some(temporary) = &self.name else { return Ok(()) };
        rustix::fs::renameat(&self.folder.fd, temporary, &self.folder.fd, name)?;
        self.name = None;
        self.folder.sync()
    }
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // The next start removes it, too.
            let _ = rustix::fs::unlinkat(&self.folder.fd, name, AtFlags::empty());
        }
    }
}
