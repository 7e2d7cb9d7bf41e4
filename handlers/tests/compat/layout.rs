//! Offsets, sizes and constants, asserted at compile time by `layout.c`.

use std::path::Path;
use std::process::Command;

use spin_handlers::{spin_cc, try_build};

use super::{COMPILERS, FPSPIN, PSPIN, build, source};

#[test]
fn the_headers_have_the_numbers_of_the_machines() {
    for target in [PSPIN, FPSPIN] {
        for compiler in COMPILERS {
            build(target, compiler, "layout.c", &[]);
        }
    }
}

/// The oldest supported compiler, where it is installed.
#[test]
fn clang_14_builds_everything() {
    if Command::new("clang-14").arg("--version").output().is_err() {
        eprintln!("no clang-14 here: not tested");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for abi in ["pspin", "fpspin"] {
        for name in ["contract.c", "layout.c", "api.c", "fault.c", "falls.c", "prints.c", "reservation.c", "stress.c"] {
            let mut command = Command::new(spin_cc());
            command.env("SPIN_CLANG", "clang-14").args(["--abi", abi, "-Werror"]).arg(source(name));
            let output = command.arg("-o").arg(folder.path().join("x.elf")).output().unwrap();
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// The headers also compile as freestanding C++.
#[test]
fn the_headers_are_cpp_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("handler.cc");
    let text =
        "#include <assert.h>\n#include <handler.h>\n#include <packets.h>\n#include <stdlib.h>\n#include <string.h>\n
        #ifdef SPIN_ABI_FPSPIN\n#include <spin_host.h>\n#endif
        template <typename T> static T twice(T value) { return value + value; }
        extern \"C\" void payload_handler(handler_args_t *args) {
            task_t *task = args->task;
            spin_cmd_t handle;
            spin_dma_t copy = 0;
            spin_lock_t lock;
            uint32_t done;
            uint8_t *payload;
            uint32_t length;
            spin_lock_init(&lock);
            GET_IP_UDP_PLD(task->pkt_mem, payload, length)
            spin_dma(payload, task->scratchpad[0], length, SPIN_DMA_EXT2LOC, 0, &copy);
            spin_dma_test(copy, &done);
            assert(done);
            printf(\"%d\\n\", twice(static_cast<int>(amo_or(&lock, 1))));
            spin_send_packet(task->pkt_mem, task->pkt_mem_size, &handle);
        }";
    std::fs::write(&file, text).unwrap();
    for abi in ["pspin", "fpspin"] {
        for compiler in COMPILERS {
            let image = try_build(&[&file], &["--abi", abi, "--compiler", compiler, "-Werror"]);
            image.unwrap_or_else(|error| panic!("{abi}, {compiler}: {error}"));
        }
    }
}

fn refused(text: &str, options: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("handler.c");
    std::fs::write(&file, text).unwrap();
    try_build(&[Path::new(&file)], options).expect_err("compiled").to_string()
}

#[test]
fn an_image_is_for_one_machine() {
    assert!(refused("#include <handler.h>\n", &["--abi", "pspin", "-DSPIN_ABI_FPSPIN"]).contains("both defined"));
    let both = refused("#include <handler.h>\n#include <spin.h>\n", &["--abi", "pspin"]);
    assert!(both.contains("include one of them"), "{both}");
    assert!(refused("#include <spin_host.h>\n", &["--abi", "pspin"]).contains("FPsPIN's"));
    assert!(refused("#include <handler.h>\n", &[]).contains("handler.h"), "wire handlers have spin.h");
}
