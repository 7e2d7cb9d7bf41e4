//! What figures depend on, and what else the machine did meanwhile.

use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// Processor, kernel and commit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Number of processors.
    pub cores: usize,
    /// Release of the kernel.
    pub kernel: String,
    /// Commit of the sources, with `+` if they were changed.
    pub commit: String,
    /// Date of the run.
    pub date: String,
}

impl Machine {
    /// This machine.
    #[must_use]
    pub fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let said = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success());
            output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let changed = said("git", &["status", "--porcelain"]).is_some_and(|changes| !changes.is_empty());
        let commit = said("git", &["rev-parse", "--short", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
        Self {
            processor: model.map_or_else(|| "unknown".to_owned(), |(_, model)| model.trim().to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            commit: if changed { commit + "+" } else { commit },
            date: said("date", &["--iso-8601=minutes"]).unwrap_or_default(),
        }
    }
}

/// Share of processor time that other machines took, above which a round counts as disturbed.
const STOLEN: f64 = 0.01;

/// Times of all processors, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    total: u64,
    stolen: u64,
    running: u64,
}

impl Load {
    /// The times so far.
    #[must_use]
    pub fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// Parses `/proc/stat` (proc(5)).
    fn parse(stat: &str) -> Self {
        let line = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let times: Vec<u64> = line("cpu ").split_whitespace().filter_map(|time| time.parse().ok()).collect();
        // The times of guests are part of the first two.
        let total = times.iter().take(8).sum();
        let running = line("procs_running ").trim().parse().unwrap_or_default();
        Self { total, stolen: times.get(7).copied().unwrap_or_default(), running }
    }

    /// Whether something else disturbed the time since `before`: another machine, or other programs that were ready to run at
    /// its start, when only this one should have been.
    #[must_use]
    pub fn disturbed_since(self, before: Self) -> bool {
        let total = self.total.saturating_sub(before.total).max(1);
        let stolen = self.stolen.saturating_sub(before.stolen);
        stolen as f64 / total as f64 > STOLEN || before.running > 2
    }
}

#[cfg(test)]
mod tests {
    use super::Load;

    #[test]
    fn stolen_time_and_other_programs_disturb() {
        let load = |idle: u64, stolen: u64, running: u64| {
            Load::parse(&format!("cpu  10 0 20 {idle} 0 0 5 {stolen} 7 0\ncpu0 1 1 1\nprocs_running {running}\n"))
        };
        assert!(!load(1000, 9, 1).disturbed_since(load(0, 0, 1)));
        assert!(load(1000, 11, 1).disturbed_since(load(0, 0, 1)));
        assert!(load(1000, 0, 1).disturbed_since(load(0, 0, 3)));
        assert!(!Load::now().disturbed_since(Load { running: 0, ..Load::now() }));
    }
}
