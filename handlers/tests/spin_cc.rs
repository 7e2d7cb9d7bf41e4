//! `spin-cc` from a user's view: correct images, and error messages that tell what to do.

use object::read::elf::{ElfFile32, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, elf};
use spin_abi::map::{Machine, PROGRAM_MOST};
use spin_handlers::{build, folder, source, spin_cc, try_build};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

const SHIPPED: [&str; 8] =
    ["icmp_echo", "udp_pingpong", "filtering", "kvstore", "strided_ddt", "aggregate", "reduce", "histogram"];

fn testing() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder().join("testing")).unwrap();
    let files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 10, "testing handlers are missing: {files:?}");
    files
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    file
}

fn refused(text: &str, arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "handler.c", text);
    try_build(&[&file], arguments).expect_err("compiled").to_string()
}

#[test]
fn every_handler_compiles_without_warnings() {
    for file in SHIPPED.map(source).into_iter().chain(testing()) {
        assert!(!build(&file).is_empty());
    }
}

#[test]
fn segments_are_page_aligned_ascend_and_are_never_writable_code() {
    for name in ["icmp_echo", "counter", "big_bss"] {
        let image = build(&source(name));
        let file = ElfFile32::<Endianness>::parse(&*image).unwrap();
        let endian = file.endian();
        assert_eq!(file.elf_header().e_machine(endian), elf::EM_RISCV);
        let loads = file.elf_program_headers().iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD);
        let mut end = 0;
        let mut code = 0;
        for segment in loads {
            let (address, flags) = (segment.p_vaddr(endian), segment.p_flags(endian));
            assert!(address >= end && address % 4096 == 0, "{name}: {address:#x}");
            assert_ne!(flags & (elf::PF_W | elf::PF_X), elf::PF_W | elf::PF_X, "{name}");
            code += u32::from(flags.contains(elf::PF_X));
            end = address + segment.p_memsz(endian);
        }
        assert_eq!(code, 1, "{name}");
    }
}

#[test]
fn handlers_are_global_functions_with_a_size() {
    for name in SHIPPED {
        let image = build(&source(name));
        let file = object::File::parse(&*image).unwrap();
        let handler = file.symbol_by_name("payload_handler").unwrap();
        assert!(handler.is_global() && handler.size() > 0 && handler.kind() == object::SymbolKind::Text);
    }
}

#[test]
fn works_from_any_folder_and_through_symbolic_links() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("first");
    std::os::unix::fs::symlink(spin_cc(), &first).unwrap();
    std::os::unix::fs::symlink("first", folder.path().join("second")).unwrap();
    std::fs::create_dir(folder.path().join("with space")).unwrap();
    let inside = folder.path().join("with space");
    write(&inside, "my handler.c", "#include <spin.h>\nvoid payload_handler(handler_args_t *a) { (void)a; WORD }\n");
    let output = Command::new("../second")
        .args(["my handler.c", "-D", "WORD=spin_puts(\"a b\");", "-o", "my handler.elf"])
        .current_dir(&inside)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(inside.join("my handler.elf").is_file());
}

#[test]
fn the_compilers_own_helpers_are_there() {
    let text = "#include <spin.h>
        struct big { uint8_t bytes[256]; };
        SPIN_HANDLER_DATA struct big one, other;
        void payload_handler(handler_args_t *a) {
            one = other;
            memset(&other, (int)a->hpu_id, sizeof other);
            memmove(&one.bytes[1], &one, a->hpu_gid % 100);
            if (memcmp(&one, &other, a->hpu_gid % 100)) one.bytes[0] = (uint8_t)spin_cycles();
        }";
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "helpers.c", text);
    try_build(&[&file], &["-Werror", "-Os"]).unwrap();
}

/// Whether the image's attributes section names an instruction set extension.
fn has(extension: &str, image: &[u8]) -> bool {
    image.windows(extension.len()).any(|bytes| bytes == extension.as_bytes())
}

fn has_vectors(image: &[u8]) -> bool {
    has("zve32x", image)
}

#[test]
fn a_chosen_instruction_set_is_that_of_the_helpers_too() {
    let folder = tempfile::tempdir().unwrap();
    let text = "#include <spin.h>
        void payload_handler(handler_args_t *a) { memset((void *)a->task->handler_mem, 7, a->task->handler_mem_size); }";
    let file = write(folder.path(), "fill.c", text);
    for compiler in ["clang", "gcc"] {
        let image = |more: &[&str]| try_build(&[&file], &[&["--compiler", compiler], more].concat()).unwrap();
        assert!(has("zbb", &image(&[])));
        assert!(!has("zbb", &image(&["-march=rv32imac"])));
    }
}

#[test]
fn vectors_are_used_when_asked_for() {
    let handler = source("aggregate");
    assert!(!has_vectors(&build(&handler)));
    match try_build(&[&handler], &["-Werror", "--vectors"]) {
        Ok(image) => assert!(has_vectors(&image)),
        Err(error) => assert!(error.to_string().contains("--vectors needs clang 16"), "{error}"),
    }
}

#[test]
fn says_what_is_wrong_with_a_source() {
    let none = refused("int nothing;", &[]);
    assert!(none.contains("define header_handler, payload_handler or completion_handler"), "{none}");
    let hidden = refused("#include <spin.h>\nvoid payload_handlr(handler_args_t *a) { (void)a; }", &[]);
    assert!(hidden.contains("no handler"), "{hidden}");
    let prelude = "#include <spin.h>\nint printf(const char *, ...);\n";
    let undefined =
        refused(&format!("{prelude}void payload_handler(handler_args_t *a) {{ (void)a; printf(\"\"); }}"), &[]);
    assert!(undefined.contains("undefined symbol: printf") && undefined.contains("no C library"), "{undefined}");
    // Code that a C++ compiler emits for a global object with a constructor.
    let constructed = "#include <spin.h>\nstatic volatile int x;\n__attribute__((constructor)) static void f(void) { x = 1; }\n\
        void payload_handler(handler_args_t *a) { (void)a; }";
    let constructed = refused(constructed, &[]);
    assert!(constructed.contains("has a constructor, which nothing would run"), "{constructed}");
    let shape = refused("#include <spin.h>\nint payload_handler(int a) { return a; }", &[]);
    assert!(shape.contains("conflicting types"), "{shape}");
    let large =
        "#include <spin.h>\nstatic uint8_t x[4 << 20];\nvoid payload_handler(handler_args_t *a) { x[a->hpu_id]++; }";
    let large = refused(large, &[]);
    assert!(large.contains("l2_data") && large.contains("overflowed"), "{large}");
    assert!(try_build(&[&source("big_bss")], &["--preset=fpspin"]).is_err(), "2 MiB do not fit FPsPIN's 768 KiB");
}

/// A handler with `bytes` bytes of constants.
fn large_handler(bytes: usize) -> String {
    format!(
        "#include <spin.h>\nstatic const uint8_t table[{bytes}] = {{1}};\n\
         void payload_handler(handler_args_t *a) {{ spin_report_error(table[a->hpu_id]); }}"
    )
}

#[test]
fn tells_how_to_link_for_a_larger_program_memory() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "large.c", &large_handler(100_000));
    let error = try_build(&[&file], &[]).expect_err("linked").to_string();
    assert!(error.contains("program"), "{error}");
    let size = "0x19000";
    assert!(
        error.contains(&format!("--program-size {size}, and add \"program_size = {size}\" to [machine]")),
        "{error}"
    );
    let machine = |program_size| Machine { program_size, ..Machine::PSPIN };
    for arguments in
        [&["--program-size", size][..], &["--program-size=102400"], &["--program-size", size, "--preset", "fpspin"]]
    {
        let image = try_build(&[&file], arguments).unwrap();
        let refused = hpu_vm::Image::load(&image, &Machine::PSPIN).unwrap_err().to_string();
        assert!(refused.contains(&format!("add \"program_size = {size}\" to [machine]")), "{refused}");
        hpu_vm::Image::load(&image, &machine(0x1_9000)).unwrap();
    }
    let beyond = refused(&large_handler(1 << 20), &[]);
    let most = format!("more bytes than program memory can have ({PROGRAM_MOST})");
    assert!(beyond.contains(&most), "{beyond}");
}

/// spind accepts a limited number of symbols.
#[test]
fn labels_of_the_assembler_are_no_symbols() {
    let image = build(&source("filtering"));
    let elf = ElfFile32::<Endianness>::parse(&*image).unwrap();
    let names: Vec<_> = elf.symbols().filter_map(|symbol| symbol.name().ok()).collect();
    assert!(names.contains(&"payload_handler"), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with(".L")), "{names:?}");
}

#[test]
fn says_what_is_wrong_with_a_call() {
    let handler = source("counter");
    let handler = handler.to_str().unwrap();
    let cases: [(&[&str], &str); 11] = [
        (&["-o", "/nowhere/x.elf"], "no source file"),
        (&[handler], "no output given"),
        (&["/nowhere/x.c", "-o", "x.elf"], "cannot read /nowhere/x.c"),
        (&[handler, "-o"], "-o needs a value"),
        (&[handler, "-o", "x.elf", "--preset", "huge"], "pspin, fpspin or a FILE.ld"),
        (&[handler, "-o", "x.elf", "--preset", "/nowhere/x.ld"], "cannot read /nowhere/x.ld"),
        (&[handler, "-o", "x.elf", "--frob"], "unknown option --frob"),
        (&[handler, "-o", "x.elf", "--program-size", "0x1001"], "a multiple of 4096 up to 0x100000"),
        (&[handler, "-o", "x.elf", "--program-size=0"], "a multiple of 4096 up to 0x100000"),
        (&[handler, "-o", "x.elf", "--program-size=0x101000"], "a multiple of 4096 up to 0x100000"),
        (&[handler, "-o", "x.elf", "--program-size=large"], "a multiple of 4096 up to 0x100000"),
    ];
    for (arguments, expected) in cases {
        let output = Command::new(spin_cc()).args(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(expected), "{arguments:?}: {stderr}");
    }
}

#[test]
fn names_the_packages_when_the_compiler_is_missing() {
    let source = source("counter");
    let cases = [
        (&["SPIN_CLANG"][..], &["--compiler", "clang"][..], "apt install clang-19 lld-19"),
        (&["SPIN_CLANG", "SPIN_GCC"], &[], "apt install clang-19 lld-19"),
        (&["SPIN_LLD"], &[], "apt install lld-"),
        (&["SPIN_GCC"], &["--compiler", "gcc"], "apt install gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf"),
    ];
    for (variables, arguments, packages) in cases {
        let missing = || {
            let mut command = Command::new(spin_cc());
            variables.iter().for_each(|variable| _ = command.env(variable, "not-a-program"));
            command
        };
        let output = missing().arg(&source).args(arguments).args(["-o", "/nowhere/x.elf"]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(packages), "{stderr}");
        let check = missing().arg("--check").args(arguments).output().unwrap();
        assert!(!check.status.success() && String::from_utf8_lossy(&check.stderr).contains(packages));
    }
    for compiler in ["clang", "gcc"] {
        let check = Command::new(spin_cc()).args(["--check", "--compiler", compiler]).output().unwrap();
        assert!(check.status.success() && String::from_utf8_lossy(&check.stdout).lines().count() == 2);
    }
}

#[test]
fn a_failed_build_leaves_the_former_image() {
    let folder = tempfile::tempdir().unwrap();
    let image = write(folder.path(), "handler.elf", "former");
    let broken = write(folder.path(), "broken.c", "int x = ;");
    let status = Command::new(spin_cc()).arg(broken).arg("-o").arg(&image).stderr(std::process::Stdio::null()).status();
    assert!(!status.unwrap().success());
    assert_eq!(std::fs::read(image).unwrap(), b"former");
}

/// Compiles a handler that uses the SDK's own functions, with this cache, and returns the image.
fn build_with_cache(cache: &Path, abi: &str) -> Result<Vec<u8>, String> {
    let folder = tempfile::tempdir().unwrap();
    let text = "#include <string.h>
        #include <handler.h>
        static char bytes[64];
        static void payload(handler_args_t *a) { memcpy(bytes, a, sizeof(*a)); }
        void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **mem) { *hh = *th = 0; *ph = payload; *mem = 0; }";
    let file = write(folder.path(), "handler.c", text);
    let image = folder.path().join("x.elf");
    let output = Command::new(spin_cc())
        .env("SPIN_CC_CACHE", cache)
        .args(["--quiet", "--abi", abi, "-o"])
        .args([&image, &file])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() && said.is_empty() { Ok(std::fs::read(image).unwrap()) } else { Err(said.into()) }
}

#[test]
fn the_cache_changes_no_image() {
    let folder = tempfile::tempdir().unwrap();
    let entries = || std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let built = ["pspin", "fpspin"].map(|abi| {
        let image = build_with_cache(Path::new(""), abi);
        assert!(build_with_cache(folder.path(), abi) == image, "{abi}: with a new entry");
        assert!(build_with_cache(folder.path(), abi) == image, "{abi}: with the entry");
        image
    });
    assert_eq!(entries().len(), 2, "an entry for each ABI");
    assert!(build_with_cache(Path::new("/proc/none"), "pspin") == built[0], "a cache that cannot be written");
    // What an entry holds is used.
    for entry in entries() {
        std::fs::write(entry.join("compat_printf.o"), "no object").unwrap();
    }
    let failed = build_with_cache(folder.path(), "pspin").expect_err("a spoilt entry was not used");
    assert!(failed.contains("compat_printf.o"), "{failed}");
    if folder.path().metadata().unwrap().uid() == 0 {
        for entry in entries() {
            chown(entry, Some(65534), None).unwrap();
        }
        assert!(build_with_cache(folder.path(), "pspin") == built[0], "an entry of another user");
    }
}

/// Returns the report and the warnings that spin-cc prints for a source.
fn report(text: &str, arguments: &[&str]) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "handler.c", text);
    let output =
        Command::new(spin_cc()).arg(file).args(arguments).arg("-o").arg(folder.path().join("x.elf")).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn tells_what_an_image_takes_and_what_its_handlers_need() {
    let text = "#include <spin.h>
        SPIN_HANDLER_DATA uint32_t table[25];
        uint32_t words[10] = {1};
        __attribute__((noinline)) static void deep(volatile char *at) { char more[200]; __asm__ volatile(\"\" ::\"r\"(more), \"r\"(at) : \"memory\"); }
        void header_handler(handler_args_t *a) { (void)a; words[0] = table[1]; }
        void payload_handler(handler_args_t *a) {
            char room[1000];
            deep(room);
            for (uint32_t i = 0; i < a->task->pkt_mem_size; i++) __asm__ volatile(\"nop\");
        }";
    for compiler in ["clang", "gcc"] {
        let (printed, warned) = report(text, &["--compiler", compiler]);
        assert_eq!(warned, "");
        assert!(printed.contains("data 40, handler memory 100"), "{printed}");
        let line = |handler: &str| printed.lines().find(|line| line.contains(handler)).expect("a line").to_owned();
        assert!(line("header_handler: stack 0 of 4000 bytes").ends_with("instructions"), "{printed}");
        let payload = line("payload_handler");
        let stack: u32 = payload.split(' ').nth(4).unwrap().parse().unwrap();
        assert!((1200..1300).contains(&stack) && payload.ends_with("instructions and loops"), "{payload}");
        assert_eq!(report(text, &["--compiler", compiler, "--quiet"]).0, "");
    }
}

#[test]
fn warns_of_a_stack_that_is_too_large() {
    let frame = |bytes: u32| {
        format!(
            "#include <handler.h>
            static void handler(handler_args_t *a) {{ char room[{bytes}]; (void)a; __asm__ volatile(\"\" ::\"r\"(room) : \"memory\"); }}
            void init_handlers(handler_fn *hh, handler_fn *ph, handler_fn *th, void **mem) {{
                *hh = *th = NULL;
                *ph = handler;
                *mem = NULL;
            }}"
        )
    };
    for compiler in ["clang", "gcc"] {
        for abi in ["pspin", "fpspin"] {
            let arguments = ["--compiler", compiler, "--abi", abi];
            assert_eq!(report(&frame(3900), &arguments).1, "");
            // Each size is subtracted from the stack pointer by other instructions, and without Zba again by others.
            let sizes = [(4080, "40"), (6000, "60"), (6640, "66"), (9000, "90")];
            for ((bytes, needed), more) in
                sizes.into_iter().flat_map(|size| [(size, None), (size, Some("-march=rv32imac"))])
            {
                let warned = report(&frame(bytes), &arguments.into_iter().chain(more).collect::<Vec<_>>()).1;
                let needs = format!("warning: handler needs {needed}");
                assert!(warned.contains(&needs) && warned.contains("of which there are 4000"), "{warned}");
            }
        }
    }
}

#[test]
fn says_what_does_not_fit() {
    let large = refused(
        "#include <spin.h>\nconst char text[40000] = {1}; void payload_handler(handler_args_t *a) { if (a->hpu_id) spin_puts(&text[a->hpu_gid]); }",
        &[],
    );
    assert!(large.contains("the sizes of memories are in"), "{large}");
    assert!(refused("", &["--abi", "axi"]).contains("unknown ABI axi: wire, pspin or fpspin"));
    assert!(refused("", &["--compiler", "tcc"]).contains("unknown compiler tcc: clang or gcc"));
    for (arguments, said) in [
        (["--vectors", "-march=rv32imac"], "leave -march out"),
        (["--vectors", "--compiler=gcc"], "--vectors needs clang 16"),
        (["-O2", "-march=rv32imafdc"], "HPUs have no -march=rv32imafdc"),
        (["-O2", "-march=rv64gc"], "HPUs have no -march=rv64gc"),
    ] {
        let refused = refused("", &arguments);
        assert!(refused.contains(said), "{refused}");
    }
}

#[test]
fn cpp_compiles_with_the_same_headers() {
    let text = "#include <spin.h>
        template <typename T> static T load(const void *at) { T value; memcpy(&value, at, sizeof value); return value; }
        void payload_handler(handler_args_t *args) {
            spin_packet p;
            if (!spin_parse_udp_l2(args, &p) || load<uint16_t>(p.payload) == 0) return;
            spin_swap_addresses(&p);
            spin_udp_write_checksum(&p);
            spin_send_reply(&p);
            spin_put_dec(spin_cycles());
        }
        extern \"C\" void completion_handler(handler_args_t *) {}";
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "handler.cpp", text);
    for compiler in ["clang", "gcc"] {
        for more in [&[][..], &["-DSPIN_HOME", "-O0"]] {
            let image = try_build(&[&file], &[&["--compiler", compiler, "-Werror"], more].concat()).unwrap();
            assert!(!image.is_empty());
        }
    }
}

/// With gcc alone, images are equally good.
#[test]
fn gcc_is_used_where_there_is_no_clang() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("x.elf");
    let mut command = Command::new(spin_cc());
    let output =
        command.arg(source("udp_pingpong")).arg("-o").arg(&image).env("SPIN_CLANG", "not-a-program").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = std::fs::read(image).unwrap();
    assert!(bytes.windows(4).any(|at| at == b"GCC:"), "the comment section names its compiler");
}
