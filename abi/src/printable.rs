//! Text from others, for logs and terminals: names of symbols in images, rules, file names.

use alloc::string::String;

/// Text that cannot end a line, move a cursor or change a terminal: such characters are shown as Rust's escapes. Text of more than `most`
/// characters is cut, and ends with `…`.
#[must_use]
pub fn printable(text: &str, most: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(most));
    let mut letters = text.chars();
    letters.by_ref().take(most).for_each(|letter| push(&mut shown, letter));
    if letters.next().is_some() {
        shown.push('…');
    }
    shown
}

/// Adds a character, or its escape.
fn push(shown: &mut String, letter: char) {
    match letter {
        // Printable, though they have escapes in string literals.
        '"' | '\'' | '\\' => shown.push(letter),
        // These include controls, line separators and marks that change the direction of writing.
        _ => shown.extend(letter.escape_debug()),
    }
}

#[cfg(test)]
mod tests {
    use super::printable;
    use alloc::string::String;
    use proptest::prelude::{any, proptest};

    #[test]
    fn what_would_change_a_line_is_escaped() {
        for (text, shown) in [
            ("udp dport 1", "udp dport 1"),
            ("it's \"a\\b\"", "it's \"a\\b\""),
            ("größe", "größe"),
            ("a\nb\rc\td", "a\\nb\\rc\\td"),
            ("\u{1b}[31mred\u{7}\u{7f}", "\\u{1b}[31mred\\u{7}\\u{7f}"),
            ("\u{9b}31m\u{85}\u{2028}\u{202e}", "\\u{9b}31m\\u{85}\\u{2028}\\u{202e}"),
        ] {
            assert_eq!(printable(text, 100), shown);
        }
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(printable("symbol", 6), "symbol");
        assert_eq!(printable("symbols", 6), "symbol…");
        assert_eq!(printable("\n\n", 1), "\\n…");
    }

    proptest! {
        #[test]
        fn no_control_is_left(text in any::<String>(), most in 0..100_usize) {
            assert!(!printable(&text, most).chars().any(char::is_control));
        }
    }
}
