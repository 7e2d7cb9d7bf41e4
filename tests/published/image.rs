//! Images of published handlers, in the forms in which such handlers are built.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use spin_abi::control::Abi;

/// How an image is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By spin-cc with this compiler.
    SpinCc(&'static str),
    /// By gcc with link-time optimisation, and upstream's section placement.
    Upstream,
}

pub const FORMS: [Form; 3] = [Form::SpinCc("clang"), Form::SpinCc("gcc"), Form::Upstream];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace")
}

/// A file of this folder.
pub fn published(name: &str) -> PathBuf {
    root().join("tests/published").join(name)
}

/// Images by what they were made of.
type Images = BTreeMap<String, Arc<OnceLock<Vec<u8>>>>;

/// Compiles handlers of `FOLDER/NAME.c` in a form, each image once in a process.
pub fn image(abi: Abi, name: &str, form: Form, defines: &[&str], to: &Path) -> PathBuf {
    let folder = if abi == Abi::Fpspin && published("fpspin").join(name).with_extension("c").exists() {
        "fpspin"
    } else {
        "pspin"
    };
    let source = published(folder).join(name).with_extension("c");
    let path = to.join(format!("{name}{}.elf", defines.len()));
    static KNOWN: LazyLock<Mutex<Images>> = LazyLock::new(Mutex::default);
    let known = {
        let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(format!("{abi} {name} {form:?} {defines:?}")).or_default().clone()
    };
    let bytes = known.get_or_init(|| match form {
        Form::SpinCc(compiler) => {
            let abi = abi.to_string();
            let options = [&["--abi", &abi, "--compiler", compiler][..], defines].concat();
            spin_handlers::try_build(&[&source], &options).expect("it compiles")
        }
        Form::Upstream => {
            upstream(abi, &source, defines, &path);
            fs::read(&path).expect("written")
        }
    });
    fs::write(&path, bytes).expect("written");
    path
}

/// Compiles and links as the published Makefiles do.
fn upstream(abi: Abi, source: &Path, defines: &[&str], to: &Path) {
    let (define, base) = match abi {
        Abi::Fpspin => ("-DSPIN_ABI_FPSPIN", "0x1c0c0000"),
        Abi::Pspin | Abi::Wire => ("-DSPIN_ABI_PSPIN", "0x1c300000"),
    };
    let compiler = "riscv64-unknown-elf-gcc";
    let libgcc = Command::new(compiler).args(["-march=rv32imac", "-mabi=ilp32", "-print-libgcc-file-name"]).output();
    let libgcc = String::from_utf8(libgcc.expect("gcc for RISC-V").stdout).expect("a path");
    let own: &[_] =
        if abi == Abi::Fpspin { &["host_data", "libc", "printf", "division"] } else { &["libc", "printf", "division"] };
    let output = Command::new(compiler)
        .current_dir(root().join("handlers"))
        .args(["-march=rv32imac_zicsr", "-mabi=ilp32", "-O3", "-flto", "-ffreestanding", "-fno-builtin", "-nostdlib"])
        .args(["-nostartfiles", "-msmall-data-limit=64", "-w", define])
        .args(["-I", "compat/include", "-I", "compat/device", "-I", "sdk/include", "-idirafter", "compat/libc"])
        .arg(format!("-Wl,--defsym=handler_base={base}"))
        .args(["-Wl,--undefined=main", "-T", "tests/compat/original.ld"])
        .args(defines)
        .args([source, &published("runtime.c")])
        .args(own.iter().map(|name| format!("compat/lib/{name}.c")))
        .args(["sdk/lib/string.c", "tests/compat/original.S", libgcc.trim(), "-o"])
        .arg(to)
        .output()
        .expect("gcc for RISC-V");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let symbols = Command::new("riscv64-unknown-elf-nm").arg(to).output().expect("nm for RISC-V");
    assert!(!String::from_utf8_lossy(&symbols.stdout).contains("init_handlers"), "nothing is left of it");
}
