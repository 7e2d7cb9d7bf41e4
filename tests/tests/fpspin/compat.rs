//! `--compat fpspin`: messages are identified as on FPsPIN, by the daemon's setting or a context's. Also a connection's
//! access to NIC memory.

use std::fs;

use libspin::{Abi, Client, Counter, Error, Install};

use super::{exchange, handlers, spind, udp};

/// Makes a datagram with these bytes at the position of FPsPIN's message id.
fn message(host: u8, id: [u8; 4]) -> Vec<u8> {
    udp(host, [4000, 9330], &[&[0x40, 0][..], &id, &[0; 12]].concat())
}

/// Returns the queues that handlers saw for unfinished messages of two senders, and the number of messages.
fn queues(client: &mut Client, frames: &[Vec<u8>]) -> (Vec<u8>, usize) {
    let told = exchange(client, frames).iter().map(|sent| sent[42]).collect();
    let messages = client.stats().expect("statistics").contexts[0].counters.get(Counter::Messages);
    (told, usize::try_from(messages).expect("few"))
}

#[test]
fn ids_of_different_senders_collide_as_there() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = handlers("control_handlers", folder.path());
    let frames = [
        message(1, [3, 0, 0, 1]),
        message(2, [3, 0, 0, 1]),
        message(1, [0x13, 0, 0, 2]),
        message(1, [0x0f, 3, 0xff, 0xff]),
        message(1, [0, 0, 0, 9]),
    ];
    let image_path = image.to_str().expect("temporary paths are UTF-8");
    let ask = [
        "install",
        image_path,
        "--rule",
        "udp dport 9330",
        "--abi",
        "fpspin",
        "--eom",
        "never",
        "--handler-mem",
        "16K",
    ];
    for (daemon, own) in [(&["--compat", "fpspin"][..], &[][..]), (&[], &["--compat", "fpspin"])] {
        let spind = spind(folder.path(), daemon);
        let mut client = Client::connect(spind.socket()).expect("spind listens");
        spind.ctl_ok(&[&ask[..], own].concat());
        assert!(spind.ctl_ok(&["list"]).contains("key: fpspin"));
        assert_eq!(queues(&mut client, &frames), (vec![3, 3, 3, 15, 0], 0), "four bits of the id");
    }
    // Neither a context's own key nor handlers of another ABI are affected.
    let compat = spind(folder.path(), &["--compat", "fpspin"]);
    let mut client = Client::connect(compat.socket()).expect("spind listens");
    let file = fs::read(&image).expect("it was written");
    let wire = Install { rules: vec!["udp".into()], ..Install::default() };
    let own_key = Install { key: Some("flow".into()), abi: Abi::Fpspin, ..wire.clone() };
    for (install, file) in [(wire, spin_handlers::image("empty", &[])), (own_key, file.into())] {
        client.install(&install, &file).expect("installs");
    }
    assert!(client.contexts().expect("a list").iter().all(|context| context.key == "flow"));

    let spind = spind(folder.path(), &[]);
    let mut client = Client::connect(spind.socket()).expect("spind listens");
    let own_key = [&ask[..], &["--key", "flow + frame[44:4]"]].concat();
    spind.ctl_ok(&own_key);
    let (told, _) = queues(&mut client, &frames);
    assert_eq!(told.iter().collect::<std::collections::BTreeSet<_>>().len(), 5, "else each is a message: {told:?}");
    let both = spind.ctl(&[&own_key[..], &["--compat", "fpspin"]].concat());
    assert!(!both.status.success());
}

#[test]
fn memory_is_reached_by_who_installed_the_context_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = fs::read(handlers("control_handlers", folder.path())).expect("it was written");
    let spind = spind(folder.path(), &[]);
    let mut client = Client::connect(spind.socket()).expect("spind listens");
    let install = Install {
        rules: vec!["udp".into()],
        abi: Abi::Fpspin,
        handler_mem: 8192,
        scratchpad: 4096,
        ..Install::default()
    };
    let context = client.install(&install, &image).expect("installs");
    let id = context.id;
    // Handler memory and each cluster's scratchpad, in full.
    let own = context.areas.handler_mem;
    assert_eq!(own.size, 8192);
    let machine = spin_abi::map::Machine::FPSPIN;
    for (start, len) in [(own.address, 8192), (machine.scratchpad_base(0), 4096), (machine.scratchpad_base(1), 4096)] {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + start) as u8).collect();
        client.write_memory(id, start, &bytes).expect("its own");
        let mut read = vec![0; bytes.len()];
        client.read_memory(id, start, &mut read).expect("its own");
        assert_eq!(read, bytes);
        for (at, len) in [(start - 1, 2), (start + len - 1, 2), (start, len + 1)] {
            let len = usize::try_from(len).expect("small");
            let refused = client.write_memory(id, at, &vec![1; len]);
            assert!(
                matches!(&refused, Err(Error::Refused(why)) if why.contains("not all the context's")),
                "{refused:?}"
            );
            assert!(client.read_memory(id, at, &mut vec![0; len]).is_err());
        }
        client.read_memory(id, start, &mut read).expect("its own");
        assert_eq!(read, bytes, "what is refused writes nothing");
    }
    // Code may be read; stacks and packets belong to tasks and may not.
    let code = context.areas.handlers[1];
    client.read_memory(id, code.address, &mut [0; 4]).expect("code");
    assert!(client.write_memory(id, code.address, &[0; 4]).is_err());
    for address in [machine.stack_base(0, 0), machine.l1_packet_base(1, 3), machine.l2_packet_window(0, 0), 0, u32::MAX]
    {
        assert!(client.read_memory(id, address, &mut [0; 1]).is_err(), "{address:#x}");
    }
    assert!(
        client.read_memory(id, own.address, &mut vec![0; 1 << 30]).is_err(),
        "nothing is allocated for what is not there"
    );
    // Another connection's context, and addresses beyond the end.
    let mut other = Client::connect(spind.socket()).expect("spind listens");
    let refused = other.read_memory(id, own.address, &mut [0; 1]);
    assert!(matches!(&refused, Err(Error::Refused(why)) if why.contains("not installed over this connection")));
    other.remove(id).expect("the same user's");
    let refused = client.read_memory(id, own.address, &mut [0; 1]);
    assert!(matches!(&refused, Err(Error::Refused(why)) if why.contains("the context is gone")), "{refused:?}");
}

#[test]
fn rules_change_and_a_change_that_is_refused_changes_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = fs::read(handlers("control_handlers", folder.path())).expect("it was written");
    let spind = spind(folder.path(), &[]);
    let mut client = Client::connect(spind.socket()).expect("spind listens");
    let install = |port: u16| Install {
        rules: vec![format!("udp dport {port}")],
        abi: Abi::Fpspin,
        handler_mem: 16384,
        ..Install::default()
    };
    let [first, second] = [1, 2].map(|port| client.install(&install(port), &image).expect("installs").id);
    let frames: Vec<_> = (1..4).map(|port| udp(1, [4000, port], &[0; 20])).collect();
    let taken = |client: &mut Client| -> Vec<u8> { exchange(client, &frames).iter().map(|sent| sent[37]).collect() };
    assert_eq!(taken(&mut client), [1, 2]);
    client.set_rules(first, vec!["udp dport 3".into()], Some("never".into())).expect("good rules");
    assert_eq!(taken(&mut client), [2, 3]);
    let shown = client.contexts().expect("a list");
    assert_eq!((shown[0].rules.clone(), shown[0].eom.as_str()), (vec!["udp dport 3".to_owned()], "never"));
    for (context, rules, eom) in [
        (first, vec![], None),
        (first, vec!["nonsense".to_owned()], None),
        (first, vec!["any".to_owned()], Some("nonsense".to_owned())),
        (first, vec![["udp dport 1"; 257].join(" or ")], None),
        (first, vec!["x".repeat(5000)], None),
        (second + 1, vec!["any".to_owned()], None),
    ] {
        let refused = client.set_rules(context, rules, eom);
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
        assert_eq!(taken(&mut client), [2, 3]);
    }
}
