//! Jumps to where there is no code, into the middle of instructions, and code that would change itself.

use hpu_vm::{Inst, Op, Reg};
use spin_abi::fault::Cause;
use spin_abi::map::{L1_ALIAS, L1_STACKS, PAGE, RETURN_ADDRESS};

use crate::assembly::{A2, A3, A4, Assembly, Known, S0, T0, T1};
use crate::attack::{Attack, Ends};
use crate::guest::{CODE, FOREIGN, MACHINE, OWN};

const NOWHERE: Ends = Ends::Fault(Cause::InstructionAccess);
const ILLEGAL: Ends = Ends::Fault(Cause::IllegalInstruction);
const OVERFLOW: Ends = Ends::Fault(Cause::StackOverflow);
const ENDLESS: Ends = Ends::Fault(Cause::InstructionLimit);

/// Adds a jump to the address in a2.
type Jump = fn(Assembly) -> Assembly;

/// Everything.
pub fn attacks() -> Vec<Attack> {
    let mut attacks = Vec::new();
    for known in Known::ALL {
        elsewhere(known, &mut attacks);
        middles(known, &mut attacks);
        tables(known, &mut attacks);
    }
    stacks(&mut attacks);
    returns(&mut attacks);
    loops(&mut attacks);
    own_code(&mut attacks);
    attacks
}

/// Returns, jumps and calls to addresses that hold no code.
fn elsewhere(known: Known, attacks: &mut Vec<Attack>) {
    let targets = [
        ("the stack", OWN.stack_end() - 0x200),
        ("the stack in the alias", L1_ALIAS + L1_STACKS + OWN.hpu * PAGE + 0x100),
        ("data", OWN.data),
        ("handler memory", OWN.handler_mem),
        ("another's stack", FOREIGN.stack_end() - 0x200),
        ("the packet", MACHINE.l1_packet_base(OWN.cluster, OWN.hpu)),
        ("the packet in L2", OWN.l2_packet()),
        ("before the code", CODE - 2),
        ("behind the code", CODE + 0x200),
        ("address 0", 0),
        ("before the return address", RETURN_ADDRESS - 2),
        ("behind the return address", RETURN_ADDRESS + 2),
        ("the driver page", 0x1b20_5050),
        ("the sign's change", 0x8000_0000),
    ];
    for (name, address) in targets {
        let ways: [(&str, Jump); 4] = [
            ("ret", |program| program.imm(Op::Addi, Reg::RA, A2, 0).ret()),
            ("jr", |program| program.imm(Op::Jalr, Reg::ZERO, A2, 0)),
            ("jalr", |program| program.imm(Op::Jalr, Reg::RA, A2, 0)),
            ("jr with an offset", |program| program.imm(Op::Addi, A2, A2, 2047).imm(Op::Jalr, T0, A2, -2047)),
        ];
        for (way, jump) in ways {
            let program = jump(Assembly::new().address(A2, address, known));
            attacks.push(Attack::new(format!("{way} {known:?} to {name}"), program, NOWHERE));
        }
    }
    // The lowest bit of a target is dropped: this is the return address.
    let program = Assembly::new().address(A2, RETURN_ADDRESS + 1, known).imm(Op::Jalr, Reg::ZERO, A2, 0);
    attacks.push(Attack::new(format!("jr {known:?} to the odd return address"), program, Ends::Done));
}

/// Jumps into the middle of an instruction execute what its upper half is; an odd target is its even neighbour.
fn middles(known: Known, attacks: &mut Vec<Attack>) {
    let body = match known {
        Known::Constant => 12,
        Known::Derived => 24,
        Known::Loaded => 28,
    };
    let halves: [(&str, u32, Ends); 4] = [
        // lui with an upper half that is c.jr ra, c.ebreak, all zeroes, c.j to itself.
        ("ret", 0x8082_0637, Ends::Done),
        ("an ebreak", 0x9002_0637, Ends::Fault(Cause::Breakpoint)),
        ("an illegal half", 0x0000_0637, ILLEGAL),
        ("a loop", 0xa001_0637, ENDLESS),
    ];
    for (name, word, ends) in halves {
        for odd in [0, 1] {
            let target = CODE + body + 2 + odd;
            let program = Assembly::new().address(A2, target, known).imm(Op::Jalr, Reg::ZERO, A2, 0);
            let len = u32::try_from(program.bytes().len()).unwrap();
            assert_eq!(len, body, "{known:?}: the jump's length");
            let program = program.raw(&u32::to_le_bytes(word)).ret();
            for taken in [&[][..], &[CODE + body, CODE + body + 2][..]] {
                let odd = if odd == 0 { "" } else { ", odd" };
                let name = format!("jr {known:?} to the middle{odd}: {name}, {} taken", taken.len());
                attacks.push(Attack::new(name, program.clone(), ends).taken(taken));
            }
        }
    }
}

/// A jump table of two entries, asked for another one.
fn tables(known: Known, attacks: &mut Vec<Attack>) {
    for (index, ends) in
        [(0_u32, Ends::Done), (1, Ends::Done), (2, NOWHERE), (0x4000_0000, Ends::Done), (u32::MAX, NOWHERE)]
    {
        let build = |table: u32, first: u32| {
            Assembly::new()
                .li(A3, table)
                .address(A2, index, known)
                .imm(Op::Slli, A2, A2, 2)
                .op(Op::Add, A2, A2, A3)
                .imm(Op::Lw, A2, A2, 0)
                .imm(Op::Jalr, Reg::ZERO, A2, 0)
                .ret()
                .li(A4, 7)
                .ret()
                .raw(&[0xaa; 4])
                .raw(&first.to_le_bytes())
                .raw(&(first + 4).to_le_bytes())
                .raw(&[0xaa; 4])
        };
        let (first, table) = (build(0, 0).pc() - 32, build(0, 0).pc() - 12);
        let program = build(table, first);
        let name = format!("entry {index:#x} {known:?} of a table of 2");
        attacks.push(Attack::new(name, program, ends).taken(&[first, first + 4]));
    }
}

/// Recursion, frames larger than the stack, stack pointers that leave it.
fn stacks(attacks: &mut Vec<Attack>) {
    let recursion = |frame: i32| {
        let program = Assembly::new().imm(Op::Addi, Reg::SP, Reg::SP, -frame).store(Op::Sw, Reg::RA, Reg::SP, 0);
        let again = program.jal(Reg::RA, CODE);
        again.imm(Op::Lw, Reg::RA, Reg::SP, 0).imm(Op::Addi, Reg::SP, Reg::SP, frame).ret()
    };
    for frame in [16, 256, 2032] {
        attacks.push(Attack::new(format!("recursion with frames of {frame}"), recursion(frame), OVERFLOW));
    }
    let through_pointer = Assembly::new()
        .imm(Op::Addi, Reg::SP, Reg::SP, -16)
        .store(Op::Sw, Reg::RA, Reg::SP, 12)
        .address(A2, CODE, Known::Loaded)
        .imm(Op::Jalr, Reg::RA, A2, 0)
        .ret();
    attacks.push(Attack::new("recursion through a pointer", through_pointer.clone(), OVERFLOW));
    attacks.push(Attack::new("recursion through a pointer, taken", through_pointer, OVERFLOW).taken(&[CODE]));
    let without_frame = Assembly::new().jal(Reg::RA, CODE).ret();
    attacks.push(Attack::new("recursion without a frame", without_frame, ENDLESS));
    let step_down = |step: u32| {
        let program = Assembly::new().li(A2, step);
        let top = program.pc();
        program.op(Op::Sub, Reg::SP, Reg::SP, A2).store(Op::Sw, A2, Reg::SP, 0).jal(Reg::ZERO, top)
    };
    attacks.push(Attack::new("the stack downwards by words", step_down(4), OVERFLOW));
    attacks.push(Attack::new("the stack downwards by pages", step_down(PAGE), OVERFLOW));
    attacks.push(Attack::new("a frame of two pages", step_down(2 * PAGE), Ends::Fault(Cause::StoreAccess)));
    attacks.push(Attack::new("a frame of 1 MiB", step_down(1 << 20), Ends::Fault(Cause::StoreAccess)));
    attacks.push(Attack::new("a frame of 2 GiB", step_down(1 << 31), Ends::Fault(Cause::StoreAccess)));
    for (name, sp) in [
        ("0", 0),
        ("another's stack", FOREIGN.stack_end()),
        ("the return address", RETURN_ADDRESS),
        ("code", CODE + 16),
    ] {
        let program = Assembly::new().li(Reg::SP, sp).store(Op::Sw, S0, Reg::SP, -8).ret();
        attacks.push(Attack::new(format!("sp at {name}"), program, Ends::Fault(Cause::StoreAccess)));
        let program =
            Assembly::new().li(A2, sp).li(A3, 1).op(Op::Mul, Reg::SP, A2, A3).store(Op::Sw, S0, Reg::SP, -8).ret();
        attacks.push(Attack::new(format!("sp computed to {name}"), program, Ends::Fault(Cause::StoreAccess)));
    }
    // A translation takes sp for the stack's whatever is done to it.
    let device =
        Assembly::new().li(A2, 0x1b20_5090).li(A3, 1).op(Op::Mul, Reg::SP, A2, A3).store(Op::Sw, S0, Reg::SP, 0).ret();
    attacks.push(Attack::new("sp at a device", device, Ends::DeviceOr(None)));
}

/// Calls of functions with frames, and return addresses that were overwritten on the stack.
fn returns(attacks: &mut Vec<Attack>) {
    let framed = |program: Assembly, frame: i32| {
        program.imm(Op::Addi, Reg::SP, Reg::SP, -frame).store(Op::Sw, Reg::RA, Reg::SP, frame - 4)
    };
    let ends = |program: Assembly, frame: i32| {
        program.imm(Op::Lw, Reg::RA, Reg::SP, frame - 4).imm(Op::Addi, Reg::SP, Reg::SP, frame).ret()
    };
    for (frame, calls, end) in [(256, 8, Ends::Done), (1024, 4, Ends::Done), (1024, 5, OVERFLOW), (2032, 3, OVERFLOW)] {
        let mut program = Assembly::new();
        for _ in 0..calls {
            // The next function is behind this one.
            let next = program.pc() + 6 * 4;
            program = ends(framed(program, frame).jal(Reg::RA, next), frame);
        }
        let name = format!("{calls} calls of functions with frames of {frame}");
        attacks.push(Attack::new(name, program.ret(), end));
    }
    for (name, address) in [
        ("data", OWN.data),
        ("the return address", RETURN_ADDRESS),
        ("the stack", OWN.stack_end() - 0x200),
        ("another's stack", FOREIGN.stack_end() - 0x200),
        ("behind the code", CODE + 0x200),
        ("an odd address", CODE + 0x201),
    ] {
        // The function is behind two instructions.
        let program = framed(Assembly::new().jal(Reg::RA, CODE + 8).ret(), 16);
        let program = ends(program.li(A3, address).store(Op::Sw, A3, Reg::SP, 12), 16);
        let end = if address == RETURN_ADDRESS { Ends::Done } else { NOWHERE };
        attacks.push(Attack::new(format!("a return from a call to {name}"), program, end));
    }
}

/// Loops without an end.
fn loops(attacks: &mut Vec<Attack>) {
    let jump = |program: Assembly, to: u32| program.jal(Reg::ZERO, to);
    attacks.push(Attack::new("a loop of one jump", jump(Assembly::new(), CODE), ENDLESS));
    let branch = Assembly::new().branch(Op::Beq, A2, A2, CODE).ret();
    attacks.push(Attack::new("a loop of one branch", branch, ENDLESS));
    let unknown = Assembly::new().address(A2, 1, Known::Loaded);
    let top = unknown.pc();
    attacks.push(Attack::new(
        "a loop of one unknown branch",
        unknown.branch(Op::Bne, A2, Reg::ZERO, top).ret(),
        ENDLESS,
    ));
    let counts = Assembly::new().imm(Op::Addi, A2, A2, 1).branch(Op::Bne, A2, Reg::ZERO, CODE).ret();
    attacks.push(Attack::new("a loop of 2^32 turns", counts, ENDLESS));
    let inner = Assembly::new().li(A2, 100);
    let top = inner.pc();
    let nested = inner.imm(Op::Addi, A2, A2, -1).branch(Op::Bne, A2, Reg::ZERO, top).jal(Reg::ZERO, CODE);
    attacks.push(Attack::new("a loop in a loop", nested, ENDLESS));
    let writes = Assembly::new().li(A2, OWN.data);
    let top = writes.pc();
    let writes = jump(writes.imm(Op::Lw, A3, A2, 0).imm(Op::Addi, A3, A3, 1).store(Op::Sw, A3, A2, 0), top);
    attacks.push(Attack::new("a loop that writes", writes, ENDLESS));
    let waits = Assembly::new().li(A2, OWN.data);
    let top = waits.pc();
    let waits = waits.imm(Op::LrW, A3, A2, 0).branch(Op::Bne, A3, Reg::ZERO, top).ret();
    attacks.push(Attack::new("a lock that nobody opens", waits, ENDLESS));
    let two_ways = Assembly::new().address(A2, 1, Known::Loaded);
    let top = two_ways.pc();
    let two_ways = two_ways.branch(Op::Beq, A2, Reg::ZERO, top).jal(Reg::ZERO, top);
    attacks.push(Attack::new("a loop with two ways", two_ways, ENDLESS));
}

/// Programs that write their code, execute what they wrote, or fall out of their end.
fn own_code(attacks: &mut Vec<Attack>) {
    let ret = Inst::new(Op::Jalr).rs1(Reg::RA).encode();
    for known in Known::ALL {
        for op in [Op::Sb, Op::Sh, Op::Sw] {
            let program =
                Assembly::new().li(A3, ret).address(A2, CODE, known).store(op, A3, A2, 0).inst(Inst::new(Op::FenceI));
            let program = program.imm(Op::Jalr, Reg::ZERO, A2, 0);
            attacks.push(Attack::new(
                format!("{} {known:?} to its code", op.mnemonic()),
                program,
                Ends::Fault(Cause::StoreAccess),
            ));
        }
        for op in [Op::AmoswapW, Op::AmoaddW, Op::ScW] {
            let program =
                Assembly::new().address(A2, CODE, known).op(Op::LrW, A4, A2, Reg::ZERO).op(op, A4, A2, A3).ret();
            attacks.push(Attack::new(
                format!("{} {known:?} to its code", op.mnemonic()),
                program,
                Ends::Fault(Cause::StoreAccess),
            ));
        }
        let written = Assembly::new()
            .li(A3, ret)
            .address(A2, OWN.data, known)
            .store(Op::Sw, A3, A2, 0)
            .inst(Inst::new(Op::FenceI));
        let written = written.imm(Op::Jalr, Reg::ZERO, A2, 0);
        attacks.push(Attack::new(format!("code written {known:?} to data"), written, NOWHERE));
    }
    attacks.push(Attack::new("out of the code's end", Assembly::new().li(A2, 1), NOWHERE));
    attacks.push(Attack::new("an instruction that reaches over the end", Assembly::new().raw(&[0x37, 0x06]), NOWHERE));
    attacks.push(Attack::new("zeroes", Assembly::new().raw(&[0; 8]), ILLEGAL));
    attacks.push(Attack::new("ones", Assembly::new().raw(&[0xff; 8]), ILLEGAL));
    let far = Assembly::new().inst(Inst::new(Op::Jal).imm(-0x10_0000));
    attacks.push(Attack::new("jal far out", far, NOWHERE));
    let branch = Assembly::new().inst(Inst::new(Op::Beq).imm(-4096));
    attacks.push(Attack::new("beq out", branch, NOWHERE));
    let auipc = Assembly::new().inst(Inst::new(Op::Auipc).rd(T1).imm(0x7fff_f000)).imm(Op::Jalr, Reg::RA, T1, 2047);
    attacks.push(Attack::new("auipc and jalr far out", auipc, NOWHERE));
    let machine_return = Assembly::new().raw(&0x3020_0073_u32.to_le_bytes());
    attacks.push(Attack::new("mret", machine_return, ILLEGAL));
    let machine_register = Assembly::new().raw(&0x3000_2573_u32.to_le_bytes());
    attacks.push(Attack::new("a machine register", machine_register, ILLEGAL));
    attacks.push(Attack::new(
        "an unknown ecall",
        Assembly::new().inst(Inst::new(Op::Ecall)),
        Ends::Fault(Cause::UnknownEcall),
    ));
}
