//! Layouts of structures that threads share.

use std::collections::BTreeMap;

/// Size of a cache line, in bytes.
const LINE: usize = 64;

/// A field: name, offset, size, and who writes it. Empty: nobody does while packets are processed.
pub type Field = (&'static str, usize, usize, &'static str);

/// Checks that no two threads write one cache line of a structure, and that nothing else is on its lines.
///
/// # Panics
/// When that is not so.
pub fn check_lines(name: &str, align: usize, fields: &[Field]) {
    assert!(align >= LINE, "{name} is aligned to {align} bytes: it shares cache lines with its neighbours in memory");
    let mut writers: BTreeMap<usize, (&str, &str)> = BTreeMap::new();
    for &(field, offset, size, writer) in fields.iter().filter(|(_, _, size, writer)| *size > 0 && !writer.is_empty()) {
        for line in offset / LINE..=(offset + size - 1) / LINE {
            let (other, of) = *writers.entry(line).or_insert((field, writer));
            assert!(
                of == writer,
                "{name}: {field}, written by {writer}, shares a cache line with {other}, written by {of}"
            );
        }
    }
}

/// The size of the field that `of` returns.
pub const fn field_size<T, F>(_of: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Checks the layout of a structure that threads share, by [`check_lines`]: `assert_lines!(Status { idle: "its thread", id: "" })`. All
/// fields have to be listed, each with the thread that writes it.
#[macro_export]
macro_rules! assert_lines {
    ($name:ident { $($field:ident: $writer:literal),+ $(,)? }) => {{
        // Does not compile when a field is missing.
        let _: fn(&$name) = |it| { let $name { $($field: _),+ } = it; };
        $crate::check_lines(stringify!($name), align_of::<$name>(), &[$((
            stringify!($field),
            std::mem::offset_of!($name, $field),
            $crate::field_size::<$name, _>(|it| &it.$field),
            $writer,
        )),+]);
    }};
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::check_lines;

    #[test]
    fn lines_with_two_writers_are_found() {
        let refused = |align: usize, fields: &'static [super::Field]| {
            let panic = catch_unwind(|| check_lines("It", align, fields)).expect_err("refused");
            *panic.downcast::<String>().expect("a message")
        };
        check_lines(
            "It",
            64,
            &[("a", 0, 8, "x"), ("b", 8, 56, "x"), ("c", 64, 8, "y"), ("d", 72, 8, ""), ("e", 8, 0, "y")],
        );
        assert!(refused(8, &[("a", 0, 8, "x")]).contains("aligned to 8 bytes"));
        assert!(
            refused(64, &[("a", 0, 8, "x"), ("b", 56, 16, "y")])
                .contains("b, written by y, shares a cache line with a")
        );
        assert!(refused(128, &[("a", 0, 65, "x"), ("b", 72, 8, "y")]).contains("shares a cache line"));
    }
}
