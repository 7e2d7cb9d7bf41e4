//! Names of translated code for `perf`, in the file `/tmp/perf-PID.map`.
//!
//! A line has the start and the size of a function, in hexadecimal, and its name
//! (tools/perf/Documentation/jit-interface.txt of the kernel). `perf report` takes any of the lines for an address,
//! not the last one (perf 6.1). New code can take the addresses of freed code. The lines of the freed code are then removed, and
//! stay until then, for profiles that were recorded before.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, PoisonError};

use hpu_vm::Image;
use hpu_vm::jit::{HostFunction, Translation};
use spin_abi::printable::printable;

/// Maximum size of the file in bytes, and of the copy in memory: users could fill the disk by installing many images.
const MAX_BYTES: usize = 8 << 20;
/// Maximum number of characters of an image's name.
const MAX_NAME: usize = 128;
/// Name of images that have none.
const UNNAMED: &str = "unnamed";

/// A perf map of this process. The file stays when the process ends, since `perf report` needs it.
#[derive(Debug)]
pub struct PerfMap {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` after an error.
    file: Option<File>,
    lines: Lines,
}

/// Error of the file of a perf map.
#[derive(Debug, thiserror::Error)]
#[error("the perf map {path}: {source}", path = path.display())]
pub struct PerfMapError {
    path: PathBuf,
    source: io::Error,
}

impl PerfMap {
    /// Creates the file. Its owner is the user of this process, and only that user and root can read it.
    ///
    /// # Errors
    /// The file cannot be created, or another user's file of this name cannot be removed.
    pub fn create() -> Result<Self, PerfMapError> {
        Self::create_in(Path::new("/tmp"), MAX_BYTES)
    }

    fn create_in(folder: &Path, max_bytes: usize) -> Result<Self, PerfMapError> {
        let path = folder.join(format!("perf-{}.map", process::id()));
        match new_file(&path) {
            Ok(file) => Ok(Self { path, state: Mutex::new(State { file: Some(file), lines: Lines::new(max_bytes) }) }),
            Err(source) => Err(PerfMapError { path, source }),
        }
    }

    /// Adds the functions of a new translation of `image`. Must be called while the translation lives.
    ///
    /// # Errors
    /// The file cannot be written, or is full. Only the first call that fails returns its error; the map does not change after it.
    pub fn add(&self, translation: &Translation, image: &Image, name: &str) -> Result<(), PerfMapError> {
        let functions = translation.functions();
        let lines = functions.map(|function| (function, line(&function, name, image.symbolize(function.guest))));
        // An update that panics leaves lines that are whole.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { file, lines: known } = &mut *state;
        let Some(open) = file else { return Ok(()) };
        let written = known.add(lines).and_then(|update| update.write(open));
        written.map_err(|source| {
            *file = None;
            PerfMapError { path: self.path.clone(), source }
        })
    }
}

/// Creates a file that did not exist. Other users can write to /tmp: a file, or a link to one, that they made in advance is removed
/// or refused, and never opened.
fn new_file(path: &Path) -> io::Result<File> {
    // With O_EXCL, open(2) does not follow links.
    let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match create() {
        // Of an earlier process with this id.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            create()
        }
        created => created,
    }
}

/// The line of a function of an image called `name`, in the function `symbol` of the guest at that offset.
fn line(function: &HostFunction, name: &str, symbol: Option<(&str, u32)>) -> String {
    let HostFunction { address, len, guest, .. } = *function;
    let name = if name.is_empty() { UNNAMED.into() } else { printable(name, MAX_NAME) };
    match symbol {
        Some((symbol, 0)) => format!("{address:x} {len:x} {name}:{symbol}\n"),
        Some((symbol, offset)) => format!("{address:x} {len:x} {name}:{symbol}+{offset:#x}\n"),
        None => format!("{address:x} {len:x} {name}:{guest:#010x}\n"),
    }
}

/// Lines of functions that do not overlap.
#[derive(Debug)]
struct Lines {
    /// End address and line of each function, by its address.
    by_address: BTreeMap<usize, (usize, String)>,
    /// Bytes of all lines.
    bytes: usize,
    max_bytes: usize,
}

/// Change of the file.
#[derive(Debug, PartialEq, Eq)]
enum Update {
    /// Text at its end, which is there.
    Append(usize, String),
    /// The whole text.
    Replace(String),
}

impl Lines {
    const fn new(max_bytes: usize) -> Self {
        Self { by_address: BTreeMap::new(), bytes: 0, max_bytes }
    }

    /// Adds functions with their lines. Removes lines of code that was there before.
    fn add(&mut self, new: impl Iterator<Item = (HostFunction, String)>) -> io::Result<Update> {
        let (end, mut text, mut removed) = (self.bytes, String::new(), false);
        for (HostFunction { address, len, .. }, line) in new {
            removed |= self.remove(address, address + len);
            text.push_str(&line);
            self.bytes += line.len();
            self.by_address.insert(address, (address + len, line));
        }
        if self.bytes > self.max_bytes {
            return Err(io::Error::other(format!("it would be longer than {} bytes", self.max_bytes)));
        }
        if removed {
            return Ok(Update::Replace(self.by_address.values().map(|(_, line)| &**line).collect()));
        }
        Ok(Update::Append(end, text))
    }

    /// Removes the lines of functions that have bytes between two addresses. Returns whether there were any.
    fn remove(&mut self, start: usize, end: usize) -> bool {
        let mut removed = false;
        while let Some((&address, &(last, _))) = self.by_address.range(..end).next_back()
            && last > start
        {
            let (_, line) = self.by_address.remove(&address).unwrap_or_default();
            self.bytes -= line.len();
            removed = true;
        }
        removed
    }
}

impl Update {
    fn write(self, file: &File) -> io::Result<()> {
        match self {
            Self::Append(end, text) => file.write_all_at(text.as_bytes(), end as u64),
            Self::Replace(text) => {
                file.write_all_at(text.as_bytes(), 0)?;
                file.set_len(text.len() as u64)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use hpu_vm::jit::HostFunction;

    use super::{Lines, PerfMap, Update, line};

    fn function(address: usize, len: usize) -> HostFunction {
        HostFunction { address, len, guest: 0x1d00_0120, is_handler: false }
    }

    /// What the file has after an update with functions of these addresses and lengths, which have a letter as line.
    fn update(lines: &mut Lines, functions: &[(usize, usize, &str)]) -> Update {
        let new = functions.iter().map(|&(address, len, line)| (function(address, len), line.to_owned()));
        lines.add(new).expect("there is room")
    }

    #[test]
    fn lines_have_start_size_and_name() {
        let function = function(0x7f00_1040, 0x2c0);
        for (name, symbol, expected) in [
            ("echo", Some(("payload_handler", 0)), "echo:payload_handler"),
            ("echo", Some(("memcpy", 0x120)), "echo:memcpy+0x120"),
            ("two words", None, "two words:0x1d000120"),
            ("", None, "unnamed:0x1d000120"),
            ("a\n0 ffffffff all", None, "a\\n0 ffffffff all:0x1d000120"),
        ] {
            assert_eq!(line(&function, name, symbol), format!("7f001040 2c0 {expected}\n"));
        }
    }

    #[test]
    fn new_code_takes_the_lines_of_its_addresses() {
        let mut lines = Lines::new(8);
        assert_eq!(update(&mut lines, &[(0, 10, "a"), (16, 10, "b")]), Update::Append(0, "ab".into()));
        assert_eq!(update(&mut lines, &[(32, 10, "c"), (10, 6, "d")]), Update::Append(2, "cd".into()));
        assert_eq!(update(&mut lines, &[(25, 8, "e")]), Update::Replace("ade".into()), "the ends of two");
        assert_eq!(update(&mut lines, &[(48, 1, "f")]), Update::Append(3, "f".into()));
        assert_eq!(update(&mut lines, &[(0, 100, "g")]), Update::Replace("g".into()));
        assert_eq!(lines.bytes, 1);
    }

    #[test]
    fn a_full_map_is_reported_and_has_bounded_size() {
        let mut lines = Lines::new(4);
        update(&mut lines, &[(0, 1, "1234")]);
        assert_eq!(update(&mut lines, &[(0, 1, "5678")]), Update::Replace("5678".into()));
        let error = lines.add([(function(1, 1), "9".to_owned())].into_iter()).expect_err("5 bytes");
        assert_eq!(error.to_string(), "it would be longer than 4 bytes");
    }

    #[test]
    fn the_file_is_shorter_after_lines_were_removed() {
        let mut lines = Lines::new(100);
        let mut file = tempfile::tempfile().expect("a temporary file");
        update(&mut lines, &[(0, 8, "first\n"), (8, 8, "second\n")]).write(&file).expect("written");
        update(&mut lines, &[(16, 8, "third\n")]).write(&file).expect("written");
        update(&mut lines, &[(0, 16, "new\n")]).write(&file).expect("written");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("text");
        assert_eq!(text, "new\nthird\n");
    }

    #[test]
    fn a_link_that_another_user_made_in_advance_is_not_followed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (target, path) =
            (folder.path().join("target"), folder.path().join(format!("perf-{}.map", std::process::id())));
        fs::write(&target, "precious").expect("written");
        symlink(&target, &path).expect("a link");
        let map = PerfMap::create_in(folder.path(), 100).expect("the link is removed");
        assert_eq!(map.path, path);
        let made = fs::symlink_metadata(&path).expect("a file");
        assert!(made.is_file() && made.nlink() == 1 && made.permissions().mode() & 0o7777 == 0o600, "{made:?}");
        assert_eq!(fs::read_to_string(&target).expect("it is there"), "precious");
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("a folder");
        let error = PerfMap::create_in(folder.path(), 100).expect_err("it cannot be removed").to_string();
        assert!(error.contains("perf map") && error.contains(path.to_str().expect("text")), "{error}");
    }
}
