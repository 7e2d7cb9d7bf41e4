//! A driver program with its own packets, host memory and run loop.

use crate::build::{Link, Workshop};

#[test]
fn a_driver_that_closes_the_loop() {
    let workshop = Workshop::new();
    let program = workshop.program("examples/own_driver.c", Link::Shared);
    for compiler in ["clang", "gcc"] {
        let image = workshop.handlers(compiler);
        let ran = workshop.run(&program, &[image.as_os_str(), "dma_ph".as_ref(), "50".as_ref()]);
        assert!(ran.success, "{ran:?}");
        assert_eq!(ran.out.lines().next(), Some("released 50 wrong 0 accesses 11 on time 1"));
        let refused = "libpspin: pspinsim_run: the simulation is running: callbacks may neither run nor end it";
        assert_eq!(ran.err.lines().collect::<Vec<_>>(), [refused; 50]);
        // 200 bytes from an address one past a multiple of 16: 4 beats each way.
        assert!(ran.out.contains("\tWrites: 200 beats of 64 B at most; 10000 Bytes;"), "{}", ran.out);
        assert!(ran.out.contains("\tReads: 200 beats of 64 B at most; 10000 Bytes;"), "{}", ran.out);
        assert!(ran.out.contains("\tWritten: 200 Bytes; Read: 200 Bytes\n"), "{}", ran.out);
    }
}

#[test]
fn the_static_library_does_too() {
    let workshop = Workshop::new();
    let program = workshop.program("examples/own_driver.c", Link::Static);
    let image = workshop.handlers("clang");
    let ran = workshop.run(&program, &[image.as_os_str(), "dma_ph".as_ref(), "5".as_ref()]);
    assert!(ran.success, "{ran:?}");
}
