//! Configuration: a file, overridden by the command line, and checked once. A [`Config`] is valid.
//!
//! * `file`: the file; `machine`: its section `[machine]`; `parse`: all errors of its lines.
//! * `nic`: the NIC to serve.
//! * `topology`: cores of each NUMA node.
//! * `limits`: checks of sizes, limits and cores.
//! * `error`: errors in a configuration.

mod cores;
mod error;
mod file;
mod limits;
mod machine;
mod nic;
mod parse;
mod topology;

use std::path::PathBuf;

use spin_abi::control::{Compat, DEFAULT_SOCKET, Engine, Schedule};
use spin_abi::map::Machine;

use crate::control::endpoint::Endpoint;
use crate::control::policy::Policy;
use crate::cores::units::PlannedWorker;
use crate::settings::{Idle, Limits, Mode, Sizes};

pub use cores::CoreList;
pub use error::{ConfigError, ConfigErrors, ContextError};
pub use file::{File, Preset, StaticContext, XdpMode};
pub use machine::MachineSizes;
pub(crate) use machine::max_image_size;
pub use nic::Nic;
pub use topology::Topology;

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file that it was read from, if there is one.
    pub file: Option<PathBuf>,
    /// The NIC.
    pub nic: Nic,
    /// The machine handlers see.
    pub machine: Machine,
    /// Execution engine for handlers.
    pub engine: Engine,
    /// Default message rules of contexts with FPsPIN's handlers.
    pub compat: Compat,
    /// Whether handlers may run in the kernel's XDP hook.
    pub kernel_tier: bool,
    /// Path of the control socket.
    pub socket: PathBuf,
    /// Folder of persistent contexts. `None`: the default.
    pub state: Option<PathBuf>,
    /// Account that spind runs as once its NIC is open, if root starts it.
    pub user: Option<String>,
    /// File mode of the control socket.
    pub socket_mode: u32,
    /// Address to serve metrics on.
    pub metrics: Option<Endpoint>,
    /// Whether `/tmp/perf-PID.map` names translated handlers for `perf`.
    pub perf_map: bool,
    /// Behaviour without waiting packets.
    pub idle: Idle,
    /// Attachment of the XDP program.
    pub xdp_mode: XdpMode,
    /// Cores of the engine's threads. Empty: one thread on any core.
    pub cores: Vec<usize>,
    /// The threads that run handlers, with their units.
    pub workers: Vec<PlannedWorker>,
    /// The core of the machine that the first thread runs on, if it only receives or has a core.
    pub first_core: Option<usize>,
    /// Division of work between these threads.
    pub mode: Mode,
    /// Pipeline mode: the receiving core's share of the messages, in percent of another core's share.
    pub local_share: u32,
    /// Scheduling policy between contexts.
    pub schedule: Schedule,
    /// Sizes of each thread's tables.
    pub sizes: Sizes,
    /// Limits for applications.
    pub limits: Limits,
    /// What ordinary users may match and send.
    pub policy: Policy,
    /// Contexts installed at start.
    pub contexts: Vec<StaticContext>,
}

impl TryFrom<File> for Config {
    type Error = ConfigErrors;

    /// Checks everything, so that all errors are known at once.
    fn try_from(file: File) -> Result<Self, ConfigErrors> {
        let mut errors = ConfigErrors { file: file.path.clone(), ..ConfigErrors::default() };
        let nic = errors.keep(match (file.iface, file.nic) {
            (Some(iface), None) => Ok(Nic::Interface(iface)),
            (None, Some(nic)) => nic.parse(),
            (None, None) => Err(ConfigError::NoNic),
            (Some(iface), Some(nic)) => Err(ConfigError::TwoNics { iface, nic }),
        });
        let machine = errors.keep(file.machine.over(file.preset.unwrap_or(Preset::Pspin).machine()));
        let local_share = errors.keep(limits::local_share(file.local_share));
        let topology = errors.keep(file.topology.as_deref().map_or_else(|| Ok(Topology::of_machine()), Topology::read));
        let mut planned = None;
        if let (Some(nic), Some(machine), Some(local_share), Some(topology)) = (&nic, &machine, local_share, &topology)
        {
            let (cores, mode) = (&file.cores, file.mode);
            let checked = limits::check_cores(cores, mode, local_share, nic, topology);
            let workers =
                checked.and_then(|()| limits::workers(cores, mode, local_share, machine, (topology, file.units)));
            planned = errors.keep(workers.map(|workers| (workers, limits::first_core(cores, topology))));
        }
        errors.errors.extend(limits::check_sizes(&file.sizes));
        errors.errors.extend(limits::check_limits(&file.limits));
        let socket_mode = errors.keep(file.socket_mode.map_or(Ok(0o660), |text| octal(&text)));
        let metrics = errors.keep(file.metrics.map(|text| text.parse::<Endpoint>()).transpose());
        let policy =
            Policy::new(file.policy).map_err(|wrong| errors.errors.extend(wrong.into_iter().map(ConfigError::from)));
        let checked = nic.zip(machine).zip(local_share.zip(socket_mode)).zip(metrics.zip(policy.ok())).zip(planned);
        let Some(((((nic, machine), (local_share, socket_mode)), (metrics, policy)), (workers, first_core))) =
            checked.filter(|_| errors.errors.is_empty())
        else {
            return Err(errors);
        };
        Ok(Self {
            file: file.path,
            nic,
            machine,
            engine: file.engine.unwrap_or_default(),
            compat: file.compat.unwrap_or_default(),
            kernel_tier: file.kernel_tier,
            socket: file.socket.unwrap_or_else(|| DEFAULT_SOCKET.into()),
            state: file.state,
            user: file.user,
            socket_mode,
            metrics,
            perf_map: file.perf_map,
            idle: file.idle.unwrap_or_default(),
            xdp_mode: file.xdp_mode.unwrap_or(XdpMode::Auto),
            cores: file.cores,
            workers,
            first_core,
            mode: file.mode,
            local_share,
            schedule: file.schedule.unwrap_or_default(),
            sizes: file.sizes,
            limits: file.limits,
            policy,
            contexts: file.context,
        })
    }
}

fn octal(text: &str) -> Result<u32, ConfigError> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| ConfigError::BadMode(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{Config, ConfigError, ConfigErrors, File, Nic, XdpMode};
    use crate::control::endpoint::Endpoint;
    use crate::cores::units::count_units;
    use crate::settings::{Idle, Limits, Mode};
    use spin_abi::control::{Engine, Placement, Tier};
    use spin_abi::map::Machine;

    /// The configuration, or the first error.
    fn config(text: &str) -> Result<Config, ConfigError> {
        let file = toml::from_str::<File>(text).expect("parses");
        Config::try_from(file).map_err(|ConfigErrors { mut errors, .. }| errors.remove(0))
    }

    #[test]
    fn all_errors_come_at_once_each_with_value_and_bound() {
        let file =
            "local_share = 101\nsocket_mode = '9'\n[sizes]\nqueues = 0\n[limits]\ncontexts = 3000\nconnections = 0";
        let errors = Config::try_from(toml::from_str::<File>(file).expect("parses")).expect_err("wrong").to_string();
        let lines: Vec<_> = errors.lines().collect();
        for (line, parts) in lines.iter().zip([
            ["no NIC", "--iface"],
            ["local_share 101", "100"],
            ["sizes.queues is 0", "give 1 to 1048576"],
            ["limits.connections is 0", "give at least 1"],
            ["limits.contexts is 3000", "give 1 to 1024"],
            ["socket_mode \"9\"", "0660"],
        ]) {
            assert!(parts.iter().all(|part| line.contains(part)), "{line}");
        }
        assert_eq!(lines.len(), 6, "{errors}");
    }

    #[test]
    fn sizes_and_cores_read_as_on_the_command_line() {
        let text = "iface = 'a'\ncores = '0-1'\n[machine]\nl1_size = '512K'\n[limits]\nhost_mem = '1G'\n\
                    [[context]]\nimage = 'a'\nrules = ['udp']\nhost_mem = '64M'\nscratchpad = 4096";
        let config = config(text).unwrap();
        assert_eq!((config.cores, config.machine.l1_size, config.limits.host_mem), (vec![0, 1], 512 << 10, 1 << 30));
        let install = &config.contexts[0].install;
        assert_eq!((install.host_mem, install.scratchpad), (64 << 20, 4096));
        for bad in
            ["[machine]\nl1_size = '512Q'", "cores = '1-'", "[[context]]\nimage = 'a'\nrules = []\nhost_mem = 'much'"]
        {
            assert!(toml::from_str::<File>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_whole_file() {
        let config = config(
            r#"
            iface = "eth0"
            preset = "fpspin"
            engine = "check"
            kernel_tier = true
            socket = "/tmp/s"
            [limits]
            contexts = 3
            [[context]]
            image = "/opt/echo.elf"
            name = "echo"
            rules = ["icmp echo"]
            placement = "home"
            tier = "auto"
            "#,
        )
        .unwrap();
        assert_eq!(config.nic, Nic::Interface("eth0".into()));
        assert_eq!(config.machine, Machine::FPSPIN);
        assert_eq!(config.limits.contexts, 3);
        assert_eq!(config.limits.connections, 32, "defaults fill in");
        assert_eq!(config.contexts[0].install.rules, ["icmp echo"]);
        assert_eq!(config.contexts[0].install.placement, Placement::Home);
        assert_eq!((config.contexts[0].install.tier, config.kernel_tier), (Tier::Auto, true));
        assert_eq!(config.engine, Engine::Check);
    }

    #[test]
    fn the_sample_is_valid_and_shows_the_defaults() {
        let config = config(include_str!("../../../../deploy/spind.toml")).unwrap();
        assert_eq!(config.limits, Limits::default());
        assert_eq!(config.machine, Machine::PSPIN);
        assert_eq!((config.idle, config.xdp_mode, config.socket_mode), (Idle::Adaptive, XdpMode::Auto, 0o660));
        assert_eq!((config.engine, config.local_share), (Engine::Jit, 75));
        assert_eq!((config.perf_map, config.kernel_tier), (false, false));
        assert_eq!(config.contexts.len(), 2);
    }

    #[test]
    fn nics() {
        assert!(matches!(config(""), Err(ConfigError::NoNic)));
        assert!(matches!(config("iface='a'\nnic='loopback'"), Err(ConfigError::TwoNics { .. })));
        assert_eq!("pcap:a,b".parse::<Nic>().unwrap(), Nic::Pcap { input: "a".into(), output: "b".into() });
        for bad in ["pcap:", "pcap:a", "pcap:a,", "pcap:,b", "eth0", ""] {
            assert!(bad.parse::<Nic>().is_err(), "{bad}");
        }
    }

    #[test]
    fn metrics_are_served_where_it_says() {
        assert_eq!(config("nic = 'loopback'").unwrap().metrics, None);
        let unix = config("nic = 'loopback'\nmetrics = 'unix:/run/m'").unwrap().metrics;
        assert_eq!(unix, Some(Endpoint::Unix("/run/m".into())));
        assert!(matches!(config("nic = 'loopback'\nmetrics = 'lo:1'"), Err(ConfigError::Metrics(_))));
    }

    #[test]
    fn misspelt_keys_are_refused() {
        assert!(toml::from_str::<File>("ifacce = 'eth0'").is_err());
        assert!(toml::from_str::<File>("[limits]\ncontext = 3").is_err());
        assert!(toml::from_str::<File>("engine = 'steam'").is_err());
        let context = |keys: &str| toml::from_str::<File>(&format!("[[context]]\n{keys}"));
        let known = context("image = 'a.elf'\nrules = ['udp']\nwatchdog_us = 7").expect("all of it is known");
        assert_eq!((known.context[0].image.to_str(), known.context[0].install.watchdog_us), (Some("a.elf"), Some(7)));
        for (keys, named) in [
            ("image = 'a.elf'\nisolatoin = 'message'", "isolatoin"),
            ("rules = ['udp']", "image"),
            ("image = 'a.elf'\nreplaces = 'b'", "replaces is for contexts of applications"),
            ("image = 'a.elf'\nlifetime = 'daemon'", "lifetime is for"),
        ] {
            let refused = context(keys).expect_err("nobody knows that").to_string();
            assert!(refused.contains(named), "{refused}");
        }
    }

    #[test]
    fn each_thread_has_a_core_and_a_cluster() {
        assert_eq!(config("iface = 'a'\ncores = [1, 0]").unwrap().cores, [1, 0]);
        assert!(matches!(config("iface = 'a'\ncores = [1, 1]"), Err(ConfigError::SameCore(1))));
        let units = |text: &str| config(&format!("iface = 'a'\n{text}")).map(|config| count_units(&config.workers));
        assert_eq!(units("cores = '0-3'").unwrap(), 1);
        assert_eq!(units("cores = '0-63'").unwrap(), 16);
        assert_eq!(units("cores = '0-3'\nunits = 4").unwrap(), 4);
        assert!(matches!(units("cores = '0-4'\nunits = 1"), Err(ConfigError::Units(_))));
        assert!(matches!(units("cores = '0-1024'"), Err(ConfigError::ManyCores { cores: 1025, most: 1024 })));
        assert!(matches!(units("topology = '/nowhere'"), Err(ConfigError::Topology { .. })));
        assert_eq!(config("nic = 'loopback'\ncores = [0, 1]").unwrap().cores, [0, 1]);
        for one_queue in ["pcap:a,b'", "loopback'\nmode = 'pipeline'"] {
            assert!(matches!(config(&format!("nic = '{one_queue}\ncores = [0, 1]")), Err(ConfigError::OneQueue(2))));
        }
        let pipeline =
            |cores: &str| config(&format!("iface = 'a'\nmode = 'pipeline'\nlocal_share = 0\ncores = {cores}"));
        assert!(matches!(pipeline("[0]"), Err(ConfigError::FewCores(1))));
        assert_eq!(pipeline("[0, 1, 2, 3, 4]").unwrap().mode, Mode::Pipeline);
        assert_eq!(count_units(&pipeline("[0, 1, 2, 3, 4]").unwrap().workers), 1);
        assert_eq!(count_units(&pipeline("[0, 1, 2, 3, 4, 5]").unwrap().workers), 2);
        // `spread` was the word for a pipeline whose first core also runs handlers, before that became the default.
        for word in ["pipeline", "spread"] {
            let shared = |cores: &str| config(&format!("iface = 'a'\nmode = '{word}'\ncores = {cores}"));
            assert!(matches!(shared("[0]"), Err(ConfigError::FewCores(1))));
            let Config { mode, local_share, .. } = shared("[0, 1]").unwrap();
            assert_eq!((mode, local_share), (Mode::Pipeline, 75));
            assert_eq!(count_units(&shared("[0, 1, 2, 3, 4]").unwrap().workers), 2);
        }
        let refused = config("iface = 'a'\nmode = 'pipeline'\nlocal_share = 101\ncores = [0, 1]");
        assert!(matches!(refused, Err(ConfigError::LocalShare(101))));
    }

    #[test]
    fn sizes_have_bounds() {
        assert_eq!(config("nic = 'loopback'\n[sizes]\nqueues = 4096").unwrap().sizes.queues, 4096);
        let from_one = ["queues = 0", "hers = 0", "queues = 2000000"].map(|bad| (bad, "give 1 to 1048576"));
        let copied = ["dma_chunk = 63", "dma_chunk = 2000000"].map(|bad| (bad, "give 64 to 1048576"));
        for (bad, bounds) in from_one.into_iter().chain(copied) {
            let refused = config(&format!("nic = 'loopback'\n[sizes]\n{bad}")).unwrap_err().to_string();
            assert!(refused.contains(bounds), "{refused}");
        }
    }

    #[test]
    fn a_machine_of_other_sizes() {
        let text = "nic = 'loopback'\npreset = 'fpspin'\n[machine]\nclusters = 1\nl1_size = 0x8_0000";
        assert_eq!(config(text).unwrap().machine, Machine { clusters: 1, l1_size: 0x8_0000, ..Machine::FPSPIN });
        let refused = config("nic = 'loopback'\n[machine]\nl1_size = 5000").unwrap_err().to_string();
        assert_eq!(refused, "machine.l1_size 0x1388: a multiple of 4096 (a page), such as 0x1000");
        let refused = config("nic = 'loopback'\n[machine]\nl1_size = 1").unwrap_err().to_string();
        assert!(refused.ends_with("such as 0x1000"), "{refused}");
        let two = config("iface = 'a'\ncores = [0, 1]\n[machine]\nclusters = 1").unwrap();
        assert_eq!(two.workers.iter().map(|worker| worker.part.unit).collect::<Vec<_>>(), [0, 1]);
        assert!(toml::from_str::<File>("[machine]\nl3_size = 1").is_err());
    }

    #[test]
    fn limits_that_let_nothing_run_are_refused() {
        for limit in ["watchdog_us", "instruction_limit"] {
            let refused = config(&format!("nic = 'loopback'\n[limits]\n{limit} = 0")).unwrap_err().to_string();
            assert!(refused.contains(limit), "{refused}");
        }
        for limit in ["contexts", "connections"] {
            let refused = config(&format!("nic = 'loopback'\n[limits]\n{limit} = 0")).unwrap_err().to_string();
            assert_eq!(refused, format!("limits.{limit} is 0: no application could have any, so give at least 1"));
        }
        let refused = config("nic = 'loopback'\n[limits]\ncontexts = 1025").unwrap_err().to_string();
        assert!(refused.contains("limits.contexts is 1025: give 1 to 1024"), "{refused}");
        let refused = config("nic = 'loopback'\n[limits]\nwatchdog_us = 9223372036854775807").unwrap_err().to_string();
        assert!(refused.contains("give at most 3600000000"), "{refused}");
    }
}
