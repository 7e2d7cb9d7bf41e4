//! An application that sends a file whose close blocks. It blocks neither spind nor its end.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::process::{Pid, Signal, kill_process};
use spin_abi::control::{Install, Reply, Request};
use spin_shm::{channel, send_with_fds};
use spin_testing::UnansweredFile;
use spin_tests::{Spind, image, wait_until};

const LOOPBACK: [&str; 2] = ["--nic", "loopback"];

fn reply(stream: &UnixStream) -> Reply {
    channel::receive(stream).expect("spind answers").expect("the connection stays").body
}

/// The state of a process (proc_pid_status(5)), or `None` when it has ended.
fn state(process: u32) -> Option<char> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("State:")).expect("a state");
    line.trim().chars().next().filter(|state| *state != 'Z')
}

#[test]
fn spind_ends_and_starts_again_while_the_close_of_a_descriptor_blocks() {
    let Some(hostile) = UnansweredFile::mount() else { return };
    let mut spind = Spind::start(&LOOPBACK);
    let stream = UnixStream::connect(spind.socket()).expect("spind listens");
    let install = Install { rules: vec!["udp".into()], ..Install::default() };
    channel::send(&stream, &Request::Install(Box::new(install)), &image("reduce"), None).expect("sent");
    let Reply::Installed { context, .. } = reply(&stream) else { panic!("not installed") };
    let attach = Request::AttachRegion { context, address: 1 << 40, len: 4096 };
    channel::send(&stream, &attach, &[], None).expect("sent");
    assert!(matches!(reply(&stream), Reply::SendMemory));
    send_with_fds(&stream, b"x", &[hostile.open().as_fd()]).expect("sent");
    hostile.wait_for_close();
    let Reply::Error { message } = reply(&stream) else { panic!("not refused") };
    assert!(message.contains("memfd_create"), "{message}");
    spind.ctl_ok(&["list"]);

    let receiver = spind.child("descriptor-process");
    let children = fs::read_to_string(format!("/proc/{receiver}/task/{receiver}/children")).expect("it runs");
    let child: u32 = children.trim().parse().expect("one child");
    let kept = fs::read_dir(format!("/proc/{child}/fd")).expect("it is there").count();
    assert_eq!(kept, 1, "the child has its socket to spind alone");
    spind.signal(Signal::TERM);
    assert!(spind.wait().0, "{}", spind.logged);
    wait_until(|| state(receiver).is_none());
    // Not even SIGKILL ends it.
    let id = Pid::from_raw(child.cast_signed()).expect("an id");
    kill_process(id, Signal::KILL).expect("it is there");
    wait_until(|| state(child) == Some('D'));
    let again = Spind::start_in(spind.kill(), &LOOPBACK);
    again.ctl_ok(&["list"]);
    drop(hostile);
    wait_until(|| state(child).is_none());
}
