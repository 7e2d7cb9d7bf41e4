//! Compiles the BPF programs with clang; the objects are embedded in the library.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// In `src/bpf`, without their ending.
const SOURCES: [&str; 2] = ["filter", "traffic"];

fn main() {
    println!("cargo::rerun-if-env-changed=CLANG");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let clang = clang();
    for name in SOURCES {
        let source = format!("src/bpf/{name}.bpf.c");
        println!("cargo::rerun-if-changed={source}");
        let status = Command::new(&clang)
            // libbpf reads the maps from BTF, which `-g` adds. Linux supports v3 since 5.1.
            .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-c", &source, "-o"])
            .arg(folder.join(format!("{name}.bpf.o")))
            .args(multiarch_include())
            .status()
            .unwrap_or_else(|error| panic!("cannot run {clang}: {error}"));
        assert!(status.success(), "{clang} could not compile {source}: {status}");
    }
}

/// `$CLANG`, otherwise the first clang that runs.
fn clang() -> String {
    if let Ok(clang) = env::var("CLANG") {
        return clang;
    }
    let candidates = ["clang", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14"];
    let works = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    let found = candidates.into_iter().find(works);
    found.expect("the XDP program needs clang: apt install clang (or name one in $CLANG)").to_owned()
}

/// Debian and Ubuntu keep `asm/types.h` in a per-architecture folder that `-target bpf` does not search.
fn multiarch_include() -> Vec<String> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let folder = format!("/usr/include/{arch}-linux-gnu");
    if Path::new(&folder).is_dir() { vec![format!("-I{folder}")] } else { Vec::new() }
}
