//! The SDK's C headers and linker scripts agree with `spin-abi`.

use object::{Object, ObjectSymbol};
use spin_abi::{command::Status, map, map::Machine, regs, verdict::Verdict};
use spin_handlers::{source, try_build};
use std::fmt::Write;

/// Returns a C file that compiles only if every pair is equal.
fn assertions(pairs: &[(&str, u32)]) -> String {
    let mut text = String::from("#include <spin.h>\n");
    for (expression, value) in pairs {
        writeln!(text, "_Static_assert(({expression}) == {value}u, \"{expression} is not {value:#x}\");").unwrap();
    }
    text
}

fn compiles(text: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("abi.c");
    std::fs::write(&file, text).unwrap();
    try_build(&[&file, &source("null_load")], &[]).map(drop).map_err(|error| error.to_string())
}

/// Returns the C expression for a `task_t` field's offset in the driver page.
fn task(field: &str) -> String {
    format!("SPIN_REG_TASK + offsetof(task_t, {field})")
}

#[test]
fn registers_and_addresses() {
    let words = u32::try_from(regs::COMMAND_WORD_COUNT).unwrap();
    let in_flight = u32::try_from(regs::COMMANDS_IN_FLIGHT).unwrap();
    let pairs = [
        ("SPIN_STDOUT_BASE", map::STDOUT_BASE),
        ("SPIN_DRIVER_BASE", map::DRIVER_BASE),
        ("SPIN_PACKET_WINDOW", map::PACKET_WINDOW),
        ("SPIN_STACK_WINDOW", map::STACK_WINDOW),
        ("SPIN_REG_TASK", regs::TASK_FIRST),
        ("SPIN_REG_DOORBELL", regs::DOORBELL),
        ("SPIN_REG_ERROR", regs::ERROR),
        ("SPIN_REG_COMMAND_ISSUE", regs::COMMAND_ISSUE),
        ("SPIN_REG_COMMAND_WAIT", regs::COMMAND_WAIT),
        ("SPIN_REG_COMMAND_TEST", regs::COMMAND_TEST),
        ("SPIN_REG_COMMAND_INFO", regs::COMMAND_INFO),
        ("SPIN_REG_COMMAND_WORDS", regs::COMMAND_WORDS),
        ("SPIN_REG_COMMAND_STATUS", regs::COMMAND_STATUS),
        ("SPIN_COMMAND_WORD_COUNT", words),
        ("SPIN_COMMANDS_IN_FLIGHT", in_flight),
        ("SPIN_MAX_CLUSTERS", Machine::MAX_CLUSTERS),
        ("SPIN_CLUSTER_DMA_BASE", map::DMA_BASE),
        ("SPIN_CLUSTER_DMA_SOURCE", regs::dma::SOURCE),
        ("SPIN_CLUSTER_DMA_SOURCE_HIGH", regs::dma::SOURCE_HIGH),
        ("SPIN_CLUSTER_DMA_DESTINATION", regs::dma::DESTINATION),
        ("SPIN_CLUSTER_DMA_DESTINATION_HIGH", regs::dma::DESTINATION_HIGH),
        ("SPIN_CLUSTER_DMA_BYTES", regs::dma::BYTES),
        ("SPIN_CLUSTER_DMA_LAUNCH", regs::dma::LAUNCH),
        ("SPIN_CLUSTER_DMA_DONE", regs::dma::DONE),
        ("SPIN_CLUSTER_DMA_CONFIG", regs::dma::CONFIG),
        ("SPIN_END_OF_COMPUTATION", map::END_OF_COMPUTATION),
    ];
    compiles(&assertions(&pairs)).unwrap();
}

#[test]
fn task_fields() {
    let fields = [
        ("handler_mem", regs::HANDLER_MEM_ADDR),
        ("handler_mem_size", regs::HANDLER_MEM_SIZE),
        ("pkt_mem", regs::PACKET_ADDR),
        ("pkt_mem_size", regs::PACKET_SIZE),
        ("scratchpad", regs::SCRATCHPAD_ADDR),
        ("scratchpad_size", regs::SCRATCHPAD_SIZE),
        ("host_mem_high", regs::HOST_MEM_HIGH),
        ("host_mem_low", regs::HOST_MEM_LOW),
        ("host_mem_size", regs::HOST_MEM_SIZE),
        ("l2_pkt_mem", regs::L2_PACKET_ADDR),
        ("home_cluster_id", regs::HOME_CLUSTER),
        ("flow_id", regs::FLOW_ID),
    ];
    let offsets: Vec<_> = fields.iter().map(|(field, offset)| (task(field), *offset)).collect();
    let mut pairs: Vec<_> = offsets.iter().map(|(expression, offset)| (expression.as_str(), *offset)).collect();
    pairs.push(("SPIN_REG_TASK + sizeof(task_t)", regs::TASK_END));
    pairs.push(("offsetof(handler_args_t, hpu_gid)", 4));
    pairs.push(("offsetof(handler_args_t, cluster_id)", 8));
    pairs.push(("offsetof(handler_args_t, hpu_id)", 12));
    pairs.push(("sizeof(handler_args_t)", 16));
    compiles(&assertions(&pairs)).unwrap();
}

#[test]
fn statuses() {
    let pairs = [
        ("SPIN_STATUS_DONE", Status::Done as u32),
        ("SPIN_STATUS_PENDING", Status::Pending as u32),
        ("SPIN_STATUS_MALFORMED", Status::Malformed as u32),
        ("SPIN_STATUS_BAD_NIC_ADDRESS", Status::BadNicAddress as u32),
        ("SPIN_STATUS_BAD_HOST_ADDRESS", Status::BadHostAddress as u32),
        ("SPIN_STATUS_BAD_LENGTH", Status::BadLength as u32),
        ("SPIN_STATUS_NO_BUFFER", Status::NoBuffer as u32),
        ("SPIN_STATUS_UNSUPPORTED", Status::Unsupported as u32),
        ("SPIN_STATUS_FORBIDDEN_SEND", Status::ForbiddenSend as u32),
    ];
    compiles(&assertions(&pairs)).unwrap();
}

#[test]
fn verdicts() {
    let code = |verdict: Verdict| verdict.code();
    let pairs = [
        ("SPIN_VERDICT_SUCCESS", code(Verdict::Success)),
        ("SPIN_VERDICT_PASS", code(Verdict::Pass)),
        ("SPIN_VERDICT_PROCEED", code(Verdict::Pass)),
        ("SPIN_VERDICT_PROCESS_DATA", code(Verdict::ProcessData)),
        ("SPIN_VERDICT_PROCESS_DATA_PENDING", code(Verdict::ProcessDataPending)),
        ("SPIN_VERDICT_DROP", code(Verdict::Drop)),
        ("SPIN_VERDICT_DROP_PENDING", code(Verdict::DropPending)),
        ("SPIN_VERDICT_SUCCESS_PENDING", code(Verdict::SuccessPending)),
        ("sizeof(spin_verdict_t)", 4),
    ];
    // The former name of one, and the size.
    assert_eq!(pairs.len(), Verdict::ALL.len() + 2);
    compiles(&assertions(&pairs)).unwrap();
}

/// Handlers return `void`, or a verdict in files that declare it.
#[test]
fn handlers_return_what_their_file_says() {
    let handler = |first: &str, kind: &str, body: &str| {
        let text = format!(
            "{first}\n#include <spin.h>\n{kind} header_handler(handler_args_t *args) {{ (void)args; {body} }}\n"
        );
        compiles(&text).is_ok()
    };
    let pass = "return SPIN_VERDICT_PASS;";
    assert!(handler("#define SPIN_VERDICTS", "spin_verdict_t", pass));
    assert!(handler("#define SPIN_VERDICTS", "spin_result_t", pass));
    assert!(handler("", "void", ""));
    assert!(!handler("", "spin_verdict_t", pass));
    assert!(!handler("#define SPIN_VERDICTS", "void", ""));
}

#[test]
fn a_wrong_number_is_noticed() {
    let error = compiles(&assertions(&[("SPIN_REG_DOORBELL", regs::DOORBELL + 4)])).unwrap_err();
    assert!(error.contains("SPIN_REG_DOORBELL is not"), "{error}");
}

#[test]
fn linker_scripts_know_the_machines() {
    for (preset, machine) in [("pspin", Machine::PSPIN), ("fpspin", Machine::FPSPIN)] {
        let image = try_build(&[&source("counter")], &["--preset", preset]).unwrap();
        let elf = object::File::parse(&*image).unwrap();
        let symbol = |name: &str| {
            let address = elf.symbol_by_name(name).unwrap_or_else(|| panic!("{preset}: no {name}")).address();
            u32::try_from(address).unwrap()
        };
        let (l1, l1_size) = (symbol("__spin_l1_data_base"), symbol("__spin_l1_data_size"));
        assert!(l1 >= map::L1_ALIAS && l1 + l1_size == map::L1_ALIAS + map::L1_DATA);
        assert_eq!(symbol("__spin_program_base"), map::PROGRAM_BASE);
        assert_eq!(symbol("__spin_program_size"), machine.program_size);
        assert_eq!(symbol("__spin_l2_data_base"), map::L2_BASE);
        assert_eq!(symbol("__spin_l2_data_size"), machine.l2_data_size);
        assert_eq!(symbol("__spin_handler_mem_base"), machine.handler_mem_base);
        assert_eq!(symbol("__spin_handler_mem_size"), machine.handler_mem_size);
        assert_eq!(symbol("packets"), machine.handler_mem_base, "{preset}");
    }
}
