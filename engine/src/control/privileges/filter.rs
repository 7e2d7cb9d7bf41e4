//! Filters of system calls (seccomp(2)). A refused call fails with EPERM.

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};

/// Calls that spind needs no more once its NIC is open: new programs and processes, new sockets, other processes' memory, the kernel's
/// configuration.
const REFUSED: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_personality,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
];

/// Commands of bpf(2) that concern descriptors which spind has: BPF_MAP_LOOKUP_ELEM for counters, and BPF_PROG_TEST_RUN, which passes
/// frames to the kernel's stack (linux/bpf.h).
const BPF_ALLOWED: [u64; 2] = [1, 10];
/// Commands of bpf(2) for programs and array maps: BPF_MAP_CREATE, BPF_PROG_LOAD and BPF_OBJ_GET_INFO_BY_FD (linux/bpf.h).
const BPF_HOOK_PROCESS: [u64; 3] = [0, 5, 15];
/// A new thread, not a process (linux/sched.h).
const CLONE_THREAD: u64 = 0x1_0000;
/// A new user namespace, in which a process has all capabilities (linux/sched.h).
const CLONE_NEWUSER: u64 = 0x1000_0000;

/// Calls of the C library and of Rust in any process: memory, signals, time, locks, its end.
const ANY_PROCESS: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_ppoll,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_sched_yield,
    libc::SYS_exit,
    libc::SYS_exit_group,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// Further calls of the loader process. It opens no file.
const LOADER: &[c_long] = &[
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_bpf,
    libc::SYS_socket,
    libc::SYS_bind,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
    libc::SYS_getsockname,
    libc::SYS_ioctl,
    libc::SYS_fchown,
    libc::SYS_unlinkat,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_uname,
    libc::SYS_prlimit64,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
];

/// Further calls of the hook process, beside bpf(2). It opens no file and no socket.
const HOOK_PROCESS: &[c_long] =
    &[libc::SYS_recvmsg, libc::SYS_recvfrom, libc::SYS_sendmsg, libc::SYS_sendto, libc::SYS_setsockopt];

/// Further calls of the descriptor process and its children, beside fork(2). They open no file and no socket.
const DESCRIPTOR_PROCESS: &[c_long] = &[
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_setsockopt,
    libc::SYS_pread64,
    libc::SYS_close_range,
    libc::SYS_set_robust_list,
];

/// Refuses system calls of all threads, present and future, that the process of the packet threads needs no more.
///
/// # Errors
/// The kernel has no seccomp filters.
pub fn confine_packet_threads() -> io::Result<()> {
    let mut rules = all_of(&[REFUSED]);
    let other_commands = BPF_ALLOWED.map(|command| condition(SeccompCmpOp::Ne, command));
    rules.insert(libc::SYS_bpf, vec![rule(other_commands.into_iter().collect::<io::Result<_>>()?)?]);
    rules.insert(libc::SYS_clone, vec![rule(vec![condition(SeccompCmpOp::MaskedEq(CLONE_THREAD), 0)?])?]);
    #[cfg(target_arch = "x86_64")]
    rules.extend([libc::SYS_fork, libc::SYS_vfork].map(|call| (call, Vec::new())));
    // The flags of clone3(2) are out of a filter's reach. Where it does not exist, the C library uses clone(2).
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    apply(clone3, SeccompAction::Allow, errno(libc::ENOSYS))?;
    apply(rules, SeccompAction::Allow, errno(libc::EPERM))
}

/// Refuses all system calls but those of the loader process.
///
/// # Errors
/// The kernel has no seccomp filters.
pub fn confine_loader() -> io::Result<()> {
    apply(all_of(&[ANY_PROCESS, LOADER]), errno(libc::EPERM), SeccompAction::Allow)
}

/// Refuses all system calls but those of the hook process.
///
/// # Errors
/// The kernel has no seccomp filters.
pub fn confine_hook_process() -> io::Result<()> {
    let mut rules = all_of(&[ANY_PROCESS, HOOK_PROCESS]);
    let commands = BPF_HOOK_PROCESS.into_iter().map(|command| rule(vec![condition(SeccompCmpOp::Eq, command)?]));
    rules.insert(libc::SYS_bpf, commands.collect::<io::Result<_>>()?);
    apply(rules, errno(libc::EPERM), SeccompAction::Allow)
}

/// Refuses all system calls but those of the descriptor process and its children.
///
/// # Errors
/// The kernel has no seccomp filters.
pub fn confine_descriptor_process() -> io::Result<()> {
    let mut rules = all_of(&[ANY_PROCESS, DESCRIPTOR_PROCESS]);
    let no_thread_or_namespace = condition(SeccompCmpOp::MaskedEq(CLONE_THREAD | CLONE_NEWUSER), 0)?;
    rules.insert(libc::SYS_clone, vec![rule(vec![no_thread_or_namespace])?]);
    apply(rules, errno(libc::EPERM), SeccompAction::Allow)
}

fn all_of(lists: &[&[c_long]]) -> BTreeMap<c_long, Vec<SeccompRule>> {
    lists.iter().copied().flatten().map(|&call| (call, Vec::new())).collect()
}

const fn errno(number: i32) -> SeccompAction {
    SeccompAction::Errno(number.unsigned_abs())
}

fn condition(operator: SeccompCmpOp, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator, value).map_err(io::Error::other)
}

fn rule(conditions: Vec<SeccompCondition>) -> io::Result<SeccompRule> {
    SeccompRule::new(conditions).map_err(io::Error::other)
}

fn apply(rules: BTreeMap<c_long, Vec<SeccompRule>>, otherwise: SeccompAction, listed: SeccompAction) -> io::Result<()> {
    let architecture = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, otherwise, listed, architecture).map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    apply_filter_all_threads(&program).map_err(io::Error::other)
}
