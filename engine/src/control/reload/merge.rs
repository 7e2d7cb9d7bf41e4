//! A configuration that is read again while spind runs: which settings it changes, and which only a restart changes.

use crate::control::config::Config;
use crate::settings::Limits;

/// The configuration `old` with those settings of `new` that can change while spind runs. Also the names of the others that differ.
#[must_use]
pub fn merge(old: &Config, new: Config) -> (Config, Vec<&'static str>) {
    let Config { machine, engine, compat, kernel_tier, socket, state, user, socket_mode, .. } = old;
    let Config { metrics, perf_map, idle, xdp_mode, cores, mode, local_share, schedule, sizes, .. } = old;
    let Limits { memory, user_memory, .. } = old.limits;
    let differ = [
        ("iface or nic", new.nic != old.nic),
        ("preset or machine", new.machine != *machine),
        ("engine", new.engine != *engine),
        ("compat", new.compat != *compat),
        ("kernel_tier", new.kernel_tier != *kernel_tier),
        ("socket", new.socket != *socket),
        ("state", new.state != *state),
        ("user", new.user != *user),
        ("socket_mode", new.socket_mode != *socket_mode),
        ("metrics", new.metrics != *metrics),
        ("perf_map", new.perf_map != *perf_map),
        ("idle", new.idle != *idle),
        ("xdp_mode", new.xdp_mode != *xdp_mode),
        ("cores", new.cores != *cores),
        ("mode", new.mode != *mode),
        ("local_share", new.local_share != *local_share),
        ("schedule", new.schedule != *schedule),
        ("sizes", new.sizes != *sizes),
        ("limits.memory", new.limits.memory != memory),
        ("limits.user_memory", new.limits.user_memory != user_memory),
    ];
    let differ = differ.into_iter().filter_map(|(name, differs)| differs.then_some(name)).collect();
    let limits = Limits { memory, user_memory, ..new.limits };
    let policy = new.policy.with_owner_of(&old.policy);
    (Config { limits, policy, contexts: new.contexts, ..old.clone() }, differ)
}

#[cfg(test)]
mod tests {
    use super::{Config, merge};
    use crate::control::config::File;

    fn config(text: &str) -> Config {
        Config::try_from(toml::from_str::<File>(text).expect("it parses")).expect("a valid configuration")
    }

    #[test]
    fn contexts_policy_and_limits_change_and_all_else_is_named() {
        let old = config("iface = 'a'");
        let (same, names) = merge(&old, config("iface = 'a'"));
        assert!(names.is_empty() && same.contexts.is_empty());
        let text = "iface = 'b'\npreset = 'fpspin'\nengine = 'interp'\ncompat = 'fpspin'\nkernel_tier = true\nsocket = '/s'\nstate = '/d'\nuser = 'u'\n\
                    socket_mode = '0600'\nmetrics = 'unix:/m'\nperf_map = true\nidle = 'spin'\nxdp_mode = 'generic'\ncores = [0, 1]\n\
                    mode = 'pipeline'\nlocal_share = 1\nschedule = 'weighted'\n[sizes]\nhers = 1\n[limits]\ncontexts = 7\n\
                    memory = 1\nuser_memory = 1\n[[context]]\nimage = 'i'\nrules = ['udp']\n";
        let (merged, names) = merge(&old, config(text));
        assert_eq!((merged.limits.contexts, merged.limits.memory, merged.contexts.len()), (7, None, 1));
        let keys = "iface or nic, preset or machine, engine, compat, kernel_tier, socket, state, user, socket_mode, metrics, perf_map, idle, xdp_mode, cores, mode, \
                    local_share, schedule, sizes, limits.memory, limits.user_memory";
        assert_eq!(names.join(", "), keys);
        let (again, none) = merge(&merged, Config { contexts: Vec::new(), ..merged.clone() });
        assert_eq!((again.contexts.len(), none.len(), again.nic), (0, 0, old.nic), "nothing of the others was applied");
    }
}
