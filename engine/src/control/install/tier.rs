//! The tier of a context: whether its handlers run in the kernel's XDP hook or in user space.

use spin_abi::control::{Tier, TierInfo};

use crate::control::policy::grant::Grant;
use crate::install::InstallError;
use crate::install::error::TierRefusal;

/// Whether to try the hook for a context of this user. False: user space was requested. `switch`: whether the daemon's kernel tier
/// is on.
///
/// # Errors
/// The kernel tier is off, or not allowed to the user. [`settle`] says what that means for the context.
pub(super) fn decide(requested: Tier, switch: bool, grant: &Grant) -> Result<bool, TierRefusal> {
    match requested {
        Tier::User => Ok(false),
        Tier::Auto | Tier::Kernel if !switch => Err(TierRefusal::Off),
        Tier::Auto | Tier::Kernel if !grant.may_use_kernel_tier() => Err(TierRefusal::Policy(grant.uid())),
        Tier::Auto | Tier::Kernel => Ok(true),
    }
}

/// The tier to show for a context, from what it has in the hook, or why it has nothing there. `None`: user space was requested.
///
/// # Errors
/// [`InstallError::Tier`], if `kernel` was requested.
pub(super) fn settle<T>(
    requested: Tier,
    in_hook: Result<Option<T>, TierRefusal>,
) -> Result<(Option<TierInfo>, Option<T>), InstallError> {
    match in_hook {
        Err(refusal) if requested == Tier::Kernel => Err(InstallError::Tier(refusal)),
        Err(refusal) => Ok((Some(TierInfo { kernel: false, reason: refusal.to_string() }), None)),
        Ok(Some(there)) => Ok((Some(TierInfo { kernel: true, reason: String::new() }), Some(there))),
        Ok(None) => Ok((None, None)),
    }
}

/// What the user should know of a context that runs in user space although the hook was wanted.
pub(super) fn note(TierInfo { kernel, reason }: &TierInfo) -> Option<String> {
    (!kernel).then(|| format!("its handlers run in user space: {reason}"))
}

#[cfg(test)]
mod tests {
    use spin_abi::control::{Tier, TierInfo};

    use super::{decide, settle};
    use crate::control::policy::Policy;
    use crate::control::policy::grant::Grant;
    use crate::control::policy::host::Host;
    use crate::control::policy::section::{Keys, Section};
    use crate::install::error::TierRefusal;

    const ROOT: Grant = Grant::Administrator { uid: 0 };

    /// Grants of an ordinary user whom the policy does not allow the hook, and of one whom it does.
    fn users() -> [Grant; 2] {
        let allowed = Keys { kernel_tier: Some(true), ..Keys::default() };
        let section = Section { user: [("4000000".to_owned(), allowed)].into(), ..Section::default() };
        let policy = Policy::new(section).expect("a policy");
        [4_000_001, 4_000_000].map(|uid| policy.grant(uid, uid, &Host::Absent))
    }

    #[test]
    fn the_hook_needs_the_switch_and_for_ordinary_users_the_policy() {
        let [user, allowed] = users();
        for (grant, with_switch) in
            [(&ROOT, Ok(true)), (&allowed, Ok(true)), (&user, Err(TierRefusal::Policy(4_000_001)))]
        {
            for requested in [Tier::Auto, Tier::Kernel] {
                assert_eq!(decide(requested, false, grant), Err(TierRefusal::Off), "{requested}, {grant:?}");
                assert_eq!(decide(requested, true, grant), with_switch, "{requested}, {grant:?}");
            }
            assert_eq!([false, true].map(|switch| decide(Tier::User, switch, grant)), [Ok(false), Ok(false)]);
        }
    }

    #[test]
    fn a_refusal_ends_the_install_for_kernel_alone() {
        let settled = |requested, in_hook: Result<Option<()>, TierRefusal>| {
            let settled = settle(requested, in_hook).map_err(|error| error.to_string());
            settled.map(|(tier, in_hook)| {
                assert_eq!(in_hook.is_some(), tier.as_ref().is_some_and(|tier| tier.kernel));
                tier
            })
        };
        let shown = |kernel, reason: &str| Ok(Some(TierInfo { kernel, reason: reason.to_owned() }));
        let reason = "the kernel tier is off (`kernel_tier = true` in spind's configuration turns it on)";
        assert_eq!(settled(Tier::Kernel, Err(TierRefusal::Off)), Err(format!("tier kernel: {reason}")));
        assert_eq!(settled(Tier::Auto, Err(TierRefusal::Off)), shown(false, reason));
        let refused = settled(Tier::Kernel, Err(TierRefusal::Policy(7))).expect_err("not allowed");
        assert!(refused.contains("kernel_tier = true in [policy.user.7]"), "{refused}");
        for requested in [Tier::Auto, Tier::Kernel] {
            assert_eq!(settled(requested, Ok(Some(()))), shown(true, ""));
        }
        assert_eq!(settled(Tier::User, Ok(None)), Ok(None));
    }
}
