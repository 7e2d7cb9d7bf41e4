//! Sets the shared library's soname, which programs linked with it record.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(fpspin)");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpspin.so");
}
