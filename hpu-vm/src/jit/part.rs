//! A handler in one function, or in two: what it seldom does is [aside](super::plan::Plan::sides).

use super::plan::{BlockId, Side};
use super::prologue::Prologue;
use super::side_exits::SideExits;

/// What a function has of a plan.
#[derive(Clone, Copy)]
pub(crate) enum Part<'p> {
    /// All of it.
    Whole,
    /// What is aside.
    Aside(&'p [Side]),
    /// The rest, when that was made.
    Rest(&'p [Side], &'p Aside),
}

impl<'p> Part<'p> {
    /// Whether it has a block.
    pub(crate) fn has(self, id: BlockId) -> bool {
        match self {
            Self::Whole => true,
            Self::Aside(sides) => sides[id] != Side::Mostly,
            Self::Rest(sides, _) => sides[id] != Side::Aside,
        }
    }

    pub(crate) const fn is_aside(self) -> bool {
        matches!(self, Self::Aside(_))
    }

    /// What was made before.
    pub(crate) const fn before(self) -> Option<&'p Aside> {
        if let Self::Rest(_, aside) = self { Some(aside) } else { None }
    }
}

/// What the function for the rest has to know of that for what is aside.
pub(crate) struct Aside {
    /// What it sees to: the other does, or what goes there.
    pub(crate) begins: Prologue,
    /// Its exits have the first numbers.
    pub(crate) exits: SideExits,
    /// How many resume points it has, which have the first numbers too.
    pub(crate) resumes: usize,
}
