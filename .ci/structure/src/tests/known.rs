//! The list of known violations.

use crate::known::{Violation, compare, list};

fn violations(keys: &[&str]) -> Vec<Violation> {
    keys.iter().map(|key| Violation { key: (*key).to_owned(), message: String::new() }).collect()
}

/// What is new and what is stale.
fn differences(today: &[&str], known: &str) -> (Vec<String>, Vec<String>) {
    let violations = violations(today);
    let comparison = compare(&violations, known);
    let new = comparison.new.iter().map(|violation| violation.key.clone()).collect();
    (new, comparison.stale.iter().map(|line| (*line).to_owned()).collect())
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn known_violations_pass_and_others_do_not() {
    let known = "# comment\n\nfile a.rs\nfunction made::f\n";
    assert_eq!(differences(&["file a.rs", "function made::f"], known), (strings(&[]), strings(&[])));
    let expected = (strings(&["file b.rs"]), strings(&["function made::f"]));
    assert_eq!(differences(&["file a.rs", "file b.rs"], known), expected);
}

#[test]
fn a_circle_is_known_if_it_is_part_of_a_known_one() {
    let known = "circle made: a b c";
    let passes = (strings(&[]), strings(&[]));
    assert_eq!(differences(&["circle made: a b c"], known), passes);
    assert_eq!(differences(&["circle made: a c"], known), passes);
    for other in ["circle made: a b c d", "circle made: a d", "circle other: a b"] {
        assert_eq!(differences(&[other], known), (strings(&[other]), strings(&[known])));
    }
}

#[test]
fn a_smaller_circle_is_told() {
    let violations = violations(&["circle made: a c"]);
    assert_eq!(compare(&violations, "circle made: a b c").smaller, ["circle made: a b c"]);
    assert!(compare(&violations, "circle made: a c").smaller.is_empty());
}

#[test]
fn the_written_list_knows_all() {
    let today = ["function made::f", "circle made: a b", "function made::f"];
    let text = list(&violations(&today));
    assert_eq!(differences(&today, &text), (strings(&[]), strings(&[])));
    assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), 2);
}
