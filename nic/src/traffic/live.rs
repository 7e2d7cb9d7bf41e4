//! A sender in the kernel: BPF_PROG_TEST_RUN on live frames writes each frame and redirects it to the interface
//! (`bpf_test_run_xdp_live`, net/bpf/test_run.c; Linux 5.18).
//!
//! Each call allocates frames of its own, so few long calls are faster than many short ones. The interface's driver must accept
//! redirected frames. A veth does when an XDP program is attached to its peer. `tcpdump` on the sending interface sees
//! none of them.

use std::os::fd::{AsRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{BPF_F_TEST_XDP_LIVE_FRAMES, bpf_prog_test_run_opts, bpf_test_run_opts};
use libbpf_rs::{Link, MapHandle};
use rustix::io::Errno;

use super::object::{Counted, fill, load, read_counts, read_sequence, set_up};
use super::pattern::Pattern;
use crate::afxdp::interface::Interface;
use crate::bpf::{map, missing, program, refused, system};
use crate::error::NicError;

/// Frames that the kernel redirects at once.
pub const BATCH: u32 = 64;

/// Sends the frames of a pattern.
pub struct LiveSender {
    program: OwnedFd,
    template: Vec<u8>,
    state: MapHandle,
    counts: MapHandle,
    // Detached on drop.
    _sent: Link,
}

/// What became of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames written.
    pub written: u64,
    /// Frames that the interface accepted.
    pub accepted: u64,
    /// Frames that the interface refused: its queue was full, or it does not accept redirected frames.
    pub refused: u64,
}

impl LiveSender {
    /// Prepares the frames of `pattern`, to leave by an interface.
    ///
    /// # Errors
    /// No such interface, no privileges, or a kernel without BTF or older than 5.18.
    pub fn new(interface: &str, pattern: &Pattern) -> Result<Self, NicError> {
        let interface = Interface::find(interface)?;
        let object = load(&["spin_generate", "spin_sent"])?;
        set_up(&object, pattern, interface.index)?;
        let plan = pattern.plan();
        fill(&object, "flows", plan.flows.iter().copied())?;
        fill(&object, "lengths", plan.lengths.iter().map(|&length| length.into()))?;
        let mut programs = object.progs_mut();
        let sent = programs.find(|program| program.name() == "spin_sent").ok_or_else(|| missing("spin_sent"));
        let sent = sent.and_then(|program| program.attach());
        let sent = sent.map_err(|error| system("count sent frames (xdp_devmap_xmit)", &error))?;
        let program = program(&object, "spin_generate").map_err(|error| refused(&error))?;
        let map = |name| map(&object, name).map_err(|error| refused(&error));
        let (state, counts) = (map("state")?, map("counts")?);
        Ok(Self { program, template: pattern.template().to_vec(), state, counts, _sent: sent })
    }

    /// Sends the next `count` frames, as fast as it goes. Returns when all have been sent or refused.
    ///
    /// # Errors
    /// The kernel refuses to run the program.
    pub fn send(&mut self, count: u32) -> Result<(), NicError> {
        let mut options = self.options(count);
        options.flags = BPF_F_TEST_XDP_LIVE_FRAMES;
        options.batch_size = BATCH;
        self.run(options).map(drop)
    }

    /// What became of the frames so far.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn sent(&self) -> Result<Sent, NicError> {
        let [accepted, _] = read_counts(&self.counts, Counted::Accepted)?;
        let written = read_sequence(&self.state)?;
        // Also those that the kernel never gave to the driver, because it lacks `ndo_xdp_xmit` or has it disabled.
        Ok(Sent { written, accepted, refused: written.saturating_sub(accepted) })
    }

    fn options(&self, count: u32) -> bpf_test_run_opts {
        bpf_test_run_opts {
            sz: size_of::<bpf_test_run_opts>() as u64,
            data_in: self.template.as_ptr().cast(),
            // At most MAX_FRAME.
            data_size_in: self.template.len() as u32,
            // A count above i32::MAX is refused by the kernel.
            repeat: count as i32,
            ..Default::default()
        }
    }

    /// Runs the program. `options` are from [`Self::options`], with an output buffer at most.
    fn run(&self, mut options: bpf_test_run_opts) -> Result<bpf_test_run_opts, NicError> {
        // SAFETY: `options` has the size it claims. `data_in` points at `data_size_in` readable bytes of the template, and
        // `data_out`, if any, at `data_size_out` writable bytes of the caller. All other pointers are null with size 0.
        let result = unsafe { bpf_prog_test_run_opts(self.program.as_raw_fd(), &raw mut options) };
        if result < 0 {
            let errno = Errno::from_raw_os_error(result.checked_neg().unwrap_or(libc::EINVAL));
            return Err(NicError::system("send live frames (needs Linux 5.18 and CAP_BPF, CAP_NET_ADMIN)", errno));
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::super::pattern::{Header, Pattern, Plan, tests::plan};
    use super::LiveSender;

    /// The frame that the program writes when it runs on the template once.
    fn written(sender: &LiveSender) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        let mut options = sender.options(1);
        options.data_out = bytes.as_mut_ptr().cast();
        options.data_size_out = bytes.len() as u32;
        let options = sender.run(options).expect("it runs");
        assert_eq!(options.retval, 4, "XDP_REDIRECT");
        bytes.truncate(options.data_size_out as usize);
        bytes
    }

    /// Both writers make equal frames, whatever the pattern, and whatever the headers of the frame before.
    #[test]
    fn the_program_writes_the_frames_of_the_pattern() {
        if !rustix::process::geteuid().is_root() {
            spin_testing::skip("needs root");
            return;
        }
        let plans = [
            plan(),
            Plan { header: Header::Slmp { packets: 3 }, lengths: vec![1514, 70], ..plan() },
            Plan { header: Header::KeyValue { sets: 50 }, lengths: vec![72, 1514], ..plan() },
        ];
        for plan in plans {
            let mut pattern = Pattern::new(plan).expect("a plan");
            let mut sender = LiveSender::new("lo", &pattern).expect("the kernel accepts it");
            sender.template[..54].fill(0xa5);
            for sequence in 0..120 {
                let frame = written(&sender);
                let signature = pattern.signature(&frame).expect("of this run");
                assert_eq!(signature.sequence, sequence);
                let mut expected = vec![0; 2000];
                let len = pattern.write(signature.due, &mut expected);
                assert_eq!(frame, expected[..len], "packet {sequence}");
            }
        }
    }
}
