//! Translations by what they were made of: the same code is translated once, whoever runs it.
//!
//! Sharing them tells nobody anything: they are made of code alone, which cannot be written. They are kept as long as
//! somebody runs them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::options::Options;
use super::translation::{Source, TranslateError, Translation};
use crate::code::CodeSegment;
use crate::weak_cache::WeakCache;

/// All that a translation depends on.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    code: Box<[CodeSegment]>,
    global_pointer: u32,
    functions: BTreeSet<u32>,
    entries: Box<[u32]>,
    taken: BTreeSet<u32>,
    options: Options,
}

/// Translations in use, keyed by their input: code is translated once, and all users share the result. Threads may
/// share the cache.
#[derive(Debug, Default)]
pub struct Translations {
    known: WeakCache<Key, Translation>,
}

impl Translations {
    /// Returns the translation of `source`: the one in use, or a new one.
    ///
    /// # Errors
    /// See [`TranslateError`].
    pub fn get(&self, source: Source<'_>, options: Options) -> Result<Arc<Translation>, TranslateError> {
        let key = Key {
            code: source.code.segments().into(),
            global_pointer: source.code.global_pointer(),
            functions: source.code.functions().clone(),
            entries: source.entries.into(),
            taken: source.taken.clone(),
            options,
        };
        self.known.get(key, || Translation::new(source, options))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::Translations;
    use crate::code::Code;
    use crate::inst::{Inst, Op, Reg};
    use crate::jit::{Options, Source};

    #[test]
    fn the_same_code_is_translated_once_while_it_is_used() {
        let code = |value| {
            let add = Inst::new(Op::Addi).rd(Reg::A0).imm(value).encode();
            let ret = Inst::new(Op::Jalr).rs1(Reg::RA).encode();
            Code::at(0x1d00_0000, &[add.to_le_bytes(), ret.to_le_bytes()].concat())
        };
        let (translations, taken) = (Translations::default(), BTreeSet::new());
        let get = |code: &Code, options| {
            translations.get(Source { code, entries: &[0x1d00_0000], taken: &taken }, options).expect("translates")
        };
        let first = get(&code(1), Options::default());
        assert!(Arc::ptr_eq(&first, &get(&code(1), Options::default())));
        assert!(!Arc::ptr_eq(&first, &get(&code(2), Options::default())));
        assert!(!Arc::ptr_eq(&first, &get(&code(1), Options { counting: true, ..Options::default() })));
        assert!(!Arc::ptr_eq(&first, &get(&code(1), Options { result: true, ..Options::default() })));
        let other = code(1).with_functions([0x1d00_0004].into_iter());
        assert!(!Arc::ptr_eq(&first, &get(&other, Options::default())));
        let gone = Arc::downgrade(&first);
        drop(first);
        get(&code(2), Options::default());
        assert!(gone.upgrade().is_none(), "it goes with the last who uses it");
        assert_eq!(translations.known.lock().len(), 1, "and is forgotten");
    }
}
