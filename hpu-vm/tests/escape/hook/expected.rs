//! How attacks end in the hook.

use hpu_vm::bpf::Ineligible;
use hpu_vm::bpf::layout::Reason;

use super::Form;

/// How an attack ends in the hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// As in the interpreter: with its fault at its address, or with its result and its memory.
    Interpreted,
    /// In user space, which is said to begin again: others have seen nothing.
    Left(Reason),
    /// Not at all, since others have seen what it wrote.
    Lost(Reason),
    /// The handler is not translated, for a reason that begins like this.
    NotEligible(&'static str),
}

use Expected::{Interpreted, Left, Lost, NotEligible};

impl Expected {
    /// Says what is wrong with a handler that is not translated.
    pub fn differs_from_refusal(self, reason: Ineligible) -> Vec<String> {
        let text = reason.to_string();
        let is_expected = matches!(self, NotEligible(expected) if text.starts_with(expected));
        if is_expected { Vec::new() } else { vec![format!("expected {self:?}, it is not eligible: {text}")] }
    }
}

const CALLS: Expected = NotEligible("calls or jumps that cannot be followed (pc 0x");
const JUMP: Expected = Left(Reason::Jump);
const DEVICE: Expected = Left(Reason::Device);
const ALIAS: Expected = Left(Reason::Alias);
const POINTER: Expected = Left(Reason::UnexpectedPointer);

/// A name, in which `*` stands for any text, and the outcome. The first rule for a name decides.
type Rule = (&'static str, Expected);

/// Rules for forms that copy the packet to L1: they have no reason to leave a store there to user space.
const COPY: [Rule; 2] =
    [("s* * up to the end of packet", Interpreted), ("s* Constant up to the end of packet in the alias", Interpreted)];

/// Rules for all forms. Attacks without a rule end as in the interpreter.
const RULES: [Rule; 36] = [
    // The code behind an ebreak is not translated.
    ("jr * to the middle*: an ebreak, 2 taken", CALLS),
    // Jumps by tables that the image shows: other entries are found when they are used.
    ("jr * to the middle*, 2 taken", Interpreted),
    ("entry 0x2 * of a table of 2", JUMP),
    ("entry 0xffffffff * of a table of 2", JUMP),
    // A jump to a known address outside the code, or a call by a pointer.
    ("ret Constant to *", CALLS),
    ("jr Constant to *", CALLS),
    ("jr with an offset *", CALLS),
    ("jalr *", CALLS),
    ("sb Constant to its code", CALLS),
    ("sh Constant to its code", CALLS),
    ("sw Constant to its code", CALLS),
    ("code written Constant to data", CALLS),
    // Recursion.
    ("recursion *", CALLS),
    // A jump that the program compares with its return addresses.
    ("ret * to *", JUMP),
    ("jr * to *", JUMP),
    ("a return * to *", JUMP),
    ("code written *", Lost(Reason::Jump)),
    ("an unknown ecall", NotEligible("an ecall (pc 0x")),
    // Known registers that the program has.
    ("sw Constant at register 0x8c", Interpreted),
    ("sw Constant at register 0x54", Interpreted),
    ("lw Constant at register 0x50", Interpreted),
    ("* at register *", DEVICE),
    ("amoadd.w * at the doorbell", DEVICE),
    ("amoadd.w * at the output", DEVICE),
    ("lr.w * at the doorbell", DEVICE),
    ("lr.w * at the output", DEVICE),
    ("sc.w * at the doorbell", DEVICE),
    ("sc.w * at the output", DEVICE),
    ("* at the last output", DEVICE),
    ("sp at a device", DEVICE),
    // The program resolves known aliases only. What is not there has the same fault in user space.
    ("* at the stack below in the alias", ALIAS),
    ("* at the stack above in the alias", ALIAS),
    ("lw Constant up to the end of packet in the alias", Interpreted),
    ("* the end of packet in the alias", ALIAS),
    ("* the page of packet in the alias", ALIAS),
    // Nothing shows that the address is the packet's, so the packet in L1 is the frame, which is only read.
    ("s* * up to the end of packet", POINTER),
];

/// The rules, and those that have been used.
#[derive(Default)]
pub struct Rules {
    used: Vec<&'static str>,
}

impl Rules {
    /// How an attack ends in a form.
    pub fn of(&mut self, name: &str, form: Form) -> Expected {
        let copy = if form.copies_packet { &COPY[..] } else { &[] };
        let rule = copy.iter().chain(&RULES).find(|(pattern, _)| matches(pattern, name));
        rule.map_or(Interpreted, |&(pattern, expected)| {
            self.used.push(pattern);
            expected
        })
    }

    /// Rules for which there was no attack.
    pub fn unused(&self) -> Vec<&'static str> {
        let patterns = COPY.iter().chain(&RULES).map(|(pattern, _)| *pattern);
        patterns.filter(|pattern| !self.used.contains(pattern)).collect()
    }
}

/// Whether the verifier may refuse a form for this reason: it looks at each loop iteration that counts from a constant,
/// unless the form hides the constant from it. spind then tries another form.
pub fn may_refuse(name: &str, form: Form, reason: &str) -> bool {
    let counts = name == "a loop of 2^32 turns" && !form.opaque && !form.forgetful;
    counts && (reason.starts_with("BPF program is too large") || reason.ends_with("jumps is too complex."))
}

/// Whether a name is that of a pattern, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => {
            let ends = name
                .strip_prefix(start)
                .map(|name| name.char_indices().map(|(at, _)| &name[at..]).chain([""]).any(|name| matches(rest, name)));
            ends.unwrap_or(false)
        }
    }
}

#[test]
fn stars_stand_for_any_text() {
    for (pattern, name, expected) in [
        ("ret * to *", "ret Derived to data", true),
        ("ret * to *", "ret Derived at data", false),
        ("*", "", true),
        ("jr*, 2 taken", "jr to the middle, 2 taken", true),
        ("jr*, 2 taken", "jr to the middle, 2 taken or more", false),
        ("entry", "entry 2", false),
    ] {
        assert_eq!(matches(pattern, name), expected, "{pattern} and {name}");
    }
}
