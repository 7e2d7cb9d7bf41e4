//! Returns frames to the kernel's stack, as if the XDP program had passed them.
//!
//! BPF_PROG_TEST_RUN on live frames runs a program that passes all frames. The kernel then treats a copy of the frame as it does after
//! such a program in a driver (`bpf_test_run_xdp_live`, net/bpf/test_run.c; Linux 5.18). The copy and about 750 bytes of kernel data must
//! fit a page.
//!
//! In generic mode the attached program is part of the stack, and would take the frame again. The frame therefore carries a tag in front,
//! which that program knows.

use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::libbpf_sys::{BPF_F_TEST_XDP_LIVE_FRAMES, bpf_prog_test_run_opts, bpf_test_run_opts, xdp_md};
use rustix::io::Errno;
use spin_frame::CHUNK;

use super::filter::Filter;

/// Bytes of a tag.
const TAG: usize = 8;

/// Returns frames to the stack of an interface.
pub(super) struct KernelPass {
    interface: u32,
    /// Present in generic mode.
    tags: Option<Tags>,
    passed: u64,
    failed: u64,
}

impl KernelPass {
    /// For the interface with this index. `native`: the XDP program is attached in native mode, not generic.
    pub(super) fn new(interface: u32, native: bool) -> Self {
        Self { interface, tags: (!native).then(Tags::new), passed: 0, failed: 0 }
    }

    /// Number of frames that the kernel took.
    pub(super) fn passed(&self) -> u64 {
        self.passed
    }

    /// Number of frames that the kernel did not take.
    pub(super) fn failed(&self) -> u64 {
        self.failed
    }

    /// Returns a frame to the stack. Returns whether the kernel took it.
    pub(super) fn pass(&mut self, filter: &Filter, frame: &[u8]) -> bool {
        let result = match &mut self.tags {
            None => run(filter.pass_program(), self.interface, frame, 0),
            Some(tags) => run(filter.pass_program(), self.interface, tags.tag(frame), TAG as u32),
        };
        match result {
            Ok(()) => self.passed += 1,
            Err(errno) => {
                if self.failed == 0 {
                    tracing::warn!(
                        reason = %errno,
                        length = frame.len(),
                        "the kernel does not take back a frame that a handler passed: it is lost, as are all above about 3.4 KB; a lower MTU avoids such frames"
                    );
                }
                self.failed += 1;
            }
        }
        result.is_ok()
    }
}

/// Runs the program on a frame, which follows `metadata` bytes of metadata.
fn run(program: BorrowedFd<'_>, interface: u32, bytes: &[u8], metadata: u32) -> Result<(), Errno> {
    let length = u32::try_from(bytes.len()).map_err(|_| Errno::MSGSIZE)?;
    let context = xdp_md {
        data: metadata,
        data_end: length,
        data_meta: 0,
        ingress_ifindex: interface,
        rx_queue_index: 0,
        egress_ifindex: 0,
    };
    let mut options = bpf_test_run_opts {
        sz: size_of::<bpf_test_run_opts>() as u64,
        data_in: bytes.as_ptr().cast(),
        data_size_in: length,
        ctx_in: (&raw const context).cast(),
        ctx_size_in: size_of::<xdp_md>() as u32,
        repeat: 1,
        batch_size: 1,
        flags: BPF_F_TEST_XDP_LIVE_FRAMES,
        ..Default::default()
    };
    // SAFETY: `options` has the size it claims. `data_in` and `ctx_in` point at readable bytes of the given sizes, which live
    // during the call. All other pointers are null with size 0, so the kernel writes to `options` alone.
    let result = unsafe { bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if result < 0 {
        return Err(Errno::from_raw_os_error(result.checked_neg().unwrap_or(libc::EINVAL)));
    }
    Ok(())
}

/// Generates unique tags.
struct Tags {
    next: u64,
    /// A tag, followed by a frame.
    buffer: Vec<u8>,
}

impl Tags {
    fn new() -> Self {
        // The other queues of the interface have generators too. Random starts keep their tags apart.
        Self { next: RandomState::new().hash_one(0), buffer: Vec::with_capacity(TAG + CHUNK) }
    }

    /// Puts a new tag in front of a frame.
    fn tag(&mut self, frame: &[u8]) -> &[u8] {
        self.buffer.clear();
        self.buffer.extend_from_slice(&self.next.to_ne_bytes());
        self.buffer.extend_from_slice(frame);
        self.next = self.next.wrapping_add(1);
        &self.buffer
    }
}

#[cfg(test)]
mod tests {
    use super::{TAG, Tags};

    #[test]
    fn every_frame_has_a_tag_of_its_own() {
        let mut tags = Tags::new();
        let mut known = Vec::new();
        for len in [60, 14, 0, 60] {
            let tagged = tags.tag(&vec![len as u8; len]);
            let (tag, frame) = tagged.split_at(TAG);
            assert_eq!(frame, vec![len as u8; len]);
            assert!(!known.contains(&tag.to_vec()));
            known.push(tag.to_vec());
        }
    }
}
