//! The cores of each NUMA node: the machine's, or those of a description.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::cores::CoreList;
use super::error::ConfigError;

/// The machine's nodes.
const NODES: &str = "/sys/devices/system/node";

/// NUMA nodes and their cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Cores by node, in the order of nodes.
    nodes: Vec<(u32, Vec<usize>)>,
    /// Whether it describes another machine: its cores are then divided between those of this one.
    described: bool,
}

/// The file of a description.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Cores of each node, such as `"0-31"`.
    nodes: Vec<String>,
}

impl Topology {
    /// The topology of this machine. Without NUMA, all cores are on node 0.
    #[must_use]
    pub fn of_machine() -> Self {
        let node = |entry: fs::DirEntry| {
            let number = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            let CoreList(cores) = fs::read_to_string(entry.path().join("cpulist")).ok()?.trim().parse().ok()?;
            Some((number, cores))
        };
        let mut nodes: Vec<(u32, Vec<usize>)> =
            fs::read_dir(NODES).into_iter().flatten().flatten().filter_map(node).collect();
        nodes.sort_unstable_by_key(|(number, _)| *number);
        Self { nodes, described: false }
    }

    /// Reads a description: `nodes = ["0-31", "32-63"]`.
    ///
    /// # Errors
    /// [`ConfigError::Topology`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let error = |cause: String| ConfigError::Topology { path: path.to_owned(), cause };
        let text = fs::read_to_string(path).map_err(|cause| error(cause.to_string()))?;
        Self::parse(&text).map_err(error)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let File { nodes } = toml::from_str(text).map_err(|cause| cause.message().to_owned())?;
        let mut all = Vec::new();
        for (number, cores) in (0..).zip(nodes) {
            let CoreList(cores) = cores.parse().map_err(|cause| format!("node {number}: {cause}"))?;
            all.push((number, cores));
        }
        let mut cores: Vec<_> = all.iter().flat_map(|(_, cores)| cores.iter().copied()).collect();
        cores.sort_unstable();
        match cores.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("core {} is in two nodes", pair[0])),
            None if cores.is_empty() => Err("it has no nodes: nodes = [\"0-3\", \"4-7\"]".to_owned()),
            None => Ok(Self { nodes: all, described: true }),
        }
    }

    /// The node of a core. `None`: a description does not have that core.
    #[must_use]
    pub fn node(&self, core: usize) -> Option<u32> {
        let found = self.nodes.iter().find(|(_, cores)| cores.contains(&core));
        found.map(|(node, _)| *node).or_else(|| (!self.described).then_some(0))
    }

    /// The core of this machine, among `available`, that stands for a core. Cores of a description share them.
    #[must_use]
    pub fn on_machine(&self, core: usize, available: &[usize]) -> usize {
        if !self.described || available.is_empty() || available.contains(&core) {
            return core;
        }
        available[core % available.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::Topology;

    #[test]
    fn cores_have_the_nodes_that_a_description_gives_them() {
        let topology = Topology::parse("nodes = ['0-3,8', '4-7']").expect("fine");
        assert_eq!([0, 8, 4, 7, 9].map(|core| topology.node(core)), [Some(0), Some(0), Some(1), Some(1), None]);
        assert_eq!([0, 1, 2, 7].map(|core| topology.on_machine(core, &[0, 1])), [0, 1, 0, 1]);
    }

    #[test]
    fn descriptions_that_are_none_are_refused_with_their_fault() {
        for (text, part) in [
            ("nodes = ['0-3', '3-4']", "core 3 is in two nodes"),
            ("nodes = []", "no nodes"),
            ("nodes = ['x']", "node 0: \"x\" is not a list"),
            ("cores = 3", "unknown field"),
            ("nodes", "expected"),
        ] {
            let error = Topology::parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn each_core_of_this_machine_has_a_node_and_stands_for_itself() {
        let topology = Topology::of_machine();
        assert!((0..4096).all(|core| topology.node(core).is_some() && topology.on_machine(core, &[0]) == core));
    }
}
