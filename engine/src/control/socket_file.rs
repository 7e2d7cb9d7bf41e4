//! Files of Unix sockets. Binding replaces only a stale socket; the file is removed at the end.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Why a socket cannot listen at a path.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another spind listens there.
    #[error("another spind listens on {}: stop it, or choose another path", .0.display())]
    Taken(PathBuf),
    /// The path is something else than a socket.
    #[error("{} exists and is no socket: choose another path", .0.display())]
    NotASocket(PathBuf),
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The file of a listening socket, removed when dropped.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode: another file at that path must not be removed.
    file: Option<(u64, u64)>,
}

impl SocketFile {
    /// Listens at `path`, in a folder that is created if need be. Users to whom the file mode `mode` gives write permission may connect.
    /// Descriptors that they send are refused: spind needs none.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub fn listen(path: &Path, mode: u32) -> Result<(UnixListener, Self), SocketError> {
        let fail = |source| SocketError::Io { path: path.to_path_buf(), source };
        remove_stale(path)?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
            fs::create_dir(folder).map_err(fail)?;
        }
        let listener = UnixListener::bind(path).map_err(fail)?;
        // Older kernels cannot refuse them; dropping a descriptor may then block the thread.
        if let Err(error) = spin_shm::take_no_fds(&listener) {
            tracing::debug!("{}: descriptors that are sent there are let in, and dropped: {error}", path.display());
        }
        let bound = Self { path: path.to_path_buf(), file: file_at(path) };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(fail)?;
        Ok((listener, bound))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.file.is_some() && file_at(&self.path) == self.file {
            // The folder may be another user's, and spind has given up the right to write there.
            if let Err(error) = fs::remove_file(&self.path) {
                tracing::warn!("socket {} stays behind: {error}", self.path.display());
            }
        }
    }
}

/// Device and inode of a file.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Removes a socket that a killed spind left behind, and only a socket on which nobody listens.
fn remove_stale(path: &Path) -> Result<(), SocketError> {
    let Ok(file) = fs::symlink_metadata(path) else { return Ok(()) };
    if !file.file_type().is_socket() {
        return Err(SocketError::NotASocket(path.to_path_buf()));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(SocketError::Taken(path.to_path_buf())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|source| SocketError::Io { path: path.to_path_buf(), source })
        }
        Err(_) => Ok(()),
    }
}
