//! Files of Unix sockets. Binding replaces only a stale socket; the file is removed at the end.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Reason why a socket cannot listen at a path.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another spind listens there.
    #[error("another spind listens on {}: stop it, or choose another path", .0.display())]
    Taken(PathBuf),
    /// The path is no socket.
    #[error("{} exists and is no socket: choose another path", .0.display())]
    NotASocket(PathBuf),
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// The file of a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketPath {
    path: PathBuf,
    /// Device and inode. They prevent that a file of another process at that path is removed.
    file: Option<(u64, u64)>,
}

impl SocketPath {
    /// Removes it, unless another file is there.
    ///
    /// # Errors
    /// The system refuses.
    pub fn remove(&self) -> io::Result<()> {
        if self.file.is_some() && file_at(&self.path) == self.file { fs::remove_file(&self.path) } else { Ok(()) }
    }
}

/// Removes sockets for a process that has given up the right to do so.
pub trait RemoveSocket: Send + Sync {
    /// Removes a socket.
    ///
    /// # Errors
    /// The system refuses.
    fn remove(&self, socket: &SocketPath) -> io::Result<()>;
}

/// The file of a listening socket, removed on drop.
pub struct SocketFile {
    at: SocketPath,
    /// `None`: this process removes it.
    remover: Option<Arc<dyn RemoveSocket>>,
}

impl SocketFile {
    /// Listens at `path`, and creates its folder if needed, with mode 0755. Users to whom the file mode `mode` gives write permission may connect.
    /// Descriptors that they send are refused: spind needs none.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub fn listen(path: &Path, mode: u32) -> Result<(UnixListener, Self), SocketError> {
        let fail = |source| SocketError::Io { path: path.to_path_buf(), source };
        remove_stale(path)?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
            create_folder(folder).map_err(fail)?;
        }
        let listener = UnixListener::bind(path).map_err(fail)?;
        // Older kernels cannot refuse descriptors. Dropping one may then block the thread.
        if let Err(error) = spin_shm::take_no_fds(&listener) {
            tracing::debug!("{}: descriptors that are sent there are let in, and dropped: {error}", path.display());
        }
        let bound = Self { at: SocketPath { path: path.to_path_buf(), file: file_at(path) }, remover: None };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(fail)?;
        Ok((listener, bound))
    }

    /// The file.
    #[must_use]
    pub const fn at(&self) -> &SocketPath {
        &self.at
    }

    /// Has another process remove the file.
    pub fn entrust(&mut self, remover: Arc<dyn RemoveSocket>) {
        self.remover = Some(remover);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let removed = match &self.remover {
            Some(remover) => remover.remove(&self.at),
            None => self.at.remove(),
        };
        // The folder may belong to another user.
        if let Err(error) = removed {
            tracing::warn!("socket {} stays behind: {error}", self.at.path.display());
        }
    }
}

/// Mode of a created folder: all users reach the socket, whose own mode decides who may connect, and none but the owner replaces it.
const FOLDER_MODE: u32 = 0o755;

/// Creates a folder with [`FOLDER_MODE`], whatever the umask.
fn create_folder(folder: &Path) -> io::Result<()> {
    // Nobody else may write there in between, even if the umask allows it.
    fs::DirBuilder::new().mode(FOLDER_MODE).create(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(FOLDER_MODE))
}

/// Device and inode of a file.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Removes a socket that a killed spind left behind. Removes no other file, and no socket with a listener.
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
