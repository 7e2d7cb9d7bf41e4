//! The image translated, interpreted, and native code for the same.

use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use hpu_vm::jit::Executor;
use hpu_vm::{Checks, Image};
use spin_testing::bounded;
use tempfile::TempDir;

use super::guest::{Guest, LARGER, MACHINE, translate};
use super::native::Native;
use super::variant::run;
use super::work::{Summary, Work};

/// Bytes of code that the image has at least.
const LEAST_CODE: usize = 100 << 10;

/// Compiles an image and the native library.
fn build(image: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("large/build");
    assert!(Command::new(script).arg(folder.path()).arg(image).status().unwrap().success());
    folder
}

/// Translates an image twice, with page checks and exact ones, and runs all packets in each way.
fn compare(folder: &TempDir, image: &Rc<Image>, packets: usize) {
    let executor = Rc::new(Executor::new().unwrap());
    let work = Work::new(7, packets);
    let native = run(&mut Native::load(&folder.path().join("large.so"), &work).unwrap(), &work).unwrap().1;
    let summary = Summary::of(&native);
    assert_eq!((summary.packets as usize, summary.broken), (work.count, 0));
    assert!(summary.counts.iter().all(|count| *count > 0), "{:?}", summary.counts);

    let check = |name: &str, translation| {
        let mut guest = Guest::new(executor.clone(), image.clone(), translation, &work).unwrap();
        let (_, memory) = run(&mut guest, &work).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(Summary::of(&memory), summary, "{name}");
        let differs = memory.iter().zip(&native).position(|(own, other)| own != other);
        assert_eq!(differs, None, "{name}: first byte of handler memory that differs");
    };
    check("interpreted", None);
    let code: usize = image.code().segments().iter().map(|segment| segment.bytes.len()).sum();
    for (name, checks) in [("page", Checks::Page), ("exact", Checks::Exact)] {
        let translation = translate(image, checks).unwrap();
        assert!(translation.untranslated().is_empty(), "{name}: {:?}", translation.untranslated());
        // Most instructions have two or four bytes, and handlers contain a few thousand copies.
        let instructions = translation.size().instructions;
        assert!((code / 4 - code / 16..code).contains(&instructions), "{name}: {instructions} of {code} bytes");
        check(name, Some(Rc::new(translation)));
    }
}

#[test]
fn a_large_image_is_translated_as_a_whole_and_does_what_native_code_does() {
    let folder = build("large");
    let image = Rc::new(Image::load(&std::fs::read(folder.path().join("large.elf")).unwrap(), &MACHINE).unwrap());
    let code: usize = image.code().segments().iter().map(|segment| segment.bytes.len()).sum();
    assert!(code > LEAST_CODE, "{code} bytes");
    compare(&folder, &image, bounded(160, 2000));
}

/// Unrolled loops make half a megabyte of the library.
#[test]
fn a_larger_image_is_translated_as_a_whole() {
    if !bounded(false, true) {
        return;
    }
    let folder = build("large-unrolled");
    let image = Image::load(&std::fs::read(folder.path().join("large-unrolled.elf")).unwrap(), &LARGER).unwrap();
    compare(&folder, &Rc::new(image), 1000);
}
