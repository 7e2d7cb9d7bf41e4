//! What one user may do.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use spin_matcher::Rules;
use spin_matcher::conjunction::both;
use spin_matcher::rule::{IpVersion, Prefix, Rule, Side, Term, Transport};
use spin_pspin::hpu::send_rights::{HostAddresses, SendRights, SendSource};

use super::error::PolicyError;
use super::host::Host;
use super::ranges::{PortRange, Unprivileged};
use super::section::Send;
use crate::install::MatchSpec;
use crate::install::ports::Port;

/// Maximum number of ports that a context of an ordinary user takes: each is a socket.
const MAX_PORTS: usize = 64;

/// A value, and the line of the configuration that gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line<T> {
    /// Such as `policy.user.alice.ports`.
    pub(super) name: String,
    /// The value.
    pub(super) value: T,
}

/// What a user may do.
#[derive(Clone, Debug)]
pub enum Grant {
    /// Everything: root, and the user who started spind.
    Administrator {
        /// The user.
        uid: u32,
    },
    /// What the policy says.
    User(Arc<UserGrant>),
}

/// What the policy allows an ordinary user.
#[derive(Clone, Debug)]
pub struct UserGrant {
    pub(super) uid: u32,
    pub(super) ports: Line<Vec<PortRange>>,
    pub(super) rules: Line<Rules>,
    pub(super) send: Send,
    pub(super) weight: u32,
    pub(super) kernel_tier: bool,
    pub(super) host: Host,
}

impl fmt::Display for Line<Vec<PortRange>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports: Vec<_> = self.value.iter().map(ToString::to_string).collect();
        f.write_str(if ports.is_empty() { "none" } else { "" })?;
        f.write_str(&ports.join(", "))
    }
}

impl Grant {
    /// The user.
    #[must_use]
    pub fn uid(&self) -> u32 {
        match self {
            Self::Administrator { uid } => *uid,
            Self::User(user) => user.uid,
        }
    }

    /// The user's share of time and packet buffer, relative to other users.
    #[must_use]
    pub fn weight(&self) -> u32 {
        match self {
            Self::Administrator { .. } => 1,
            Self::User(user) => user.weight,
        }
    }

    /// Whether the user's handlers may run in the kernel's XDP hook, if the daemon's kernel tier is on.
    #[must_use]
    pub fn may_use_kernel_tier(&self) -> bool {
        match self {
            Self::Administrator { .. } => true,
            Self::User(user) => user.kernel_tier,
        }
    }

    /// Narrows rules to what the user may match, and takes their ports. Returns warnings of rules that the policy narrowed, too.
    ///
    /// # Errors
    /// See [`PolicyError`].
    pub fn admit(&self, asked: MatchSpec) -> Result<(MatchSpec, Vec<String>), PolicyError> {
        match self {
            Self::Administrator { .. } => Ok((asked, Vec::new())),
            Self::User(user) => user.admit(asked),
        }
    }
}

/// What the policy leaves of rules.
struct Narrowed {
    rules: Rules,
    ports: Vec<Port>,
    warnings: Vec<String>,
}

impl UserGrant {
    fn admit(&self, asked: MatchSpec) -> Result<(MatchSpec, Vec<String>), PolicyError> {
        let addresses = self.host.addresses()?;
        let local = addresses.as_ref().map(|addresses| &addresses.ip[..]);
        let Narrowed { rules, ports, warnings } = self.narrow(&asked.rules, &self.host.unprivileged(), local)?;
        let send = Some(self.send_rights(&rules, &ports, addresses));
        let lease = self.host.ports().map(|of| of.lease(self.uid, ports)).transpose()?;
        Ok((MatchSpec { rules, ports: lease.map(Arc::new), send, ..asked }, warnings))
    }

    /// What handlers of a context with these rules and ports may send.
    fn send_rights(&self, rules: &Rules, ports: &[Port], addresses: Option<HostAddresses>) -> SendRights {
        let of = |transport| {
            let numbers = ports.iter().filter(move |port| port.transport == transport).map(|port| port.number);
            numbers.map(|number| number..=number).collect()
        };
        let icmp = |version: IpVersion| {
            let term = Term::Protocol { version: Some(version), protocol: version.icmp() };
            let packets = Rule { terms: vec![term] };
            rules.rules.iter().any(|rule| both(rule, &packets).is_some())
        };
        let source = SendSource {
            host: addresses,
            tcp: of(Transport::Tcp),
            udp: of(Transport::Udp),
            icmp: icmp(IpVersion::V4),
            icmp6: icmp(IpVersion::V6),
        };
        match self.send {
            Send::Raw => SendRights::Raw,
            Send::Own => SendRights::own(source),
            Send::Reply => SendRights::reply(source),
        }
    }

    /// Narrows rules: each to the packets of the policy's rules and, if it names allowed ports, to those for `local` addresses.
    /// Without a host there are no addresses.
    fn narrow(
        &self,
        asked: &Rules,
        unprivileged: &Unprivileged,
        local: Option<&[IpAddr]>,
    ) -> Result<Narrowed, PolicyError> {
        let mut all = Narrowed { rules: Rules::default(), ports: Vec::new(), warnings: Vec::new() };
        for rule in &asked.rules {
            let allowed: Vec<_> = self.rules.value.rules.iter().filter_map(|allowed| both(rule, allowed)).collect();
            let at_ports = self.ports_of(rule, unprivileged);
            let local = at_ports.as_ref().map(|_| at_addresses(rule, local)).unwrap_or_default();
            if allowed.is_empty() && local.is_empty() {
                return Err(self.refuse(rule, at_ports.is_some()));
            }
            all.ports.extend(at_ports.into_iter().flatten());
            if all.ports.len() > MAX_PORTS {
                return Err(PolicyError::ManyPorts { rule: rule.to_string(), most: MAX_PORTS });
            }
            let narrower = allowed.iter().filter(|allowed| *allowed != rule);
            let line = &self.rules.name;
            all.warnings.extend(narrower.map(|to| format!("rule `{rule}`: {line} narrows it to `{to}`")));
            all.rules.rules.extend(local.into_iter().chain(allowed));
        }
        Ok(all)
    }

    /// The refusal of a rule. `ports`: it names allowed ports, of other addresses than the host's.
    fn refuse(&self, rule: &Rule, ports: bool) -> PolicyError {
        let rule = rule.to_string();
        if ports {
            return PolicyError::OtherHost(rule);
        }
        let (line, ports) = (self.ports.name.clone(), self.ports.to_string());
        PolicyError::Rule { rule, ports_line: line, ports, user: self.uid }
    }

    /// The ports of a rule, if it names some and the policy allows them.
    fn ports_of(&self, rule: &Rule, unprivileged: &Unprivileged) -> Option<Vec<Port>> {
        rule.terms.iter().find_map(|term| {
            let Term::Port { transport, side: Side::Destination, first, last } = *term else { return None };
            let allows = |range: &PortRange| range.contains(unprivileged, transport, first, last);
            self.ports.value.iter().any(allows).then(|| ports(transport, first, last))
        })
    }
}

/// A rule for packets to these addresses. Without a host it is what it was.
fn at_addresses(rule: &Rule, addresses: Option<&[IpAddr]>) -> Vec<Rule> {
    let Some(addresses) = addresses else { return vec![rule.clone()] };
    addresses.iter().filter_map(|&address| both(rule, &to(address)?)).collect()
}

/// Ports from `first` to `last`. More than a context may take need not be listed.
fn ports(transport: Transport, first: u16, last: u16) -> Vec<Port> {
    (first..=last).map(|number| Port { transport, number }).take(MAX_PORTS + 1).collect()
}

/// The rule of packets to an address.
fn to(address: IpAddr) -> Option<Rule> {
    let prefix = Prefix::new(address, if address.is_ipv4() { 32 } else { 128 }).ok()?;
    Some(Rule { terms: vec![Term::Network { side: Side::Destination, prefix }] })
}

#[cfg(test)]
mod in_kernel;
#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::collection::vec;
    use proptest::prelude::{Just, ProptestConfig, Strategy, prop_assert, prop_assert_eq};
    use proptest::sample::{select, subsequence};
    use proptest::{prop_oneof, proptest};
    use spin_matcher::rule::{Rule, Side, Term, Transport};
    use spin_matcher::testing::{frames, rules, terms};
    use spin_matcher::{Headers, Rules, Table, TableEntry};

    use super::{Host, Line, MatchSpec, Send, SendRights, Unprivileged, UserGrant};

    fn grant(ports: &[&str], rules: Rules) -> UserGrant {
        let ports = ports.iter().map(|text| text.parse().expect("ports")).collect();
        let name = |key: &str| format!("policy.user.alice.{key}");
        UserGrant {
            uid: 7,
            ports: Line { name: name("ports"), value: ports },
            rules: Line { name: name("rules"), value: rules },
            send: Send::Reply,
            weight: 1,
            kernel_tier: false,
            host: Host::Absent,
        }
    }

    /// The rules that are left, or the refusal.
    fn narrow(grant: &UserGrant, text: &str, local: &[&str]) -> Result<String, String> {
        let usual = Unprivileged::new(1024, (32_768, 60_999));
        let local: Vec<IpAddr> = local.iter().map(|text| text.parse().expect("an address")).collect();
        let asked = text.parse().expect("rules");
        let narrowed = grant.narrow(&asked, &usual, Some(&local)).map_err(|refusal| refusal.to_string())?;
        Ok(narrowed.rules.to_string())
    }

    #[test]
    fn by_default_a_rule_names_unprivileged_ports_of_the_host() {
        let grant = grant(&["unprivileged"], Rules::default());
        let narrow = |text: &str| narrow(&grant, text, &["10.0.0.1", "2001:db8::1"]);
        assert_eq!(
            narrow("udp dport 9999"),
            Ok("udp dport 9999 and ip dst 10.0.0.1 or udp dport 9999 and ip6 dst 2001:db8::1".to_owned())
        );
        assert_eq!(
            narrow("ip and tcp dport 9990-9999").expect("its own"),
            "ip and tcp dport 9990-9999 and ip dst 10.0.0.1"
        );
        for text in [
            "any",
            "icmp echo",
            "udp",
            "udp sport 9999",
            "udp dport 53",
            "udp dport 1000-1024",
            "udp dport 40000",
            "ip[9:1] = 17 and l4[2:2] = 9999",
            "udp dport 9999 or any",
        ] {
            let refused = narrow(text).expect_err(text);
            let line = "policy.user.alice.ports (unprivileged)";
            assert!(refused.contains(line) && refused.contains("[policy.user.7]"), "{refused}");
        }
        let refused = narrow("udp dport 9999 and ip dst 10.0.0.2").expect_err("another host's");
        assert!(refused.contains("no packet for an address of this host"), "{refused}");
        let refused = narrow("udp dport 2000-3000").expect_err("many ports");
        assert!(refused.contains("more than 64 ports"), "{refused}");
    }

    #[test]
    fn an_administrator_opens_ports_and_rules() {
        let grant = grant(&["udp 53"], "icmp echo or udp dport 1-99".parse().expect("rules"));
        let narrow = |text: &str| narrow(&grant, text, &["10.0.0.1"]);
        assert_eq!(narrow("udp dport 53").expect("opened"), "udp dport 53 and ip dst 10.0.0.1 or udp dport 53");
        assert_eq!(narrow("any").expect("narrowed"), "icmp echo or udp dport 1-99");
        assert_eq!(narrow("icmp echo").expect("opened"), "icmp echo");
        assert!(narrow("tcp dport 9999").is_err() && narrow("udp dport 9999").is_err());
    }

    /// What handlers of a context with this rule may send.
    fn rights(grant: &UserGrant, rule: &str) -> SendRights {
        let asked = MatchSpec::parse(&[rule.to_owned()], None).expect("a rule");
        let (spec, _) = grant.admit(asked).expect("the user may match that");
        spec.send.expect("a user's rules have rights")
    }

    #[test]
    fn handlers_send_from_ports_of_their_rules_and_icmp_if_they_match_it() {
        let mut grant =
            grant(&["unprivileged", "tcp 80"], "icmp echo or udp dport 1-99 or ip6".parse().expect("rules"));
        let mut source = |send, rule: &str| {
            grant.send = send;
            let (SendRights::Own(source) | SendRights::Reply(source)) = rights(&grant, rule) else {
                panic!("restricted rights: {rule}")
            };
            assert!(source.host.is_none(), "there is no host");
            (source.tcp.clone(), source.udp.clone(), source.icmp, source.icmp6)
        };
        assert_eq!(source(Send::Reply, "udp dport 9998-9999"), (vec![], vec![9998..=9998, 9999..=9999], false, false));
        assert_eq!(source(Send::Own, "tcp dport 80"), (vec![80..=80], vec![], false, false));
        assert_eq!(
            source(Send::Own, "udp dport 9"),
            (vec![], vec![], false, false),
            "the port of the packet that is handled"
        );
        assert_eq!(source(Send::Reply, "icmp echo"), (vec![], vec![], true, false));
        assert_eq!(source(Send::Reply, "any"), (vec![], vec![], true, true));
        grant.send = Send::Reply;
        assert!(matches!(rights(&grant, "any"), SendRights::Reply(_)));
        grant.send = Send::Own;
        assert!(matches!(rights(&grant, "any"), SendRights::Own(_)));
        grant.send = Send::Raw;
        assert!(matches!(rights(&grant, "any"), SendRights::Raw));
    }

    /// Rules of which many name ports.
    fn asked() -> impl Strategy<Value = Rules> {
        let port = (
            select(vec![Transport::Tcp, Transport::Udp]),
            select(vec![(53, 53), (80, 90), (9330, 9339), (9999, 9999)]),
        );
        let port =
            port.prop_map(|(transport, (first, last))| Term::Port { transport, side: Side::Destination, first, last });
        let rule =
            (vec(port, 0..2), vec(terms(), 0..2)).prop_map(|(ports, others)| Rule { terms: [ports, others].concat() });
        vec(rule, 1..3).prop_map(|rules| Rules { rules })
    }

    fn matches(rules: &Rules, frame: &[u8]) -> bool {
        let entry = TableEntry { rules: rules.clone(), ..TableEntry::default() };
        Table::new(&[entry]).expect("few tests").match_frame(frame, &Headers::parse(frame)).is_some()
    }

    /// Destination address, protocol and destination port of a packet with ports.
    fn destination(frame: &[u8]) -> Option<(IpAddr, u8, u16)> {
        let headers = Headers::parse(frame);
        let (ip, l4) = (usize::from(headers.ip?), usize::from(headers.l4?));
        let address = match headers.ip_version {
            4 => IpAddr::from(<[u8; 4]>::try_from(frame.get(ip + 16..ip + 20)?).ok()?),
            _ => IpAddr::from(<[u8; 16]>::try_from(frame.get(ip + 24..ip + 40)?).ok()?),
        };
        let port = frame.get(l4 + 2..l4 + 4)?;
        Some((address, headers.protocol, u16::from_be_bytes([port[0], port[1]])))
    }

    /// Ports of a policy as text, and as the set of protocols and numbers.
    fn port_policies() -> impl Strategy<Value = Vec<(&'static str, u8, (u16, u16))>> {
        let all = vec![
            ("udp 53", 17, (53, 53)),
            ("tcp 80-90", 6, (80, 90)),
            ("udp 9000-9999", 17, (9000, 9999)),
            ("tcp 9330-9999", 6, (9330, 9999)),
        ];
        subsequence(all, 0..=4)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_outside_the_policy_matches_and_nothing_inside_is_lost(
            ports in port_policies(),
            allowed in prop_oneof![Just(Rules::default()), rules()],
            asked in asked(),
            frames in vec(frames(), 1..12),
        ) {
            let texts: Vec<_> = ports.iter().map(|(text, ..)| *text).collect();
            let grant = grant(&texts, allowed.clone());
            let local: [IpAddr; 2] = [[10, 0, 0, 1].into(), "2001:db8::1".parse().expect("an address")];
            let none = Unprivileged::new(u16::MAX, (0, u16::MAX));
            let opens = |protocol, port| ports.iter().any(|&(_, of, (first, last))| of == protocol && first <= port && port <= last);
            let names_ports = |rule: &Rule| rule.terms.iter().any(|term| match *term {
                Term::Port { transport, side: Side::Destination, first, last } => {
                    let protocol = if transport == Transport::Tcp { 6 } else { 17 };
                    // Those of one line: the policies above do not touch each other.
                    (first..=last).all(|port| opens(protocol, port))
                }
                _ => false,
            });
            let Ok(narrowed) = grant.narrow(&asked, &none, Some(&local)) else { return Ok(()) };
            for frame in &frames {
                let is_local = destination(frame).is_some_and(|(address, ..)| local.contains(&address));
                let own = |rule: &Rule| matches(&Rules { rules: vec![rule.clone()] }, frame);
                let expected = asked.rules.iter().any(|rule| own(rule) && (matches(&allowed, frame) || is_local && names_ports(rule)));
                prop_assert_eq!(matches(&narrowed.rules, frame), expected, "{} -> {}", asked, narrowed.rules);
                if expected && !matches(&allowed, frame) {
                    let (address, protocol, port) = destination(frame).expect("it has ports");
                    prop_assert!(local.contains(&address) && opens(protocol, port), "{} {} {}", address, protocol, port);
                }
            }
        }
    }
}
