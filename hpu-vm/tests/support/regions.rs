//! Code that is divided into regions in different ways.

use hpu_vm::Code;

/// Divides `code` by `choice`: into functions, and into code that is rarely executed and other code. Parts have 8 bytes or more.
pub fn divided(code: Code, choice: u64) -> Code {
    let size = 8 << (choice >> 2 & 7);
    let ends: Vec<(u32, u32)> = code
        .segments()
        .iter()
        .map(|segment| (segment.base, segment.base + u32::try_from(segment.bytes.len()).expect("a small image")))
        .collect();
    let parts = |every: usize| {
        let starts = ends.iter().flat_map(move |&(base, end)| (base..end).step_by(size).step_by(every));
        starts.collect::<Vec<u32>>()
    };
    let code = if choice & 1 == 0 { code } else { code.with_functions(parts(1).into_iter()) };
    let size = u32::try_from(size).expect("a small part");
    if choice & 2 == 0 {
        code
    } else {
        code.with_cold(parts(2).into_iter().map(|start| start + size..start + 2 * size))
    }
}
