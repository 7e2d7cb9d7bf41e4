//! Entering translated code.
#![allow(unsafe_code, reason = "calls code that was written at run time")]

use std::ffi::c_void;
use std::{mem, ptr};

use super::code_memory::CodeMemory;
use super::state::State;
use crate::device::CommandRegisters;
use crate::hart::Hart;
use crate::inst::Reg;
use crate::vector::vtype::VILL;

/// Takes a0 extended with zeroes.
type Code = unsafe extern "C" fn(*mut State, u64) -> Results;

/// What the code returns.
#[repr(C)]
struct Results {
    how: i64,
    /// With [`SENDS`], address and, above it, length of what is sent; else anything.
    what: u64,
}

/// How the code says that the handler returned, and never in all other cases: see [`State::exit`].
pub(crate) const RETURNED: i64 = 0;

/// The same of one that has sent a frame last: that is for the caller to do. With the address of the instruction; all else is positive.
pub(crate) const SENDS: i64 = i64::MIN;

/// How the code of a handler came to its end.
pub(crate) enum Ended {
    /// The handler returned.
    Returned,
    /// It does, but for this.
    Sends(LastSend),
    /// [`State::exit`] says how.
    Early,
}

/// A send that is the last thing a handler does, yet to be issued.
pub(crate) struct LastSend {
    /// The instruction that would issue it.
    pub(crate) pc: u32,
    /// Where the frame is that it sends.
    pub(crate) address: u32,
    /// How many bytes it has.
    pub(crate) length: u32,
}

/// Host code of a handler. Its translation must be alive when it is called.
#[derive(Debug)]
pub(crate) struct Entry {
    code: Code,
    begins: Begins,
    exits: Exits,
    aside: Option<AsideEntry>,
    /// How many bytes of the packet in L1 are likely to be read [where it arrived](super::in_place).
    pub(crate) in_place: u32,
}

/// Host code for what a handler seldom does.
#[derive(Debug)]
struct AsideEntry {
    code: Code,
    /// What is seen to when a task comes there, if not before.
    begins: Begins,
    /// Its exits are the first.
    exits: usize,
}

/// Where the code of a handler is in its translation's memory, and what is known of it.
pub(crate) struct Placed {
    pub(crate) offset: usize,
    pub(crate) begins: Begins,
    pub(crate) exits: Exits,
    /// Of the function for what it seldom does, whose exits are the first: where it is, what it has begun for it, how many exits.
    pub(crate) aside: Option<(usize, Begins, usize)>,
    /// As in [`Entry`].
    pub(crate) in_place: u32,
}

/// Where code is left for the interpreter: what it does not write to the hart, since it was known when it was translated. By what
/// [`State::resume`] is then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exits {
    exits: Vec<Exit>,
    /// Registers and their values, for one exit or more.
    known: Vec<Box<[(Reg, u32)]>>,
}

#[derive(Clone, Debug)]
struct Exit {
    /// The next instruction; `None`: the hart has it.
    pc: Option<u32>,
    /// Which of [`Exits::known`] holds there.
    known: usize,
}

impl Exits {
    /// The number of a new exit.
    pub(crate) fn add(&mut self, pc: Option<u32>, known: Vec<(Reg, u32)>) -> u32 {
        if self.known.last().is_none_or(|last| **last != *known) {
            self.known.push(known.into());
        }
        self.exits.push(Exit { pc, known: self.known.len() - 1 });
        // A plan has fewer instructions than a u32 has numbers.
        u32::try_from(self.exits.len() - 1).unwrap_or(u32::MAX)
    }

    /// How many there are.
    pub(crate) const fn len(&self) -> usize {
        self.exits.len()
    }

    /// Tells the hart what is known at an exit.
    fn tell(&self, hart: &mut Hart, exit: u32) {
        let Some(Exit { pc, known }) = self.exits.get(exit as usize) else { return };
        hart.pc = pc.unwrap_or(hart.pc);
        self.known[*known].iter().for_each(|&(reg, value)| hart.set(reg, value));
    }
}

/// What the code of a handler sees to when a task begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Begins {
    /// It zeroes the command registers.
    pub(crate) command: bool,
    /// It drops the reservation.
    pub(crate) reservation: bool,
    /// It clears vector type and length.
    pub(crate) vectors: bool,
}

impl Begins {
    /// What either sees to.
    const fn and(self, other: Self) -> Self {
        Self {
            command: self.command || other.command,
            reservation: self.reservation || other.reservation,
            vectors: self.vectors || other.vectors,
        }
    }

    /// What is left of it when the other has seen to its own.
    pub(crate) const fn but(self, other: Self) -> Self {
        Self {
            command: self.command && !other.command,
            reservation: self.reservation && !other.reservation,
            vectors: self.vectors && !other.vectors,
        }
    }
}

/// The function at `offset` of a translation's memory.
fn code(memory: &CodeMemory, offset: usize) -> Code {
    let address = memory.address(offset);
    // SAFETY: the translator compiled a function of this signature and calling convention to this address, or one that has the first of
    // both results alone: the other, of which nothing is made then, is what the register holds. Whether it may be called is for those who do.
    unsafe { mem::transmute::<*const c_void, Code>(address) }
}

impl Entry {
    /// The function that is so placed in `memory`.
    pub(crate) fn new(memory: &CodeMemory, Placed { offset, begins, exits, aside, in_place }: Placed) -> Self {
        let aside = aside.map(|(offset, begins, exits)| AsideEntry { code: code(memory, offset), begins, exits });
        Self { code: code(memory, offset), begins, exits, aside, in_place }
    }

    /// What [`State::aside`] has to be when it is executed.
    pub(crate) fn aside(&self) -> *const c_void {
        self.aside.as_ref().map_or(ptr::null(), |aside| aside.code as *const c_void)
    }

    /// Executes it, up to the end of the task or to where it leaves off. Takes what a0 holds.
    ///
    /// # Safety
    /// Its translation lives, `state` is attached to a live space, and attended to ([`crate::trap`]); it has what sp and tp hold, and
    /// what is [aside](Entry::aside).
    #[inline(always)]
    pub(crate) unsafe fn execute(&self, state: *mut State, argument: u32) -> Ended {
        // SAFETY: as the caller says.
        let Results { how, what } = unsafe { (self.code)(state, argument.into()) };
        if how == RETURNED {
            return Ended::Returned;
        }
        std::hint::cold_path();
        if how < 0 {
            Ended::Sends(LastSend { pc: how as u32, address: what as u32, length: (what >> 32) as u32 })
        } else {
            Ended::Early
        }
    }

    /// Makes the hart that the code has left at an exit be as if it had begun the task.
    pub(crate) fn prepare_interpreter(&self, hart: &mut Hart, exit: u32) {
        self.exits.tell(hart, exit);
        let came_from = self.aside.as_ref().filter(|aside| (exit as usize) < aside.exits);
        let begun = came_from.map_or(self.begins, |aside| self.begins.and(aside.begins));
        if !begun.command {
            hart.command = CommandRegisters::new();
        }
        if !begun.reservation {
            hart.clear_reservation();
        }
        if !begun.vectors {
            hart.vector.configure(VILL, 0);
        }
    }
}
