//! Tests against a listener that answers as spind would.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::thread;

use libspin::{Client, Install};
use spin_abi::control::{Areas, Reply, Request};
use spin_shm::channel::{receive, send};

#[test]
fn a_context_whose_memory_cannot_be_mapped_does_not_stay() {
    let path = std::env::temp_dir().join(format!("libspin-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).expect("nobody has it");
    let spind = thread::spawn(move || {
        let (stream, _) = listener.accept().expect("somebody connects");
        let asked = receive::<Request>(&stream).expect("a request").expect("a request");
        assert!(matches!(asked.body, Request::Install(_)));
        let installed = Reply::Installed {
            context: 7,
            host_mem: 4096,
            host_address: 0,
            areas: Areas::default(),
            warnings: Vec::new(),
        };
        // `/dev/null` is not a memory region.
        let file = File::open("/dev/null").expect("it is there");
        send(&stream, &installed, &[], Some(file.as_fd())).expect("sent");
        let asked = receive::<Request>(&stream).expect("a request").expect("a request");
        send(&stream, &Reply::Ok, &[], None).expect("sent");
        asked.body
    });
    let mut client = Client::connect(&path).expect("it listens");
    std::fs::remove_file(&path).expect("it is there");
    client.install(&Install { host_mem: 4096, ..Install::default() }, &[]).expect_err("it cannot be mapped");
    let asked = spind.join().expect("it was asked twice");
    assert!(matches!(asked, Request::Remove { context: 7 }), "{asked:?}");
}
