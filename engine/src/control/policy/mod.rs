//! What ordinary users may match and send. Root and the user who started spind are administrators, who may do everything.
//!
//! An ordinary user's rule has to name a destination port that the policy allows. It is narrowed to packets for the host's addresses,
//! and a bound socket of that user holds the port while the context lives. An administrator may allow other rules.
//!
//! * `section`: the section `[policy]` of the configuration; `error`: errors in it, and refusals.
//! * `ranges`: ports as text.
//! * `grant`: what one user may do; here a policy is narrowed to that.
//! * `host`: the host of the served interface.

pub mod error;
pub mod grant;
pub mod host;
pub mod ranges;
pub mod section;

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use nix::unistd::{Gid, Group, Uid, User as Account, getgrouplist};
use spin_matcher::Rules;

use crate::sched::scheduler::MOST_WEIGHT;
use error::SectionError;
use grant::{Grant, Line, UserGrant};
use host::Host;
use ranges::PortRange;
use section::{Keys, Section, Send};

/// Checked keys of a user, a group, or of all users.
#[derive(Clone, Debug, Default)]
struct Checked {
    ports: Option<Line<Vec<PortRange>>>,
    rules: Option<Line<Rules>>,
    send: Option<Send>,
    weight: Option<u32>,
    kernel_tier: Option<bool>,
}

/// A checked section `[policy]`.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The user who started spind.
    owner: u32,
    all: Checked,
    users: HashMap<u32, Checked>,
    /// In the order of their names.
    groups: Vec<(u32, Checked)>,
}

impl Policy {
    /// Checks a section.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn new(section: Section) -> Result<Self, Vec<SectionError>> {
        let Section { ports, rules, send, weight, kernel_tier, user, group } = section;
        let mut errors = Vec::new();
        let all = check("policy", Keys { ports, rules, send, weight, kernel_tier }, &mut errors);
        let mut policy = Self { owner: rustix::process::getuid().as_raw(), all, ..Self::default() };
        for (name, keys) in user {
            let line = format!("policy.user.{name}");
            let checked = check(&line, keys, &mut errors);
            match user_id(&name) {
                Some(uid) => drop(policy.users.insert(uid, checked)),
                None => errors.push(SectionError::Nobody { line, kind: "user" }),
            }
        }
        for (name, keys) in group {
            let line = format!("policy.group.{name}");
            let checked = check(&line, keys, &mut errors);
            match group_id(&name) {
                Some(gid) => policy.groups.push((gid, checked)),
                None => errors.push(SectionError::Nobody { line, kind: "group" }),
            }
        }
        if errors.is_empty() { Ok(policy) } else { Err(errors) }
    }

    /// This policy with the owner of another. The process may have another user by now.
    #[must_use]
    pub fn with_owner_of(self, other: &Self) -> Self {
        Self { owner: other.owner, ..self }
    }

    /// What a user may do at a host. Each key comes from the user's section, else from the first one of the user's groups that has it,
    /// else from `[policy]`.
    #[must_use]
    pub fn grant(&self, uid: u32, gid: u32, host: &Host) -> Grant {
        if uid == 0 || uid == self.owner {
            return Grant::Administrator { uid };
        }
        let groups = groups_of(uid, gid);
        let of_groups = self.groups.iter().filter(|(gid, _)| groups.contains(gid)).map(|(_, keys)| keys);
        let sections: Vec<_> = self.users.get(&uid).into_iter().chain(of_groups).chain([&self.all]).collect();
        let default = |key: &str| format!("policy.{key}");
        let ports = sections.iter().find_map(|keys| keys.ports.clone());
        let rules = sections.iter().find_map(|keys| keys.rules.clone());
        Grant::User(Arc::new(UserGrant {
            uid,
            ports: ports.unwrap_or_else(|| Line { name: default("ports"), value: vec![PortRange::Unprivileged] }),
            rules: rules.unwrap_or_else(|| Line { name: default("rules"), value: Rules::default() }),
            send: sections.iter().find_map(|keys| keys.send).unwrap_or_default(),
            weight: sections.iter().find_map(|keys| keys.weight).unwrap_or(1),
            kernel_tier: sections.iter().find_map(|keys| keys.kernel_tier).unwrap_or(false),
            host: host.clone(),
        }))
    }
}

/// Checks the keys of the section `line`.
fn check(line: &str, keys: Keys, errors: &mut Vec<SectionError>) -> Checked {
    let Keys { ports, rules, send, weight, kernel_tier } = keys;
    let name = |key: &str| format!("{line}.{key}");
    let mut keep = |error| errors.push(error);
    let ports = ports.and_then(|texts| {
        let parsed = texts.iter().map(|text| text.parse()).collect::<Result<_, _>>();
        let value = parsed.map_err(|source| keep(SectionError::Ports { line: name("ports"), source })).ok()?;
        Some(Line { name: name("ports"), value })
    });
    let rules = rules.and_then(|texts| {
        let parsed = Rules::parse_list(&texts);
        let value = parsed.map_err(|source| keep(SectionError::Rules { line: name("rules"), source })).ok()?;
        Some(Line { name: name("rules"), value })
    });
    if let Some(weight) = weight.filter(|weight| !(1..=MOST_WEIGHT).contains(weight)) {
        keep(SectionError::Weight { line: name("weight"), weight });
    }
    Checked { ports, rules, send, weight, kernel_tier }
}

fn user_id(name: &str) -> Option<u32> {
    let known = || Account::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    name.parse().ok().or_else(known)
}

fn group_id(name: &str) -> Option<u32> {
    let known = || Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
    name.parse().ok().or_else(known)
}

/// Groups of a user in the user database, and the group of the process that asks.
fn groups_of(uid: u32, gid: u32) -> Vec<u32> {
    let known = || {
        let account = Account::from_uid(Uid::from_raw(uid)).ok()??;
        let name = CString::new(account.name).ok()?;
        getgrouplist(&name, account.gid).ok()
    };
    let listed = known().unwrap_or_default().into_iter().map(Gid::as_raw);
    listed.chain([gid]).collect()
}
