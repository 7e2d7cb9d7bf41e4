//! The interpreter: the semantics of every instruction, and the reference for the translator.
//!
//! One instruction takes one cycle. Loads and stores may be misaligned, as on PULP's cores; LR, SC and AMOs may not.
//! Every handler error ends the task with [`Exit::Fault`] before it has an effect. When a vector access faults, the
//! elements before the faulting one have been accessed.

use std::sync::atomic::{Ordering, fence};
use std::task::Poll;

use spin_abi::fault::{Cause, Fault};
use spin_abi::map::RETURN_ADDRESS;

use crate::alu;
use crate::code::Code;
use crate::csr::Csr;
use crate::decode::Decoded;
use crate::device::{self, Device, Trap, is_device};
use crate::hart::Hart;
use crate::inst::{Inst, Op, Reg};
use crate::vector::{self, Refusal};
use crate::view::View;

/// Outcome of running a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The handler jumped to [`RETURN_ADDRESS`].
    Returned,
    /// The handler read the doorbell; the hart's `pc` is still at that load.
    Finished,
    /// The handler was ended by a fault; the hart's `pc` is that of the fault.
    Fault(Fault),
    /// The handler waits at the hart's `pc` and can be resumed there.
    Parked,
}

/// Reason why an instruction did not complete.
enum Stop {
    Finish,
    Wait,
    Fault { cause: Cause, address: u32 },
}

/// Executes from `hart.pc` until the task ends, at most `limit` instructions, reduced by the
/// [charges](Device::take_charge) of `device`.
///
/// The first instruction beyond the limit is not executed. It ends the task with [`Cause::InstructionLimit`], and a
/// call with a new limit resumes there (a limit of 1 single-steps). The interpreter neither allocates nor blocks,
/// unless `device` does.
pub fn run<D: Device>(hart: &mut Hart, code: &Code, view: &mut View<'_>, device: &mut D, limit: u64) -> Exit {
    run_slice(hart, code, view, device, limit, 1, |_| false)
}

/// As [`run`], but a vector instruction counts as `weight` (1 or more) instructions, since it may take as long. After a
/// call or a return to an address for which `stops` is true, the limit counts as reached.
pub(crate) fn run_slice<D: Device>(
    hart: &mut Hart,
    code: &Code,
    view: &mut View<'_>,
    device: &mut D,
    limit: u64,
    weight: u64,
    stops: impl Fn(u32) -> bool,
) -> Exit {
    hart.x[0] = 0;
    hart.dirty = true;
    if hart.pc & 1 != 0 {
        return fetch_fault(hart.pc, code);
    }
    let mut core = Core { hart, view, device, left: limit, vector_extra: weight - 1 };
    loop {
        let pc = core.hart.pc;
        // The return address is never in the table, so the common path needs no test for it.
        let Some(decoded) = code.fetch(pc) else { return fetch_fault(pc, code) };
        if core.left == 0 {
            return Exit::Fault(Fault { cause: Cause::InstructionLimit, pc, address: 0 });
        }
        core.left -= 1;
        match core.execute(decoded) {
            Ok(next) => {
                core.hart.pc = next;
                if matches!(decoded.inst.op, Op::Jal | Op::Jalr) && stops(next) {
                    core.left = 0;
                }
            }
            Err(Stop::Fault { cause, address }) => return Exit::Fault(Fault { cause, pc, address }),
            Err(Stop::Finish) => {
                core.hart.retire();
                return Exit::Finished;
            }
            Err(Stop::Wait) => return Exit::Parked,
        }
        core.hart.retire();
    }
}

/// Outcome of a fetch at `pc` where nothing can be executed.
#[cold]
fn fetch_fault(pc: u32, code: &Code) -> Exit {
    if pc == RETURN_ADDRESS {
        return Exit::Returned;
    }
    let (cause, address) = code.fetch_fault(pc);
    Exit::Fault(Fault { cause, pc, address })
}

struct Core<'a, 'm, D> {
    hart: &'a mut Hart,
    view: &'a mut View<'m>,
    device: &'a mut D,
    /// Instructions left.
    left: u64,
    /// Instructions beyond 1 that a vector instruction counts.
    vector_extra: u64,
}

impl<D: Device> Core<'_, '_, D> {
    /// Executes one instruction and returns the address of the next.
    #[inline(always)]
    fn execute(&mut self, decoded: &Decoded) -> Result<u32, Stop> {
        let Inst { op, rd, rs1, rs2, imm } = decoded.inst;
        let (a, b, imm) = (self.hart.get(rs1), self.hart.get(rs2), imm.cast_unsigned());
        let next = self.hart.pc.wrapping_add(u32::from(decoded.size));
        let target = self.hart.pc.wrapping_add(imm);
        let address = a.wrapping_add(imm);
        let branch = |taken: bool| Ok(if taken { target } else { next });
        let result = match op {
            Op::Auipc => target,
            Op::Jal => return Ok(self.link(rd, next, target)),
            Op::Jalr => return Ok(self.link(rd, next, address & !1)),
            Op::Beq => return branch(a == b),
            Op::Bne => return branch(a != b),
            Op::Blt => return branch(alu::less(a, b)),
            Op::Bge => return branch(!alu::less(a, b)),
            Op::Bltu => return branch(a < b),
            Op::Bgeu => return branch(a >= b),
            Op::Lb => alu::sign_extend::<8>(self.load::<1>(address)?),
            Op::Lh => alu::sign_extend::<16>(self.load::<2>(address)?),
            Op::Lw => self.load::<4>(address)?,
            Op::Lbu => self.load::<1>(address)?,
            Op::Lhu => self.load::<2>(address)?,
            Op::Sb => return self.store::<1>(address, b).map(|()| next),
            Op::Sh => return self.store::<2>(address, b).map(|()| next),
            Op::Sw => return self.store::<4>(address, b).map(|()| next),
            // Other threads may share the memory. Code never changes, so `fence.i` needs nothing.
            Op::Fence => {
                fence(Ordering::SeqCst);
                return Ok(next);
            }
            Op::FenceI => return Ok(next),
            Op::Ecall => return self.ecall().map(|()| next),
            Op::Ebreak => return Err(Stop::Fault { cause: Cause::Breakpoint, address: 0 }),
            Op::Csrrw => self.csr(imm, |_| Some(a))?,
            Op::Csrrs => self.csr(imm, |old| (rs1 != Reg::ZERO).then_some(old | a))?,
            Op::Csrrc => self.csr(imm, |old| (rs1 != Reg::ZERO).then_some(old & !a))?,
            Op::Csrrwi => self.csr(imm, |_| Some(rs1.number()))?,
            Op::Csrrsi => self.csr(imm, |old| (rs1 != Reg::ZERO).then_some(old | rs1.number()))?,
            Op::Csrrci => self.csr(imm, |old| (rs1 != Reg::ZERO).then_some(old & !rs1.number()))?,
            Op::LrW => self.load_reserved(a)?,
            Op::ScW => self.store_conditional(a, b)?,
            Op::AmoswapW => self.amo(a, |_| b)?,
            Op::AmoaddW => self.amo(a, |old| old.wrapping_add(b))?,
            Op::AmoxorW => self.amo(a, |old| old ^ b)?,
            Op::AmoandW => self.amo(a, |old| old & b)?,
            Op::AmoorW => self.amo(a, |old| old | b)?,
            Op::AmominW => self.amo(a, |old| alu::min(old, b))?,
            Op::AmomaxW => self.amo(a, |old| alu::max(old, b))?,
            Op::AmominuW => self.amo(a, |old| old.min(b))?,
            Op::AmomaxuW => self.amo(a, |old| old.max(b))?,
            Op::Vector => return self.vector(imm).map(|()| next),
            _ => alu::compute(op, a, b, imm),
        };
        self.hart.set(rd, result);
        Ok(next)
    }

    fn link(&mut self, rd: Reg, next: u32, target: u32) -> u32 {
        self.hart.set(rd, next);
        target
    }

    /// Loads `N` (1, 2 or 4) bytes, zero-extended.
    #[inline(always)]
    fn load<const N: usize>(&mut self, address: u32) -> Result<u32, Stop> {
        match self.view.load::<N>(address) {
            Some(bytes) => Ok(word(bytes)),
            None => self.load_device(address, N),
        }
    }

    /// Stores the lower `N` (1, 2 or 4) bytes of `value`.
    #[inline(always)]
    fn store<const N: usize>(&mut self, address: u32, value: u32) -> Result<(), Stop> {
        let [a, b, c, d] = value.to_le_bytes();
        let stored = match N {
            1 => self.view.store(address, [a]),
            2 => self.view.store(address, [a, b]),
            _ => self.view.store(address, [a, b, c, d]),
        };
        match stored {
            Some(()) => Ok(()),
            None => self.store_device(address, N, value),
        }
    }

    #[cold]
    fn load_device(&mut self, address: u32, width: usize) -> Result<u32, Stop> {
        if !is_device(address) {
            return Err(self.denied(address, Cause::LoadAccess));
        }
        let value = device::load(self.device, self.hart, self.view, address, narrow(width));
        let value = value.map_err(|trap| trapped(trap, address))?;
        self.charge();
        Ok(value & lower_bytes(narrow(width)))
    }

    #[cold]
    fn store_device(&mut self, address: u32, width: usize, value: u32) -> Result<(), Stop> {
        if !is_device(address) {
            return Err(self.denied(address, Cause::StoreAccess));
        }
        let value = value & lower_bytes(narrow(width));
        match device::store(self.device, self.hart, self.view, address, narrow(width), value) {
            Poll::Ready(stored) => stored.map_err(|trap| trapped(trap, address))?,
            Poll::Pending => return Err(Stop::Wait),
        }
        self.charge();
        Ok(())
    }

    fn charge(&mut self) {
        self.left = self.left.saturating_sub(self.device.take_charge());
    }

    fn ecall(&mut self) -> Result<(), Stop> {
        self.device.ecall(self.hart, self.view).map_err(|trap| trapped(trap, 0))?;
        self.charge();
        Ok(())
    }

    /// Reads a register and writes `new` of its value, if that is a value.
    fn csr(&mut self, number: u32, new: impl FnOnce(u32) -> Option<u32>) -> Result<u32, Stop> {
        // The decoder accepts only known registers; another table must not make this panic.
        let csr = Csr::from_number(number).ok_or(Stop::Fault { cause: Cause::IllegalInstruction, address: number })?;
        let old = self.hart.read_csr(csr);
        if let Some(value) = new(old) {
            self.hart.write_csr(csr, value);
        }
        Ok(old)
    }

    fn load_reserved(&mut self, address: u32) -> Result<u32, Stop> {
        aligned(address, Cause::LoadMisaligned)?;
        let old = self.view.load_word(address).ok_or_else(|| self.denied(address, Cause::LoadAccess))?;
        self.hart.reserve(self.view.normalise(address), old);
        Ok(old)
    }

    /// Returns 0 if SC stored, 1 if not. SC stores if the last LR was to this word and the word still has the value
    /// read then. A translation by compare-and-swap does this too, so both agree. Address and permission are checked in
    /// any case.
    fn store_conditional(&mut self, address: u32, value: u32) -> Result<u32, Stop> {
        aligned(address, Cause::StoreMisaligned)?;
        let stored = match self.hart.reservation(self.view.normalise(address)) {
            Some(expected) => self.view.exchange_word(address, expected, value),
            None => self.view.update_word(address, |old| old).map(|_| false),
        };
        let stored = stored.ok_or_else(|| self.denied(address, Cause::StoreAccess))?;
        self.hart.clear_reservation();
        Ok(u32::from(!stored))
    }

    fn amo(&mut self, address: u32, new: impl Fn(u32) -> u32) -> Result<u32, Stop> {
        aligned(address, Cause::StoreMisaligned)?;
        self.view.update_word(address, new).ok_or_else(|| self.denied(address, Cause::StoreAccess))
    }

    /// Not inlined: the code is long, and scalar instructions do not need it.
    #[inline(never)]
    fn vector(&mut self, bits: u32) -> Result<(), Stop> {
        self.left = self.left.saturating_sub(self.vector_extra);
        vector(self.hart, self.view, bits).map_err(|(cause, address)| Stop::Fault { cause, address })
    }

    /// The fault of an access that the view refused and no device accepts.
    #[cold]
    fn denied(&self, address: u32, cause: Cause) -> Stop {
        let (cause, address) = denied(self.view, address, cause);
        Stop::Fault { cause, address }
    }
}

/// Executes a vector instruction.
///
/// # Errors
/// The fault's cause and address.
pub(crate) fn vector(hart: &mut Hart, view: &mut View<'_>, bits: u32) -> Result<(), (Cause, u32)> {
    vector::execute(hart, view, bits).map_err(|refusal| match refusal {
        Refusal::Illegal => (Cause::IllegalInstruction, bits),
        Refusal::Load(address) => denied(view, address, Cause::LoadAccess),
        Refusal::Store(address) => denied(view, address, Cause::StoreAccess),
    })
}

/// Cause and address of the fault of an access that the view refused. Devices accept plain loads and stores of scalars
/// only.
#[cold]
fn denied(view: &View<'_>, address: u32, cause: Cause) -> (Cause, u32) {
    let cause = if is_device(address) { Cause::DeviceAccess } else { cause };
    (if view.below_stack(address) { Cause::StackOverflow } else { cause }, address)
}

const fn aligned(address: u32, misaligned: Cause) -> Result<(), Stop> {
    if address & 3 != 0 { Err(Stop::Fault { cause: misaligned, address }) } else { Ok(()) }
}

#[cold]
const fn trapped(trap: Trap, address: u32) -> Stop {
    match trap {
        Trap::Finish => Stop::Finish,
        Trap::Fault(cause) => Stop::Fault { cause, address },
        Trap::Report(value) => Stop::Fault { cause: Cause::Reported, address: value },
    }
}

#[inline(always)]
fn word<const N: usize>(bytes: [u8; N]) -> u32 {
    let mut word = [0; 4];
    word[..N].copy_from_slice(&bytes);
    u32::from_le_bytes(word)
}

/// A mask of the lower `width` (1, 2 or 4) bytes.
pub(crate) const fn lower_bytes(width: u8) -> u32 {
    match width {
        1 => 0xff,
        2 => 0xffff,
        _ => u32::MAX,
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a width is 1, 2 or 4")]
const fn narrow(width: usize) -> u8 {
    width as u8
}

#[cfg(test)]
mod tests;
