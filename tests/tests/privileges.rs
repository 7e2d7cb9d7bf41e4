//! What the threads of spind's processes could do if an attacker ran code in them: docs/users.md has the table.
#![cfg(target_arch = "x86_64")]

#[path = "../../nic/tests/common/mod.rs"]
mod common;

use std::ffi::c_long;
use std::fs;
use std::time::Instant;

use common::{LINK, Link, NEAR, root, within};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use spin_tests::{ACTION_TIMEOUT, Spind, wait_until};

/// Capabilities of the loader process: CAP_CHOWN (0), CAP_NET_BIND_SERVICE (10), CAP_BPF (39), linux/capability.h.
const LOADER: u64 = 1 | 1 << 10 | 1 << 39;
/// Capabilities of the hook process: CAP_NET_ADMIN (12), CAP_PERFMON (38), CAP_BPF (39).
const HOOK: u64 = 1 << 12 | 1 << 38 | 1 << 39;

/// The ids of a process's threads.
fn threads(process: u32) -> Vec<i32> {
    let folder = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// A line of /proc/PID/task/TID/status (proc_pid_status(5)), after its name.
fn status(thread: i32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("{name} in {status}")).trim().to_owned()
}

fn capabilities(thread: i32) -> [u64; 4] {
    ["CapPrm", "CapEff", "CapInh", "CapAmb"]
        .map(|name| u64::from_str_radix(&status(thread, name), 16).expect("hexadecimal"))
}

/// spind on an interface, with two packet threads, metrics, a kernel tier, and a configuration to read again.
fn start(link: &Link) -> Spind {
    within(&link.near, || {
        Spind::start_configured(
            "kernel_tier = true\n",
            &["--iface", LINK, "--cores", "0,1", "--metrics", &format!("{NEAR}:0")],
        )
    })
}

#[test]
fn each_thread_has_the_identity_and_capabilities_of_the_table() {
    if !root() {
        return;
    }
    let link = Link::new(2);
    let spind = start(&link);
    let (loader, receiver) = (spind.child("loader-process"), spind.child("descriptor-process"));
    // A thread names itself once it runs.
    let begun = Instant::now();
    let own = loop {
        let own = threads(spind.pid());
        let names: Vec<_> = own.iter().map(|&thread| status(thread, "Name")).collect();
        if own.len() >= 8 && names.contains(&"reload".to_owned()) {
            break own;
        }
        assert!(begun.elapsed() < ACTION_TIMEOUT, "{names:?}");
    };
    // It gives up its privileges while spind starts.
    wait_until(|| status(receiver.cast_signed(), "Seccomp") == "2");
    for thread in own.into_iter().chain(threads(receiver)) {
        let name = status(thread, "Name");
        let uids = status(thread, "Uid");
        assert!(uids.split_whitespace().all(|uid| uid != "0") && status(thread, "Groups").is_empty(), "{name}: {uids}");
        assert_eq!(capabilities(thread), [0; 4], "{name}");
        assert_eq!([status(thread, "NoNewPrivs"), status(thread, "Seccomp")], ["1", "2"], "{name}");
    }
    let hook = spind.child("hook-process");
    wait_until(|| status(hook.cast_signed(), "Seccomp") == "2");
    for (process, held) in [(loader, LOADER), (hook, HOOK)] {
        for thread in threads(process) {
            assert_eq!(capabilities(thread), [held, held, 0, 0]);
            assert_eq!([status(thread, "NoNewPrivs"), status(thread, "Seccomp")], ["1", "2"]);
        }
    }
}

/// System calls of an attacker, with their arguments. `text` is the address of [`PATH`] in the process, where these matter.
fn attempts(text: u64) -> [(&'static str, c_long, [u64; 3]); 7] {
    let at = libc::AT_FDCWD as u64;
    [
        ("execve", libc::SYS_execve, [text, 0, 0]),
        ("execveat", libc::SYS_execveat, [at, text, 0]),
        ("open", libc::SYS_openat, [at, text, 0]),
        ("ptrace", libc::SYS_ptrace, [libc::PTRACE_TRACEME.into(), 0, 0]),
        ("clone3", libc::SYS_clone3, [text, 88, 0]),
        // BPF_MAP_CREATE
        ("bpf", libc::SYS_bpf, [0, text, 72]),
        ("socket", libc::SYS_socket, [libc::AF_INET as u64, libc::SOCK_STREAM as u64, 0]),
    ]
}

/// A file that only root may read, and that exists.
const PATH: &[u8; 16] = b"/etc/shadow\0\0\0\0\0";

/// Runs the attempts in a thread that is stopped. Returns the results by name.
fn attack(thread: i32, syscall_at: u64) -> Vec<(&'static str, i64)> {
    let thread = Pid::from_raw(thread);
    ptrace::attach(thread).expect("root may");
    waitpid(thread, Some(WaitPidFlag::__WALL)).expect("it stops");
    let saved = ptrace::getregs(thread).expect("registers");
    // Below the red zone of the System V ABI.
    let text = (saved.rsp - 1024) & !15;
    for (index, word) in PATH.chunks(8).enumerate() {
        let word = i64::from_ne_bytes(word.try_into().expect("8 bytes"));
        ptrace::write(thread, (text + 8 * index as u64) as *mut _, word).expect("its stack");
    }
    let results = attempts(text).map(|(name, number, [first, second, third])| {
        let mut registers = saved;
        (registers.rip, registers.rax, registers.orig_rax) = (syscall_at, number as u64, u64::MAX);
        (registers.rdi, registers.rsi, registers.rdx) = (first, second, third);
        (registers.r10, registers.r8) = (0, 0);
        ptrace::setregs(thread, registers).expect("registers");
        ptrace::step(thread, None).expect("it runs");
        waitpid(thread, Some(WaitPidFlag::__WALL)).expect("it stops");
        (name, ptrace::getregs(thread).expect("registers").rax as i64)
    });
    ptrace::setregs(thread, saved).expect("registers");
    ptrace::detach(thread, None).expect("it continues");
    results.to_vec()
}

/// The address of a system call instruction in a process, in which its first thread waits or soon will.
fn syscall_instruction(process: u32) -> u64 {
    let begun = Instant::now();
    loop {
        let text = fs::read_to_string(format!("/proc/{process}/syscall")).expect("it runs");
        // Number, six arguments, stack pointer, program counter (proc_pid_syscall(5)).
        if let Some(counter) = text.split_whitespace().nth(8) {
            return u64::from_str_radix(counter.trim_start_matches("0x"), 16).expect("hexadecimal") - 2;
        }
        assert!(begun.elapsed() < ACTION_TIMEOUT, "not in a system call: {text}");
    }
}

#[test]
fn code_run_in_any_thread_gets_nothing() {
    if !root() {
        return;
    }
    let link = Link::new(2);
    let mut spind = start(&link);
    let refused = |errno: Errno| -i64::from(errno as i32);
    let instruction = syscall_instruction(spind.pid());
    for thread in threads(spind.pid()) {
        let name = status(thread, "Name");
        for (attempt, result) in attack(thread, instruction) {
            let expected = match attempt {
                "open" => refused(Errno::EACCES),
                "clone3" => refused(Errno::ENOSYS),
                _ => refused(Errno::EPERM),
            };
            assert_eq!(result, expected, "{attempt} in {name}");
        }
    }
    let receiver = spind.child("descriptor-process");
    wait_until(|| status(receiver.cast_signed(), "Seccomp") == "2");
    let instruction = syscall_instruction(receiver);
    for thread in threads(receiver) {
        for (attempt, result) in attack(thread, instruction) {
            assert_eq!(result, refused(Errno::EPERM), "{attempt} in the descriptor process");
        }
    }
    let loader = spind.child("loader-process");
    let instruction = syscall_instruction(loader);
    for thread in threads(loader) {
        // Sockets and BPF maps are what it is for.
        for (attempt, result) in
            attack(thread, instruction).into_iter().filter(|(name, _)| !["bpf", "socket"].contains(name))
        {
            assert_eq!(result, refused(Errno::EPERM), "{attempt} in the loader process");
        }
    }
    let hook = spind.child("hook-process");
    wait_until(|| status(hook.cast_signed(), "Seccomp") == "2");
    let instruction = syscall_instruction(hook);
    for thread in threads(hook) {
        // BPF maps are what it is for.
        for (attempt, result) in attack(thread, instruction).into_iter().filter(|(name, _)| *name != "bpf") {
            assert_eq!(result, refused(Errno::EPERM), "{attempt} in the hook process");
        }
    }
    // All are unharmed.
    spind.ctl_ok(&["list"]);
    spind.signal(rustix::process::Signal::TERM);
    assert!(spind.wait().0);
}
