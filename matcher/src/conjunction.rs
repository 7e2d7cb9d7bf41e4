//! Rules that hold where two others both hold: what a policy leaves of a user's rules.

use crate::rule::{Rule, Term};

/// The rule that holds where both hold. `None`: no frame matches both, as far as [`Rule::contradiction`] knows.
#[must_use]
pub fn both(one: &Rule, two: &Rule) -> Option<Rule> {
    let mut rule = one.clone();
    for term in &two.terms {
        narrow(&mut rule, *term);
    }
    rule.contradiction().is_none().then_some(rule)
}

/// Adds a term. Ranges of one port become their intersection.
fn narrow(rule: &mut Rule, term: Term) {
    for known in &mut rule.terms {
        if *known == term {
            return;
        }
        if let Some(common) = common_ports(*known, term) {
            *known = common;
            return;
        }
    }
    rule.terms.push(term);
}

/// The ports that both terms name. `None` if they are not about one port, or have none in common.
fn common_ports(one: Term, two: Term) -> Option<Term> {
    let Term::Port { transport, side, first, last } = one else { return None };
    let Term::Port { transport: of, side: at, first: from, last: to } = two else { return None };
    let (first, last) = (first.max(from), last.min(to));
    ((transport, side) == (of, at) && first <= last).then_some(Term::Port { transport, side, first, last })
}

#[cfg(test)]
mod tests {
    use crate::rule::{Rule, Rules};

    fn rule(text: &str) -> Rule {
        text.parse::<Rules>().expect("a rule").rules.remove(0)
    }

    fn together(one: &str, two: &str) -> Option<String> {
        super::both(&rule(one), &rule(two)).map(|rule| rule.to_string())
    }

    #[test]
    fn terms_are_added_once_and_ports_are_intersected() {
        assert_eq!(together("any", "udp dport 9"), Some("udp dport 9".to_owned()));
        assert_eq!(together("udp dport 9", "any"), Some("udp dport 9".to_owned()));
        assert_eq!(together("udp dport 5-9", "udp dport 7-12"), Some("udp dport 7-9".to_owned()));
        let addressed = Some("udp dport 9 and ip dst 10.0.0.1".to_owned());
        assert_eq!(together("udp dport 9", "udp dport 1-99 and ip dst 10.0.0.1"), addressed);
        assert_eq!(together("udp dport 9 and ip dst 10.0.0.1", "ip dst 10.0.0.1"), addressed);
    }

    #[test]
    fn contradictions_leave_nothing() {
        for (one, two) in [("udp", "tcp"), ("udp dport 1-5", "udp dport 6"), ("ip src 10.0.0.1", "ip6")] {
            assert_eq!(together(one, two), None, "{one} and {two}");
        }
    }
}
