//! Hex dump of bytes as text.

use std::fmt::Write;

/// Bytes per line.
const LINE: usize = 16;

/// Formats bytes as lines: the offset, sixteen bytes in hexadecimal, and their printable characters.
#[must_use]
pub fn lines(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (number, line) in bytes.chunks(LINE).enumerate() {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{:08x} ", number * LINE);
        for at in 0..LINE {
            let gap = if at == LINE / 2 { " " } else { "" };
            let _ = match line.get(at) {
                Some(byte) => write!(text, "{gap} {byte:02x}"),
                None => write!(text, "{gap}   "),
            };
        }
        let shown = |&byte: &u8| if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '.' };
        let _ = writeln!(text, "  |{}|", line.iter().map(shown).collect::<String>());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn bytes_are_shown_in_lines_of_sixteen() {
        let bytes: Vec<u8> = (0x3f..0x50).collect();
        let expected = "00000000  3f 40 41 42 43 44 45 46  47 48 49 4a 4b 4c 4d 4e  |?@ABCDEFGHIJKLMN|\n\
                        00000010  4f                                                |O|\n";
        assert_eq!(lines(&bytes), expected);
        assert_eq!(lines(&[]), "");
        assert!(lines(&[0, 0xff]).ends_with("|..|\n"));
    }
}
