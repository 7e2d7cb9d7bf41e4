//! Builds the library, handlers and C programs the way users do.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use spin_tests::built;
use tempfile::TempDir;

/// Folder of the crate.
pub fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Linkage of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Linked with `libpspin.so`.
    Shared,
    /// Linked with `libpspin.a`.
    Static,
}

/// Linker arguments of static programs: the libraries of Rust's standard library. Section garbage collection removes
/// unused parts of the engine.
const SYSTEM: [&str; 5] = ["-Wl,--gc-sections", "-lgcc_s", "-lm", "-lpthread", "-ldl"];

/// Programs and images of one test, in a temporary folder.
pub struct Workshop {
    folder: TempDir,
}

impl Workshop {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file");
        path
    }

    /// Writes an image of `programs/handlers.c`.
    pub fn handlers(&self, compiler: &str) -> PathBuf {
        self.file(&format!("handlers-{compiler}.elf"), image(compiler))
    }

    /// Compiles a program from a source path within the crate.
    pub fn program(&self, source: &str, link: Link) -> PathBuf {
        let (source, library) = (folder().join(source), built());
        let program = self.path(source.file_stem().expect("a name").to_str().expect("UTF-8"));
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I"]).arg(folder().join("include"));
        cc.arg(&source).arg("-o").arg(&program);
        match link {
            Link::Shared => {
                cc.arg("-L").arg(library).arg("-lpspin").arg(format!("-Wl,-rpath,{}", library.display()));
            }
            Link::Static => {
                cc.arg(library.join("libpspin.a")).args(SYSTEM);
            }
        }
        let output = cc.output().expect("a C compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    /// Runs a program to completion.
    pub fn run<S: AsRef<std::ffi::OsStr>>(&self, program: &Path, arguments: &[S]) -> Ran {
        let output = Command::new(program).args(arguments).current_dir(self.folder.path()).output().expect("it starts");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Ran {
            success: output.status.success(),
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

/// Returns the image of `programs/handlers.c`, built once per compiler.
fn image(compiler: &str) -> &'static [u8] {
    static IMAGES: [OnceLock<Vec<u8>>; 2] = [const { OnceLock::new() }; 2];
    IMAGES[usize::from(compiler == "gcc")].get_or_init(|| {
        let source = folder().join("tests/relinked/programs/handlers.c");
        let arguments = ["--abi", "pspin", "-g", "-Werror", "--compiler", compiler];
        spin_handlers::try_build(&[&source], &arguments).unwrap_or_else(|error| panic!("{error}"))
    })
}

/// Exit status and output of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    pub success: bool,
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Returns the rest of each output line that begins with `start`.
    pub fn after(&self, start: &str) -> Vec<&str> {
        self.out.lines().filter_map(|line| line.strip_prefix(start)).collect()
    }
}
