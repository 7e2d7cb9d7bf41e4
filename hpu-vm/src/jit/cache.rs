//! Cache of translations: each code is translated once, and all its users share the result.
//!
//! Sharing leaks nothing between contexts: a translation depends on read-only code alone. It lives as long as it is used.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::error::TranslateError;
use super::options::Options;
use super::translation::{Source, Translation};
use crate::code::CodeSegment;
use crate::weak_cache::WeakCache;

/// Input of a translation.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    code: Box<[CodeSegment]>,
    global_pointer: u32,
    functions: BTreeSet<u32>,
    cold: Box<[Range<u32>]>,
    entries: Box<[u32]>,
    taken: BTreeSet<u32>,
    options: Options,
}

/// Translations in use, keyed by their input: code is translated once, and all users share the result. Threads may
/// share the cache.
#[derive(Debug, Default)]
pub struct Translations {
    translations: WeakCache<Key, Translation>,
}

impl Translations {
    /// Returns the translation of `source`: the one in use, or a new one. Passes a new one to `made` before any other code
    /// can take its addresses. If two threads translate the same source at the same time, both call `made`.
    ///
    /// # Errors
    /// See [`TranslateError`].
    pub fn get(
        &self,
        source: Source<'_>,
        options: Options,
        made: impl FnOnce(&Translation),
    ) -> Result<Arc<Translation>, TranslateError> {
        let key = Key {
            code: source.code.segments().into(),
            global_pointer: source.code.global_pointer(),
            functions: source.code.functions().clone(),
            cold: source.code.cold().into(),
            entries: source.entries.into(),
            taken: source.taken.clone(),
            options,
        };
        self.translations.get(key, || Translation::new(source, options).inspect(made))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::Translations;
    use crate::code::Code;
    use crate::inst::{Inst, Op, Reg};
    use crate::jit::{Options, Source};

    #[test]
    fn shared_code_is_translated_once_while_in_use() {
        let code = |value| {
            let add = Inst::new(Op::Addi).rd(Reg::A0).imm(value).encode();
            let ret = Inst::new(Op::Jalr).rs1(Reg::RA).encode();
            Code::at(0x1d00_0000, &[add.to_le_bytes(), ret.to_le_bytes()].concat())
        };
        let (translations, taken, new) = (Translations::default(), BTreeSet::new(), Cell::new(0));
        let get = |code: &Code, options| {
            let source = Source { code, entries: &[0x1d00_0000], taken: &taken };
            translations.get(source, options, |_| new.set(new.get() + 1)).expect("translates")
        };
        let first = get(&code(1), Options::default());
        assert!(Arc::ptr_eq(&first, &get(&code(1), Options::default())));
        assert_eq!(new.get(), 1);
        assert!(!Arc::ptr_eq(&first, &get(&code(2), Options::default())));
        assert!(!Arc::ptr_eq(&first, &get(&code(1), Options { counting: true, ..Options::default() })));
        assert!(!Arc::ptr_eq(&first, &get(&code(1), Options { result: true, ..Options::default() })));
        let other = code(1).with_functions([0x1d00_0004].into_iter());
        assert!(!Arc::ptr_eq(&first, &get(&other, Options::default())));
        let gone = Arc::downgrade(&first);
        drop(first);
        get(&code(2), Options::default());
        assert!(gone.upgrade().is_none(), "it is freed with its last user");
        assert_eq!(translations.translations.lock().len(), 1, "its key is removed");
    }
}
