//! Decompression of an LZ4 block.

use crate::handlers::work::lz4::MIN_MATCH;

/// Returns the decompressed bytes. `None` if the block is invalid.
pub(super) fn decompress(block: &[u8]) -> Option<Vec<u8>> {
    let mut rest = block.iter().copied();
    let mut output = Vec::new();
    loop {
        let token = rest.next()?;
        let literals = length(token >> 4, &mut rest)?;
        for _ in 0..literals {
            output.push(rest.next()?);
        }
        let Some(low) = rest.next() else { return Some(output) };
        let offset = usize::from(u16::from_le_bytes([low, rest.next()?]));
        let copied = length(token & 15, &mut rest)? + MIN_MATCH;
        let from = output.len().checked_sub(offset).filter(|_| offset > 0)?;
        for at in from..from + copied {
            output.push(output[at]);
        }
    }
}

/// Completes a length of the token.
fn length(half: u8, rest: &mut impl Iterator<Item = u8>) -> Option<usize> {
    let mut length = usize::from(half);
    let mut continues = half == 15;
    while continues {
        let byte = rest.next()?;
        length += usize::from(byte);
        continues = byte == 255;
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::decompress;

    #[test]
    fn literals_and_matches() {
        // Three literals and a match of 3 + 15 + 4 bytes that overlaps itself; then the last two literals.
        let block = [0x3f, b'a', b'b', b'c', 3, 0, 3, 0x20, b'd', b'e'];
        let expected = ["abc".repeat(8).as_bytes(), b"a", b"de"].concat();
        assert_eq!(decompress(&block).as_deref(), Some(&expected[..]));
        // Sixteen literals; an offset beyond them is invalid, and so is one of zero.
        let long = [&[0xf0, 1][..], &[7; 16]].concat();
        assert_eq!(decompress(&long), Some(vec![7; 16]));
        assert_eq!(decompress(&[0x10, 7, 2, 0, 0x00]), None);
        assert_eq!(decompress(&[0x10, 7, 0, 0, 0x00]), None);
        assert_eq!(decompress(&[0x10, 7, 1, 0, 0x00]), Some(vec![7; 5]));
    }

    #[test]
    fn a_block_that_is_cut_anywhere_else_is_invalid() {
        let block = [0x20, b'a', b'b', 1, 0, 0xf0, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];
        let whole = (0..=block.len()).filter(|length| decompress(&block[..*length]).is_some());
        assert_eq!(whole.collect::<Vec<_>>(), [3, block.len()]);
    }
}
