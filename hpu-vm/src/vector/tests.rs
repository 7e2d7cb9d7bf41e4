use super::{Arithmetic, Configure, Length, NewType, Source, VReg, VectorInst, VectorOp, Vtype, Width, decode};
use crate::code::Code;
use crate::csr::Csr;
use crate::device::NoDevice;
use crate::hart::Hart;
use crate::inst::{Inst, Op, Reg};
use crate::interp::{Exit, run};
use crate::view::{Memory, Range, RegionKind, View};
use proptest::prelude::*;
use spin_abi::fault::{Cause, Fault};
use spin_abi::map::DRIVER_BASE;

const CODE: u32 = 0x1d00_0000;
const DATA: u32 = 0x1c00_0000;

/// LLVM 19's disassembly, `x0` spelt as here.
const ASSEMBLER: &[(u32, &str)] = &[
    (0x0d00_7057, "vsetvli zero, zero, e32, m1, ta, ma"),
    (0x0125_f557, "vsetvli a0, a1, e32, m4, tu, mu"),
    (0xcd12_7057, "vsetivli zero, 4, e32, m2, ta, ma"),
    (0x80c5_f557, "vsetvl a0, a1, a2"),
    (0x0205_6407, "vle32.v v8, (a0)"),
    (0x0005_0427, "vse8.v v8, (a0), v0.t"),
    (0x0ac5_5407, "vlse16.v v8, (a0), a2"),
    (0x06c5_6407, "vluxei32.v v8, (a0), v12"),
    (0x0ec5_6427, "vsoxei32.v v8, (a0), v12"),
    (0x2205_6407, "vlseg2e32.v v8, (a0)"),
    (0x0285_6407, "vl1re32.v v8, (a0)"),
    (0xe285_0427, "vs8r.v v8, (a0)"),
    (0x02b5_0007, "vlm.v v0, (a0)"),
    (0x0286_0457, "vadd.vv v8, v8, v12"),
    (0x008f_b457, "vadd.vi v8, v8, -1, v0.t"),
    (0xb686_2457, "vmacc.vv v8, v12, v8"),
    (0xb2c4_3457, "vnsrl.wi v8, v12, 8"),
    (0xd685_6457, "vwadd.wx v8, v8, a0"),
    (0x02c4_2457, "vredsum.vs v8, v12, v8"),
    (0x4280_2557, "vmv.x.s a0, v8"),
    (0x4205_6457, "vmv.s.x v8, a0"),
    (0x4a83_2657, "vzext.vf2 v12, v8"),
    (0x5c84_b457, "vmerge.vim v8, v8, 9, v0"),
    (0x5e00_3457, "vmv.v.i v8, 0"),
    (0x9ec1_b457, "vmv4r.v v8, v12"),
    (0x5208_a457, "vid.v v8"),
    (0x6ec4_2057, "vmxor.mm v0, v12, v8"),
    (0x3ac6_6457, "vslide1up.vx v8, v12, a2"),
];

#[test]
fn encodings_of_an_assembler() {
    for &(bits, text) in ASSEMBLER {
        let inst = decode(bits).unwrap_or_else(|| panic!("{text}: {bits:#010x} is illegal"));
        assert_eq!((inst.to_string().as_str(), inst.encode()), (text, bits));
        assert_eq!(Inst::from(inst).to_string(), text);
    }
}

#[test]
fn unsupported_and_reserved_encodings_are_illegal() {
    let cases = [
        (0x4086_0457, "vadc.vvm"),
        (0x9e86_0457, "vsmul.vv"),
        (0xaa86_0457, "vssrl.vv"),
        (0x2e86_2457, "vasub.vv"),
        (0x5e46_2457, "vcompress.vm"),
        (0x5248_2457, "viota.m"),
        (0x5240_a457, "vmsbf.m"),
        (0x4a81_2457, "vzext.vf8"),
        (0x0305_6407, "vle32ff.v"),
        (0x0205_7407, "vle64.v"),
        (0x1205_0407, "a load with mew"),
        (0x0286_1457, "vfadd.vv"),
        (0x0a86_3457, "vsub.vi"),
        (0x64c4_2057, "a masked vmand.mm"),
        (0x4215_6457, "vmv.s.x with vs2"),
        (0x5e10_3457, "vmv.v.i with vs2"),
        (0x2285_6487, "vl2re32.v v9"),
        (0x4285_6407, "vl3re32.v"),
        (0x9ec1_3457, "vmv3r.v"),
        (0x0285_5427, "vs1r.v with a width"),
        (0x84c5_f557, "vsetvl with a reserved field"),
        (0x0000_2007, "flw"),
    ];
    for (bits, name) in cases {
        assert_eq!(decode(bits), None, "{name}");
    }
}

proptest! {
    #[test]
    fn any_word_that_decodes_encodes_back(bits: u32, opcode in prop::sample::select(&[0x07, 0x27, 0x57])) {
        let bits = bits & !0x7f | opcode;
        if let Some(inst) = decode(bits) {
            prop_assert_eq!(inst.encode(), bits);
        }
    }

    /// No group leaves the register file, whatever the instruction, the type and the length.
    #[test]
    fn nothing_panics(
        bits: u32,
        opcode in prop::sample::select(&[0x07, 0x27, 0x57]),
        vtype in 0u32..0x100,
        length: u32,
        registers: [u32; 32],
    ) {
        let set = configure(Reg::ZERO, Length::Register(Reg::A0), vtype);
        let mut task = Task::new();
        task.hart.x = registers;
        task.hart.x[10] = length;
        task.hart.vector.v.as_flattened_mut().copy_from_slice(&[0xa5; 512]);
        task.run_words(&[set.encode(), bits & !0x7f | opcode]);
        prop_assert!(task.hart.vector.vl() <= task.hart.vector.vtype().map_or(0, Vtype::vlmax));
    }
}

/// A task over 32 bytes of data.
struct Task {
    hart: Hart,
    data: [u8; 32],
}

impl Task {
    fn new() -> Self {
        let mut hart = Hart::new(0);
        hart.begin(CODE, 0, DATA);
        Self { hart, data: std::array::from_fn(|i| i as u8) }
    }

    fn run_words(&mut self, words: &[u32]) -> Exit {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let code = Code::at(CODE, &bytes);
        let mut view = View::new();
        let memory = Memory::ReadWrite(&mut self.data);
        view.push(Range { kind: RegionKind::Data, base: DATA, memory }).unwrap();
        self.hart.pc = CODE;
        run(&mut self.hart, &code, &mut view, &mut NoDevice, words.len() as u64)
    }

    /// Cause and address of the fault, and its instruction.
    fn fault(&mut self, program: &[VectorInst]) -> (Cause, u32, usize) {
        let words: Vec<u32> = program.iter().map(|inst| inst.encode()).collect();
        match self.run_words(&words) {
            Exit::Fault(Fault { cause, pc, address }) => (cause, address, (pc - CODE) as usize / 4),
            other => panic!("{other:?}"),
        }
    }
}

fn configure(rd: Reg, length: Length, vtype: u32) -> VectorInst {
    VectorInst::Configure(Configure { rd, length, vtype: NewType::Immediate(vtype) })
}

/// `count` elements of `width`.
fn elements(count: u32, width: Width) -> VectorInst {
    configure(Reg::ZERO, Length::Immediate(count), width.log2() << 3)
}

fn text(wanted: &str) -> VectorInst {
    let found = ASSEMBLER.iter().find(|(_, text)| *text == wanted);
    decode(found.expect("one of the list above").0).unwrap()
}

#[test]
fn elements_before_a_fault_are_loaded_and_none_after() {
    let mut task = Task::new();
    task.hart.set(Reg::A0, DATA + 24);
    task.hart.vector.v[8] = [0xee; 16];
    let program = [elements(4, Width::E32), text("vle32.v v8, (a0)")];
    assert_eq!(task.fault(&program), (Cause::LoadAccess, DATA + 32, 1));
    assert_eq!(task.hart.vector.v[8][..8], task.data[24..]);
    assert_eq!(task.hart.vector.v[8][8..], [0xee; 8]);
    assert_eq!(task.hart.vector.vl(), 4);
}

#[test]
fn elements_before_a_fault_are_stored_and_none_after() {
    // Descending addresses: the third element lies below the data.
    let mut task = Task::new();
    task.hart.set(Reg::A0, DATA + 4);
    task.hart.set(Reg::A1, 4u32.wrapping_neg());
    let store = VectorInst::Memory(super::Memory {
        direction: super::Direction::Store,
        vd: VReg::new(8),
        rs1: Reg::A0,
        addressing: super::Addressing::Strided(Reg::A1),
        width: Width::E32,
        fields: 1,
        masked: false,
    });
    assert_eq!(task.fault(&[elements(4, Width::E32), store]), (Cause::StoreAccess, DATA - 4, 1));
    assert_eq!(task.data[..9], [0, 0, 0, 0, 0, 0, 0, 0, 8]);
}

#[test]
fn elements_that_are_masked_off_are_not_accessed() {
    let mut task = Task::new();
    task.hart.set(Reg::A0, DATA + 31);
    task.hart.vector.v[0][0] = 0b1;
    task.hart.vector.v[8][0] = 0xaa;
    let program = [elements(8, Width::E8), text("vse8.v v8, (a0), v0.t")];
    assert_eq!(task.fault(&program), (Cause::InstructionAccess, CODE + 8, 2));
    assert_eq!(task.data[30..], [30, 0xaa]);
}

#[test]
fn devices_take_no_vectors() {
    let mut task = Task::new();
    task.hart.set(Reg::A0, DRIVER_BASE);
    let program = [elements(1, Width::E32), text("vle32.v v8, (a0)")];
    assert_eq!(task.fault(&program), (Cause::DeviceAccess, DRIVER_BASE, 1));
}

#[test]
fn without_a_type_only_whole_registers_work() {
    let add = text("vadd.vv v8, v8, v12");
    let illegal = |inst: VectorInst, at| (Cause::IllegalInstruction, inst.encode(), at);
    assert_eq!(Task::new().fault(&[add]), illegal(add, 0));
    let bad = configure(Reg::A0, Length::Max, 4);
    let whole = [text("vmv4r.v v8, v12"), text("vl1re32.v v8, (a0)")];
    let mut task = Task::new();
    task.hart.set(Reg::A1, DATA);
    assert_eq!(task.fault(&[whole[0], whole[1], bad, add]), illegal(add, 3));
    assert_eq!((task.hart.get(Reg::A0), task.hart.vector.vl(), task.hart.vector.vtype()), (0, 0, None));
    assert_eq!(task.hart.vector.v[8][..4], task.data[..4]);
}

#[test]
fn registers_must_fit_the_type() {
    // Groups of four at 8 and 12, then at 10.
    let set = configure(Reg::ZERO, Length::Immediate(1), 0b010);
    let add = |vd| {
        let (vs2, source) = (VReg::new(8), Source::Vector(VReg::new(12)));
        VectorInst::Arithmetic(Arithmetic { op: VectorOp::Add, vd: VReg::new(vd), vs2, source, masked: false })
    };
    assert_eq!(Task::new().fault(&[set, add(4), add(10)]), (Cause::IllegalInstruction, add(10).encode(), 2));
}

#[test]
fn a_task_inherits_no_vectors() {
    let mut task = Task::new();
    task.fault(&[elements(4, Width::E32), text("vle32.v v8, (a0)")]);
    task.hart.write_csr(Csr::VectorRounding, 7);
    assert_eq!(task.hart.read_csr(Csr::VectorRounding), 3);
    assert_ne!(task.hart.vector.v, [[0; 16]; 32]);
    task.hart.begin(CODE, 0, 0);
    assert_eq!(task.hart.vector.v, [[0; 16]; 32]);
    assert_eq!((task.hart.vector.vl(), task.hart.read_csr(Csr::VectorType)), (0, 1 << 31));
    assert_eq!(task.hart.read_csr(Csr::VectorRounding), 0);
}

#[test]
fn configuration_can_be_read() {
    let read = |rd, number| Inst::new(Op::Csrrs).rd(rd).imm(number).encode();
    let mut task = Task::new();
    let set = configure(Reg::A0, Length::Max, 0xd1).encode();
    let (a1, a2, a3) = (Reg::A1, Reg::new(12), Reg::new(13));
    task.run_words(&[set, read(a1, 0xc20), read(a2, 0xc21), read(a3, 0xc22)]);
    assert_eq!([Reg::A0, a1, a2, a3].map(|reg| task.hart.get(reg)), [8, 8, 0xd1, 16]);
}
