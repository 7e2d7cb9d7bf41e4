//! Python with libspin's wheel.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::built;

/// Returns the folder of the package's sources.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace").join("host/libspin-python")
}

/// Virtual environments of `deploy/python-wheel.sh`.
#[derive(Debug)]
pub struct Python {
    folder: PathBuf,
}

impl Python {
    /// Builds and installs the wheel. `None` where there is no Python that can: the test is then skipped.
    ///
    /// # Panics
    /// When the wheel cannot be built or installed.
    #[must_use]
    pub fn with_wheel() -> Option<&'static Self> {
        static PYTHON: OnceLock<Option<Python>> = OnceLock::new();
        PYTHON.get_or_init(Self::install).as_ref()
    }

    fn install() -> Option<Self> {
        let check = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))";
        let mut python = Command::new("python3");
        if !python.args(["-c", check]).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            spin_testing::skip("there is no Python 3.11 with venv");
            return None;
        }
        let target = built().parent().expect("a profile's folder is in target/");
        let mut wheel = Command::new(sources().join("../../deploy/python-wheel.sh"));
        wheel.arg("dev").env("CARGO_TARGET_DIR", target).stdout(Stdio::null());
        assert!(wheel.status().expect("bash starts").success(), "the wheel is built and installed");
        Some(Self { folder: target.join("python") })
    }

    /// Returns the interpreter of the environment that has libspin and nothing else.
    #[must_use]
    pub fn interpreter(&self) -> PathBuf {
        self.folder.join("dev/venv/bin/python")
    }

    /// Returns the command that runs a program of the package's folder.
    #[must_use]
    pub fn program(&self, folder: &str, name: &str) -> Command {
        let mut command = Command::new(self.interpreter());
        command.arg(sources().join(folder).join(name).with_extension("py")).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Returns one of the tools' programs.
    #[must_use]
    pub fn tool(&self, name: &str) -> PathBuf {
        self.folder.join("tools/bin").join(name)
    }
}
