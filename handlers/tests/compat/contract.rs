//! Published handlers' names, types and habits: `contract.c`.

use super::common::{ROOT, payload, udp};
use super::{COMPILERS, FPSPIN, PSPIN, build, everywhere, host_word, source};
use spin_abi::counters::Counter;
use spin_handlers::try_build;

/// Minimum number of checks that `contract.c` makes when it runs, beside those of types.
const CHECKS: u32 = 25;

#[test]
fn handlers_find_what_they_rely_on() {
    everywhere(|target, compiler, kind| {
        let image = build(target, compiler, "contract.c", &[]);
        let what = format!("{}, {compiler}, {kind}", target.abi);
        let mut lab = target.lab(kind);
        let (id, host) = lab.try_install(&image, target.install(), ROOT).expect("installs");
        let host = host.expect("host memory");
        let replies = lab.exchange(&[udp(9999, b"abcdefgh")]);
        assert_eq!(lab.faults(id), [], "{what}");
        let lines: Vec<u32> =
            (0..host_word(&host, 4).min(30)).map(|n| host_word(&host, 8 + 4 * u64::from(n))).collect();
        assert!(lines.is_empty(), "{what}: lines {lines:?} of contract.c do not hold");
        assert!(host_word(&host, 0) >= CHECKS, "{what}: {} checks", host_word(&host, 0));
        assert_eq!(lab.count(id, Counter::CommandErrors), 0, "{what}");
        let [sent, put] = &replies[..] else { panic!("{what}: {} frames", replies.len()) };
        assert_eq!(payload(sent), b"abcdefgh", "{what}: a send without a handle");
        assert_eq!((put[5], &put[32..]), (5, &[0xfe, 0xca, 0, 0][..]), "{what}: a put without a handle, to node 5");
        let written = [4096, 4104, 4112, 4120].map(|at| host_word(&host, at));
        assert_eq!(written, [0xcafe, 0xbeef, 0x600d, 0], "{what}: writes without a handle, and none behind TERMINATE");
    });
}

/// Source texts that published handlers have, and compilers by themselves refuse or warn of.
#[test]
fn habits_of_published_handlers_compile_without_warnings() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("habits.c");
    let text = "#include <handler.h>
        #include <packets.h>
        static uint32_t counter;
        __handler__ void habits_ph(handler_args_t *args) {
            int unused = 3;
            uint32_t address = args->task->pkt_mem;
            uint8_t *bytes = address;
            if (bytes[0] < -1 + unused) undeclared_by_anyone_but_linked(bytes);
            amo_add(&counter, 1);
            spin_cmd_wait(0);
            for (int i = 0; i < args->task->pkt_mem_size; i++) { bytes[i]; }
        }
        int undeclared_by_anyone_but_linked(uint8_t *bytes) { return bytes[0]; }
        void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **handler_mem_ptr) {
            volatile handler_fn handlers[] = {NULL, habits_ph, NULL};
            *hh = handlers[0];
            *ph = handlers[1];
            *th = handlers[2];
        }";
    std::fs::write(&file, text).unwrap();
    for target in [PSPIN, FPSPIN] {
        for compiler in COMPILERS {
            let built = try_build(&[&file], &["--abi", &target.abi.to_string(), "--compiler", compiler, "-Werror"]);
            built.unwrap_or_else(|error| panic!("{}, {compiler}: {error}", target.abi));
        }
    }
}

#[test]
fn link_time_optimisation_is_refused_in_a_line() {
    for abi in ["wire", "pspin", "fpspin"] {
        let said = try_build(&[&source("contract.c")], &["--abi", abi, "-flto"]).expect_err("compiled").to_string();
        assert!(said.contains("leave -flto out") && said.trim_end().lines().count() == 1, "{said}");
    }
}

/// A program may define the numbers of `spin_conf.h` before it includes that.
#[test]
fn a_program_sets_its_own_numbers() {
    let names = ["NB_CORES", "NB_CLUSTERS", "CORE_COUNT", "NUM_CLUSTER_HPUS", "PKT_SIZE", "PacketQueueLength"];
    let text: String = names
        .iter()
        .zip(3..)
        .map(|(name, value)| format!("_Static_assert({name} == {value}, \"{name}\");\n"))
        .collect();
    let defines: Vec<_> = names.iter().zip(3..).map(|(name, value)| format!("-D{name}={value}")).collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("conf.c");
    std::fs::write(&file, format!("#include <spin_conf.h>\n{text}#include \"{}\"\n", source("falls.c").display()))
        .unwrap();
    for abi in ["pspin", "fpspin"] {
        let options: Vec<&str> = ["--abi", abi].into_iter().chain(defines.iter().map(String::as_str)).collect();
        let built = try_build(&[&file], &options);
        assert!(built.is_ok(), "{}", built.unwrap_err());
    }
}
