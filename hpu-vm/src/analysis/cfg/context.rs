//! Chains of inlined calls.

use spin_abi::map::RETURN_ADDRESS;

/// Maximum depth of inlined calls.
const MAX_DEPTH: usize = 12;

/// A chain of inlined calls that leads to a block: index in [`Contexts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct InlineContext(usize);

impl InlineContext {
    /// The handler itself, or a shared region.
    pub(super) const ROOT: Self = Self(0);
    /// A copy of the handler's first block, for jumps to the handler's first instruction. Its successors are in
    /// [`ROOT`](Self::ROOT), so that only the beginning of a task leads to the original.
    pub(super) const PEELED: Self = Self(1);
    /// Code that is not inlined: no block belongs to it.
    pub(super) const OUTSIDE: Self = Self(2);

    /// The context of what follows a block of this one.
    pub(super) const fn behind(self) -> Self {
        if self.0 == Self::PEELED.0 { Self::ROOT } else { self }
    }
}

/// An inlined call.
#[derive(Clone, Copy, Debug)]
struct Call {
    caller: InlineContext,
    depth: usize,
    /// Return address; `None` when it is unknown.
    back: Option<u32>,
}

/// All contexts of a region.
#[derive(Debug)]
pub(super) struct Contexts(Vec<Call>);

impl Contexts {
    /// Makes the predefined contexts of a handler, or of a shared region, whose callers are unknown.
    pub(super) fn new(is_handler: bool) -> Self {
        let root = Call { caller: InlineContext::ROOT, depth: 0, back: is_handler.then_some(RETURN_ADDRESS) };
        Self(vec![root, root, Call { back: None, ..root }])
    }

    pub(super) fn back(&self, context: InlineContext) -> Option<u32> {
        self.0[context.0].back
    }

    pub(super) fn caller(&self, context: InlineContext) -> InlineContext {
        self.0[context.0].caller
    }

    /// Return addresses of the calls around a context, innermost first.
    pub(super) fn return_addresses(&self, context: InlineContext) -> impl Iterator<Item = u32> + '_ {
        let inner = (context.behind() != InlineContext::ROOT).then_some(context);
        let chain = std::iter::successors(inner, |&context| {
            Some(self.caller(context)).filter(|&caller| caller != InlineContext::ROOT)
        });
        chain.filter_map(|context| self.back(context))
    }

    /// Whether a call from `caller` that returns to `back` may be inlined: not too deep, and not recursive.
    pub(super) fn allows(&self, caller: InlineContext, back: u32) -> bool {
        self.0[caller.0].depth < MAX_DEPTH && self.return_addresses(caller).all(|other| other != back)
    }

    pub(super) fn add(&mut self, caller: InlineContext, back: u32) -> InlineContext {
        let depth = self.0[caller.0].depth + 1;
        self.0.push(Call { caller, depth, back: Some(back) });
        InlineContext(self.0.len() - 1)
    }
}
