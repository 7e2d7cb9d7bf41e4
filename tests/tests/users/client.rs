//! Clients of several users.

use std::os::unix::net::UnixStream;

use libspin::Install;
use spin_abi::control::{Reply, Request};
use spin_shm::{Region, channel, send_with_fds};
use spin_tests::{Spind, as_user, can_be_other_users};

/// Ordinary users. Nothing on the host belongs to them.
pub const ALICE: u32 = 60_001;
pub const BOB: u32 = 60_002;
pub const ROOT: u32 = 0;

/// Whether the test can act as other users. Reports a skipped test if not.
pub fn may_run() -> bool {
    let can = can_be_other_users();
    if !can {
        spin_testing::skip("acting as several users needs root");
    }
    can
}

/// Connects to spind as a user.
pub fn connect(spind: &Spind, uid: u32) -> UnixStream {
    let socket = spind.socket();
    as_user(uid, || UnixStream::connect(&socket)).expect("all users may open the socket")
}

/// Sends a request and returns the reply. Sends a page of memory if spind wants some.
pub fn ask(stream: &UnixStream, request: &Request, blob: &[u8]) -> Reply {
    let reply = || channel::receive(stream).expect("spind answers").expect("the connection stays").body;
    channel::send(stream, request, blob, None).expect("spind reads");
    match reply() {
        Reply::SendMemory => {
            let region = Region::create(4096).expect("memory");
            send_with_fds(stream, &[0], &[region.fd()]).expect("spind takes it");
            reply()
        }
        reply => reply,
    }
}

/// Returns the refusal of a request.
pub fn refusal(reply: Reply) -> String {
    match reply {
        Reply::Error { message } => message,
        other => panic!("not refused: {other:?}"),
    }
}

/// Installs a context and returns its id.
pub fn install(stream: &UnixStream, install: Install, image: &[u8]) -> u32 {
    match ask(stream, &Request::Install(Box::new(install)), image) {
        Reply::Installed { context, .. } => context,
        other => panic!("not installed: {other:?}"),
    }
}

pub fn rule(text: &str) -> Install {
    Install { rules: vec![text.into()], ..Install::default() }
}
