//! Names of programs and maps.

/// The longest name of a program or a map (`BPF_OBJ_NAME_LEN` without the final NUL).
const MAX_NAME: usize = 15;
pub(super) const NAME_RULE: &str = "give 1 to 15 letters, digits, underscores or dots";

/// Whether the kernel accepts a name for a program or a map.
pub(super) fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_allowed)
}
