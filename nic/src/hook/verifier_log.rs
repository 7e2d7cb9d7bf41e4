//! The verifier's log (kernel/bpf/verifier.c, `print_verification_stats`).

/// Lines that end the log of each program.
const STATISTICS: [&str; 3] = ["verification time ", "stack depth ", "processed "];
/// Lines that introduce states of registers.
const STATES: [&str; 2] = ["cur state:", "old state:"];
/// An error has one line, or a second with the cause.
const LINES: usize = 2;

/// The error of a log: its last lines that are neither instructions nor states nor statistics. Empty when there is none.
pub(super) fn error_lines(log: &str) -> String {
    let mut lines: Vec<_> = log.lines().rev().map(str::trim).filter(|line| is_error(line)).take(LINES).collect();
    lines.reverse();
    lines.join("; ")
}

fn is_error(line: &str) -> bool {
    let begins = |prefix: &&str| line.starts_with(*prefix);
    let is_instruction = line.split_once(": ").is_some_and(|(index, _)| index.parse::<u32>().is_ok());
    let is_path = line.starts_with("from ") && line.contains(" to ") && line.contains(':');
    let is_source = line.starts_with(';');
    let is_summary = STATISTICS.iter().any(begins) || STATES.iter().any(begins);
    !(line.is_empty() || is_instruction || is_path || is_source || is_summary)
}

/// The error with `N` for each number, so that refusals of one kind are equal.
pub(super) fn normalise(error: &str) -> String {
    let mut reason = String::with_capacity(error.len());
    let mut rest = error;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let before = &rest[..start];
        // A minus belongs to the number, a dash behind a word does not.
        let unsigned = before.strip_suffix('-').filter(|before| {
            let previous = before.chars().next_back().or_else(|| reason.chars().next_back());
            !previous.is_some_and(char::is_alphanumeric)
        });
        reason.push_str(unsigned.unwrap_or(before));
        reason.push('N');
        rest = &rest[start..];
        rest = match rest.strip_prefix("0x") {
            Some(hex) => hex.trim_start_matches(|c: char| c.is_ascii_hexdigit()),
            None => rest.trim_start_matches(|c: char| c.is_ascii_digit()),
        };
    }
    reason.push_str(rest);
    reason
}

/// Number of instructions that the verifier processed.
pub(super) fn processed(log: &str) -> Option<u32> {
    let line = log.lines().rev().find_map(|line| line.trim().strip_prefix("processed "))?;
    line.split_once(" insns")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{error_lines, normalise, processed};

    const LOG: &str = "0: R1=ctx() R10=fp0\n\
                       0: (18) r2 = 0xffff8881068d6710        ; R2_w=map_value(map=m,ks=4,vs=8)\n\
                       from 3 to 5: R0=scalar()\n\
                       2: (7a) *(u64 *)(r2 +8) = 1\n\
                       invalid access to map value, value_size=8 off=-8 size=0x8\n\
                       R2 min value is outside of the allowed memory range\n\
                       verification time 51 usec\n\
                       stack depth 0\n\
                       processed 2 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0\n";

    #[test]
    fn the_error_is_the_end_of_the_log_before_the_statistics() {
        let error = error_lines(LOG);
        assert_eq!(
            error,
            "invalid access to map value, value_size=8 off=-8 size=0x8; \
             R2 min value is outside of the allowed memory range"
        );
        assert_eq!(
            normalise(&error),
            "invalid access to map value, value_size=N off=N size=N; \
             RN min value is outside of the allowed memory range"
        );
        assert_eq!(processed(LOG), Some(2));
    }

    #[test]
    fn a_loop_shows_no_states() {
        let log =
            "infinite loop detected at insn 2\ncur state:\n0: R0=1\nold state:\n0: R0=1\nprocessed 7 insns (limit 1)\n";
        assert_eq!(normalise(&error_lines(log)), "infinite loop detected at insn N");
    }

    #[test]
    fn a_dash_between_words_is_no_sign() {
        assert_eq!(
            normalise("back-edge from insn 12 to -3, 64-bit, u-2, a -"),
            "back-edge from insn N to N, N-bit, u-N, a -"
        );
        assert_eq!(normalise(""), "");
    }

    #[test]
    fn an_empty_log_has_no_error() {
        assert_eq!(error_lines("\nprocessed 0 insns (limit 1)\n"), "");
        assert_eq!(processed(""), None);
    }
}
