//! An interpreter of programs, as the reference for translated handlers.
//!
//! The machine refuses what the kernel's verifier refuses for the values at hand: accesses outside a program's memory,
//! reads of what was never written, and operations on pointers whose results depend on the kernel's addresses or would
//! show them.

mod arithmetic;
mod error;
mod memory;
#[cfg(test)]
mod tests;
mod value;

pub use error::{Access, Area, Error, Fault};
pub use memory::{MapMemory, STACK_BYTES};

use super::Insns;
use super::insn::{Alu, Atomic, Bits, Helper, Insn, Label, MapIndex, Operand, Register, Size};
use arithmetic::lower;
use memory::Stack;
use value::{Pointer, Registers, Value};

/// Executions of [`Insn::MayGoto`] that do not jump, in one run (`BPF_MAX_LOOPS`).
pub const MAX_LOOPS: u32 = 8 << 20;

/// Length of the shortest frame that `bpf_xdp_adjust_tail` makes (`ETH_HLEN`).
const MIN_FRAME: i64 = 14;
/// `XDP_ABORTED` and `XDP_REDIRECT`.
const ABORTED: u64 = 0;
const REDIRECT: u64 = 4;
/// Actions among the flags of `bpf_redirect_map`.
const ACTIONS: u64 = 3;
/// Result of a helper that refuses its arguments.
const EINVAL: u64 = (-22_i64).cast_unsigned();

/// What a program runs on: the frame, the maps, and results of helpers.
#[derive(Debug)]
pub struct Machine<'m> {
    /// The frame. `bpf_xdp_adjust_tail` changes its length.
    pub frame: &'m mut Vec<u8>,
    /// Longest frame that `bpf_xdp_adjust_tail` may make.
    pub max_frame: usize,
    /// The program's maps by their index. Nobody else writes them during a run.
    pub maps: Vec<MapMemory<'m>>,
    /// Result of `bpf_get_smp_processor_id`.
    pub processor: u32,
    /// Receive queue of the frame (`xdp_md.rx_queue_index`).
    pub queue: u32,
}

impl<'m> Machine<'m> {
    /// A machine on processor 0 and receive queue 0, whose frame does not grow.
    #[must_use]
    pub const fn new(frame: &'m mut Vec<u8>, maps: Vec<MapMemory<'m>>) -> Self {
        let max_frame = frame.len();
        Self { frame, max_frame, maps, processor: 0, queue: 0 }
    }

    /// Runs a program from its first instruction to [`Insn::Exit`], for at most `limit` instructions. Returns the
    /// action, which is the lower half of R0.
    ///
    /// # Errors
    /// The instruction that the verifier would have refused. Effects of earlier ones remain.
    pub fn run(&mut self, program: &Insns, limit: u64) -> Result<u32, Error> {
        let mut run = Run { machine: self, registers: Registers::new(), stack: Stack::new(), generation: 0, loops: 0 };
        let mut index = 0;
        let mut executed = 0;
        loop {
            let insn = program.get(index).copied();
            let end = |fault| Error { index, insn, fault };
            if executed == limit {
                return Err(end(Fault::Limit));
            }
            executed += 1;
            match run.step(insn.ok_or_else(|| end(Fault::NoInsn))?).map_err(end)? {
                Next::Follows => index += 1,
                Next::Jump(label) => index = program.place(label),
                Next::Exit(action) => return Ok(action),
            }
        }
    }
}

/// Continuation after an instruction.
enum Next {
    /// The instruction behind it.
    Follows,
    /// A jump.
    Jump(Label),
    /// End of the program, with the action.
    Exit(u32),
}

/// A program at run time.
struct Run<'a, 'm> {
    machine: &'a mut Machine<'m>,
    registers: Registers,
    stack: Stack,
    /// Number of calls of `bpf_xdp_adjust_tail`, each of which invalidates all frame pointers.
    generation: u32,
    /// Number of executions of [`Insn::MayGoto`].
    loops: u32,
}

impl Run<'_, '_> {
    fn step(&mut self, insn: Insn) -> Result<Next, Fault> {
        match insn {
            Insn::Alu { bits, op, to, from } => self.alu(bits, op, to, from)?,
            Insn::SignExtend { bits, to, from, size } => {
                let extended = arithmetic::sign_extend(bits, size, self.number(from)?)?;
                self.registers.set(to, Value::Number(extended))?;
            }
            Insn::SwapBytes { reg } => {
                let swapped = lower(self.number(reg)?).swap_bytes();
                self.registers.set(reg, Value::Number(swapped.into()))?;
            }
            Insn::Load { size, to, base, offset } => {
                let value = self.load(size, self.address(base, offset)?)?;
                self.registers.set(to, value)?;
            }
            Insn::Store { size, base, offset, from } => {
                let value = self.operand(from)?;
                self.store(size, self.address(base, offset)?, value)?;
            }
            Insn::Atomic { op, base, offset, reg } => self.atomic(op, self.address(base, offset)?, reg)?,
            Insn::Jump { to } => return Ok(Next::Jump(to)),
            Insn::Branch { bits, condition, a, b, to } => {
                if arithmetic::holds(bits, condition, self.registers.get(a)?, self.operand(b)?)? {
                    return Ok(Next::Jump(to));
                }
            }
            Insn::MayGoto { to } => {
                if self.loops == MAX_LOOPS {
                    return Ok(Next::Jump(to));
                }
                self.loops += 1;
            }
            Insn::MapValue { to, map, offset } => {
                let length = self.map(map)?.bytes().map(<[u8]>::len);
                let area = Area::MapValue(map);
                let pointer = Pointer::new(area, offset.into());
                let length = length.ok_or(forbidden(Access::Load, pointer))?;
                memory::find(Access::Load, Size::Byte, pointer, length)?;
                self.registers.set(to, Value::Pointer(pointer))?;
            }
            Insn::Constant { to, value } => self.registers.set(to, Value::Number(value))?,
            Insn::Map { to, map } => {
                self.map(map)?;
                self.registers.set(to, Value::Pointer(Pointer::new(Area::Map(map), 0)))?;
            }
            Insn::Call { helper } => {
                let result = self.call(helper)?;
                self.registers.clear_arguments();
                self.registers.set(Register::R0, Value::Number(result))?;
            }
            Insn::Exit => return Ok(Next::Exit(lower(self.number(Register::R0)?))),
        }
        Ok(Next::Follows)
    }

    fn number(&self, register: Register) -> Result<u64, Fault> {
        self.registers.get(register)?.number()
    }

    fn operand(&self, operand: Operand) -> Result<Value, Fault> {
        match operand {
            Operand::Register(register) => self.registers.get(register),
            Operand::Immediate(constant) => Ok(Value::Number(i64::from(constant).cast_unsigned())),
        }
    }

    fn alu(&mut self, bits: Bits, op: Alu, to: Register, from: Operand) -> Result<(), Fault> {
        arithmetic::check_constant(bits, op, from)?;
        let from = self.operand(from)?;
        let result = match (bits, op) {
            (Bits::B64, Alu::Mov) => from,
            (Bits::B32, Alu::Mov) => Value::Number(lower(from.number()?).into()),
            _ => arithmetic::alu(bits, op, self.registers.get(to)?, from)?,
        };
        self.registers.set(to, result)
    }

    fn map(&self, map: MapIndex) -> Result<&MapMemory<'_>, Fault> {
        self.machine.maps.get(map as usize).ok_or(Fault::NoMap(map))
    }

    /// Address of an access. Frame pointers from before a call of `bpf_xdp_adjust_tail` are invalid.
    fn address(&self, base: Register, offset: i16) -> Result<Pointer, Fault> {
        let pointer = self.registers.get(base)?.pointer()?;
        if pointer.area == Area::Frame && pointer.generation != self.generation {
            return Err(Fault::OldPointer);
        }
        Ok(Pointer { offset: pointer.offset.wrapping_add(offset.into()), ..pointer })
    }

    fn load(&self, size: Size, pointer: Pointer) -> Result<Value, Fault> {
        let access = Access::Load;
        let bytes = match pointer.area {
            Area::Stack => return self.stack.load(access, size, pointer.offset),
            Area::Context => return self.load_context(size, pointer.offset),
            Area::Frame => self.machine.frame.as_slice(),
            Area::MapValue(map) => self.map(map)?.bytes().ok_or(forbidden(access, pointer))?,
            Area::FrameEnd | Area::Map(_) => return Err(forbidden(access, pointer)),
        };
        let start = memory::find(access, size, pointer, bytes.len())?;
        Ok(Value::Number(memory::read(size, &bytes[start..])))
    }

    /// Loads a field of `struct xdp_md`. Frames have no metadata.
    fn load_context(&self, size: Size, offset: i64) -> Result<Value, Fault> {
        let generation = self.generation;
        match (size, offset) {
            (Size::Word, 0 | 8) => Ok(Value::Pointer(Pointer { area: Area::Frame, generation, offset: 0 })),
            (Size::Word, 4) => {
                let length = i64::try_from(self.machine.frame.len()).unwrap_or(i64::MAX);
                Ok(Value::Pointer(Pointer { area: Area::FrameEnd, generation, offset: length }))
            }
            (Size::Word, 16) => Ok(Value::Number(self.machine.queue.into())),
            _ => Err(Fault::ContextField { offset, bytes: size.bytes() }),
        }
    }

    fn store(&mut self, size: Size, pointer: Pointer, value: Value) -> Result<(), Fault> {
        let access = Access::Store;
        if pointer.area == Area::Stack {
            return self.stack.store(access, size, pointer.offset, value);
        }
        let number = value.number()?;
        let bytes = self.bytes_mut(access, pointer)?;
        let start = memory::find(access, size, pointer, bytes.len())?;
        memory::write(size, &mut bytes[start..], number);
        Ok(())
    }

    /// The writable area of a pointer, apart from the stack.
    fn bytes_mut(&mut self, access: Access, pointer: Pointer) -> Result<&mut [u8], Fault> {
        let bytes = match pointer.area {
            Area::Frame => Some(self.machine.frame.as_mut_slice()),
            Area::MapValue(map) => self.machine.maps.get_mut(map as usize).and_then(MapMemory::bytes_mut),
            Area::Stack | Area::Context | Area::FrameEnd | Area::Map(_) => None,
        };
        bytes.ok_or(forbidden(access, pointer))
    }

    fn atomic(&mut self, op: Atomic, pointer: Pointer, reg: Register) -> Result<(), Fault> {
        const SIZE: Size = Size::Word;
        let access = Access::Atomic;
        let operand = lower(self.number(reg)?);
        let expected = if op == Atomic::CompareExchange { lower(self.number(Register::R0)?) } else { 0 };
        let Pointer { area, offset, .. } = pointer;
        let old = match area {
            Area::Stack => {
                let old = lower(self.stack.load(access, SIZE, offset)?.number()?);
                let new = arithmetic::atomic(op, old, operand, expected);
                self.stack.store(access, SIZE, offset, Value::Number(new.into()))?;
                old
            }
            Area::MapValue(_) => {
                let bytes = self.bytes_mut(access, pointer)?;
                let start = memory::find(access, SIZE, pointer, bytes.len())?;
                if !start.is_multiple_of(SIZE.bytes() as usize) {
                    return Err(Fault::Misaligned { access, area, offset, bytes: SIZE.bytes() });
                }
                let old = lower(memory::read(SIZE, &bytes[start..]));
                memory::write(SIZE, &mut bytes[start..], arithmetic::atomic(op, old, operand, expected).into());
                old
            }
            _ => return Err(forbidden(access, pointer)),
        };
        let to = if op == Atomic::CompareExchange { Register::R0 } else { reg };
        self.registers.set(to, Value::Number(old.into()))
    }

    /// Calls a helper and returns its result.
    fn call(&mut self, helper: Helper) -> Result<u64, Fault> {
        match helper {
            Helper::Processor => Ok(self.machine.processor.into()),
            Helper::RedirectMap => {
                let map = self.argument(helper, Register::R1)?;
                let [key, flags] = [self.number(Register::R2)?, self.number(Register::R3)?];
                let Area::Map(map) = map.area else { return Err(invalid(helper, Register::R1)) };
                let MapMemory::Sockets(keys) = self.map(map)? else { return Err(invalid(helper, Register::R1)) };
                Ok(redirect(keys, key, flags))
            }
            Helper::AdjustTail => {
                let context = self.argument(helper, Register::R1)?;
                let difference = lower(self.number(Register::R2)?).cast_signed();
                if context != Pointer::new(Area::Context, 0) {
                    return Err(invalid(helper, Register::R1));
                }
                Ok(self.adjust_tail(difference))
            }
        }
    }

    /// An argument that has to be a pointer.
    fn argument(&self, helper: Helper, register: Register) -> Result<Pointer, Fault> {
        self.registers.get(register)?.pointer().map_err(|_| invalid(helper, register))
    }

    /// Changes the frame's length. New bytes are zero. A refused call invalidates frame pointers too.
    fn adjust_tail(&mut self, difference: i32) -> u64 {
        self.generation += 1;
        let machine = &mut *self.machine;
        let length = i64::try_from(machine.frame.len()).unwrap_or(i64::MAX).saturating_add(difference.into());
        match usize::try_from(length) {
            Ok(bytes) if length >= MIN_FRAME && bytes <= machine.max_frame => {
                machine.frame.resize(bytes, 0);
                0
            }
            _ => EINVAL,
        }
    }
}

/// `bpf_redirect_map` on a map of sockets: the action among the flags if the key has no socket.
fn redirect(keys: &[u32], key: u64, flags: u64) -> u64 {
    if flags & !ACTIONS != 0 {
        ABORTED
    } else if keys.contains(&lower(key)) {
        REDIRECT
    } else {
        flags
    }
}

const fn forbidden(access: Access, pointer: Pointer) -> Fault {
    Fault::Forbidden { access, area: pointer.area, offset: pointer.offset }
}

const fn invalid(helper: Helper, register: Register) -> Fault {
    Fault::Argument { helper, register: register.index() }
}
