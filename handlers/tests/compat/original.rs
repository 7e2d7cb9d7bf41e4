//! An image in the form of upstream's build: runtime start-up code, upstream's section placement, devices accessed by
//! inline assembly, linker relaxation. Only `init_handlers` names its handlers.

use std::process::Command;

use hpu_vm::Image;
use spin_abi::control::Install;

use super::common::{Kind, ROOT, udp};
use super::{FPSPIN, PSPIN, Target, host_word, source};

/// Builds the image: as it is, or without `init_handlers`, which link-time optimisation removes.
fn original(target: Target, lto: bool) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("original.elf");
    let base = format!("-Wl,--defsym=handler_base={:#x}", target.machine.handler_mem_base);
    let output = Command::new("riscv64-unknown-elf-gcc")
        .args([
            "-march=rv32imac_zicsr",
            "-mabi=ilp32",
            "-O3",
            "-ffreestanding",
            "-nostdlib",
            "-nostartfiles",
            "-msmall-data-limit=64",
        ])
        .args(if target == PSPIN { ["-DLINK=0", "-DCLUSTERS=4"] } else { ["-DLINK=14", "-DCLUSTERS=2"] })
        .args(lto.then_some("-DLTO"))
        .arg(base)
        .arg("-T")
        .arg(source("original.ld"))
        .args([source("original.c"), source("original.S")])
        .arg("-o")
        .arg(&image)
        .output()
        .expect("riscv64-unknown-elf-gcc; on Debian: apt install gcc-riscv64-unknown-elf");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read(image).unwrap()
}

#[test]
fn an_image_with_a_runtime_of_its_own_runs() {
    for target in [PSPIN, FPSPIN] {
        let image = original(target, false);
        for kind in [Kind::Interp, Kind::Jit, Kind::Check] {
            let mut lab = target.lab(kind);
            let install = Install { handler_mem: 4096, ..target.install() };
            let (id, host) = lab.try_install(&image, install, ROOT).expect("installs");
            let replies = lab.exchange(&[udp(9999, b"one"), udp(9999, b"two")]);
            assert_eq!(lab.faults(id), [], "{}, {kind}", target.abi);
            assert_eq!(replies.len(), 2);
            assert_eq!(lab.info(id).handlers, [false, true, true]);
            let host = host.expect("host memory");
            let told: Vec<u32> = (0..7).map(|n| host_word(&host, 4 * n)).collect();
            let base = target.machine.handler_mem_base;
            assert_eq!(told[..2], [2, 0x1234_5680], "small data by gp: counted up, and as it was loaded");
            assert_eq!(told[2], base, "handler memory begins with the image's own");
            assert_eq!(told[3], 0x1000 + 4096, "and goes on with what the context asked for");
            assert_eq!(told[4], 2, "static handler memory");
            assert_eq!(told[5], 7, ".data_tiny_l1");
            assert_eq!(told[6], 1, "init_handlers has run once");
        }
    }
}

#[test]
fn handlers_that_link_time_optimisation_left_are_named_at_install() {
    for target in [PSPIN, FPSPIN] {
        let image = original(target, true);
        let install = |names: &str| Install {
            handler_mem: 4096,
            handlers: Some(names.parse().expect("names")),
            ..target.install()
        };
        for kind in [Kind::Interp, Kind::Jit, Kind::Check] {
            let mut lab = target.lab(kind);
            let refused = lab.try_install(&image, target.install(), ROOT).unwrap_err().to_string();
            assert!(refused.contains("--handlers hh=NAME") && refused.contains("payload, completion"), "{refused}");
            let (id, host) = lab.try_install(&image, install("ph=payload,th=completion"), ROOT).expect("installs");
            assert_eq!(lab.exchange(&[udp(9999, b"one"), udp(9999, b"two")]).len(), 2);
            assert_eq!((lab.faults(id), lab.info(id).handlers), (vec![], [false, true, true]));
            let host = host.expect("host memory");
            let (base, size) = (host_word(&host, 8), host_word(&host, 12));
            assert_eq!((base, size), (target.machine.handler_mem_base + 0x1000, 4096), "behind the image's own");
            // By address, without the others, and with handler memory from the end of the image's own on.
            let payload = Image::load(&image, &target.machine).expect("loads").symbol("payload").expect("defined");
            let start = target.machine.handler_mem_base + 64;
            let names = format!("ph={payload:#x},mem={start:#x}");
            lab.engine.remove(id, ROOT).expect("it is there");
            let (id, host) = lab.try_install(&image, install(&names), ROOT).expect("installs");
            assert_eq!(lab.exchange(&[udp(9999, b"one")]).len(), 1);
            assert_eq!((lab.faults(id), lab.info(id).handlers), (vec![], [false, true, false]));
            let host = host.expect("host memory");
            let (base, size) = (host_word(&host, 8), host_word(&host, 12));
            assert_eq!((base, size), (start, 0x1000 - 64 + 4096));
        }
        let mut lab = target.lab(Kind::Jit);
        let mut refused = |names: &str| lab.try_install(&image, install(names), ROOT).unwrap_err().to_string();
        assert!(refused("ph=nothing").contains("payload_handler \"nothing\" is neither a symbol of the image"));
        assert!(refused("hh=counted").contains("header_handler is said to be at 0x1c00"));
        assert!(refused("ph=payload,mem=0x1d000000").contains("0x1d000000 is not in the image's .l2_handler_data"));
    }
}

/// Contexts of one image share its data, and `init_handlers` runs for the first of them only.
#[test]
fn an_image_is_initialised_once() {
    let image = original(PSPIN, false);
    let mut lab = PSPIN.lab(Kind::Jit);
    let mut install = |port: u16| {
        let install = Install { rules: vec![format!("udp dport {port}")], ..PSPIN.install() };
        lab.try_install(&image, install, ROOT).expect("installs").1.expect("host memory")
    };
    let (_first, second) = (install(9999), install(9998));
    lab.exchange(&[udp(9999, b"one")]);
    lab.exchange(&[udp(9998, b"two")]);
    assert_eq!((host_word(&second, 0), host_word(&second, 24)), (2, 1));
}

#[test]
fn what_init_handlers_says_is_checked() {
    let refused = |body: &str| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("handler.c");
        let text = format!(
            "#include <handler.h>\nvoid init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **mem) {{ (void)hh; (void)ph; (void)th; (void)mem; {body} }}\n"
        );
        std::fs::write(&file, text).unwrap();
        let image = spin_handlers::try_build(&[&file], &["--abi", "pspin"]).unwrap();
        PSPIN.lab(Kind::Jit).try_install(&image, PSPIN.install(), ROOT).unwrap_err().to_string()
    };
    assert!(refused("").contains("names none"));
    assert!(
        refused("*ph = (handler_fn)0x1c000000;")
            .contains("payload_handler is said to be at 0x1c000000, where there is no code")
    );
    assert!(refused("*ph = (handler_fn)0x1d000001;").contains("0x1d000001"));
    assert!(refused("*(volatile int *)0 = 1;").contains("init_handlers was ended: store outside its memory"));
    assert!(refused("for (;;) __asm__ volatile(\"\");").contains("ran over its instruction limit"));
    assert!(refused("spin_cmd_t handle; spin_send_packet(mem, 60, &handle);").contains("bad device access"));
}
