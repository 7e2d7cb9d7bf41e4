//! Rules and contexts of one user are bounded, so that other users have room.

mod common;

use common::{Kind, Lab, ROOT, rule};
use spin_abi::control::Install;
use spin_engine::control::policy::Policy;
use spin_engine::control::policy::host::Host;
use spin_engine::control::policy::section::Section;
use spin_engine::install::{InstallError, MatchSpec, User};

/// Four tests that are not exact.
fn listed(number: usize) -> Install {
    rule(&format!("udp dport {} and ip dst 10.0.0.1 and payload[0:1] = 1", 1000 + number))
}

fn install(lab: &mut Lab, install: Install, user: User) -> Result<u32, InstallError> {
    lab.try_install(&spin_handlers::image("empty", &[]), install, user).map(|(id, _)| id)
}

#[test]
fn a_users_tests_are_bounded_and_exact_rules_take_none() {
    let mut lab = Lab::new(Kind::Interp);
    let user = User(1000);
    let ids: Vec<_> = (0..16).map(|number| install(&mut lab, listed(number), user).expect("64 tests in all")).collect();
    let refused = install(&mut lab, rule("udp sport 1"), user).expect_err("66 tests");
    assert!(matches!(refused, InstallError::UserRules { uid: 1000, .. }), "{refused}");
    assert!(refused.to_string().starts_with("rules of user 1000's contexts: 66 tests, at most 64"), "{refused}");
    let exact = install(&mut lab, rule("udp dport 9000-9063 and ip dst 10.0.0.1"), user).expect("no tests");
    let all = Section { rules: Some(vec!["any".to_owned()]), ..Section::default() };
    let grant = Policy::new(all).expect("a policy").grant(user.0, user.0, &Host::Absent);
    let spec =
        |text: &str| grant.admit(MatchSpec::parse(&[text.to_owned()], None).expect("a rule")).expect("allowed").0;
    let refused = lab.engine.set_rules(exact, user, spec("udp sport 1")).expect_err("66 tests");
    assert!(matches!(refused, InstallError::UserRules { .. }), "{refused}");
    lab.engine.set_rules(exact, user, spec("tcp dport 1-2")).expect("no tests");
    install(&mut lab, rule("udp sport 1"), User(1001)).expect("another user's");
    lab.engine.remove(ids[0], user).expect("its own");
    install(&mut lab, rule("udp sport 1"), user).expect("there is room again");
}

#[test]
fn root_may_fill_the_list() {
    let mut lab = Lab::new(Kind::Interp);
    for number in 0..128 {
        install(&mut lab, listed(number), ROOT).expect("512 tests in all");
    }
    let refused = install(&mut lab, rule("udp sport 1"), ROOT).expect_err("514 tests");
    assert!(matches!(refused, InstallError::Table(_)), "{refused}");
}

#[test]
fn a_user_gets_half_of_the_contexts_unless_the_limits_say_otherwise() {
    let mut lab = Lab::new(Kind::Interp);
    lab.limits.contexts = 5;
    let user = User(1000);
    let at = |port: u16| rule(&format!("udp dport {port}"));
    for port in 1..4 {
        install(&mut lab, at(port), user).expect("three of five");
    }
    let refused = install(&mut lab, at(4), user).expect_err("four of five").to_string();
    assert_eq!(refused, "user 1000 has 3 contexts; remove one, or raise limits.user_contexts");
    lab.limits.user_contexts = Some(4);
    install(&mut lab, at(4), user).expect("as the limits say");
    install(&mut lab, at(5), User(1001)).expect("another user's");
    let refused = install(&mut lab, at(6), User(1001)).expect_err("six of five");
    assert!(matches!(refused, InstallError::Full { .. }), "{refused}");
}
