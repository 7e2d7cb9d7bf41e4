//! More contexts than a process's limited mappings allow HPUs for. The only test of its program, since it uses all
//! mappings.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a test")]

use std::path::Path;
use std::sync::Arc;

use hpu_vm::jit::Executor;
use pspin::conf::Settings;
use pspin::ec::{Context, Ec};
use pspin::host::{Access, Host, Times};
use pspin::image::Loaded;
use pspin::inbox::{Added, Inbox};
use pspin::memory::NicMemory;
use pspin::simulation::{End, Simulation};

/// About 90 contexts use up all mappings of Linux's default limit.
const CONTEXTS: u32 = 150;
/// Messages per context: enough to occupy all HPUs.
const MESSAGES: u32 = 64;

#[derive(Default)]
struct Counts {
    ran: u32,
    released: u32,
    problems: Vec<String>,
}

impl Host for Counts {
    fn send(&mut self, _: &mut [u8]) {}

    fn write(&mut self, _: u64, _: &mut [u8]) {
        self.ran += 1;
    }

    fn read(&mut self, _: u64, _: &mut [u8]) {}

    fn released(&mut self, _: u64, _: Times) {
        self.released += 1;
    }

    fn accessed(&mut self, _: Access, _: usize) {}

    fn print(&mut self, _: &[u8]) {}

    fn report(&mut self, problem: &str) {
        self.problems.push(problem.into());
    }
}

#[test]
fn handlers_of_all_contexts_run() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/relinked/programs/handlers.c");
    let image = spin_handlers::try_build(&[&source], &["--abi", "pspin"]).expect("it compiles");
    let memory = Arc::new(NicMemory::new().expect("memory"));
    let loaded = Arc::new(Loaded::new(image, &memory).expect("an image"));
    let handler = loaded.image.symbol("count_ph").expect("a handler");
    let inbox = Arc::new(Inbox::default());
    let mut simulation = Simulation::new(&Settings::default(), inbox.clone());
    for id in 0..CONTEXTS {
        let place = Ec { ph_addr: handler, host_mem_addr: u64::from(id) << 20, ..Ec::default() };
        let context = Arc::new(Context::new(id, &Ec { scratchpad_size: [4096; 4], ..place }, &loaded).expect("room"));
        for msgid in 0..MESSAGES {
            let user = u64::from(id * MESSAGES + msgid);
            let bytes = vec![0; 64];
            let added = inbox.add([Added {
                context: context.clone(),
                msgid,
                bytes,
                l1_len: 64,
                eom: true,
                wait_cycles: 0,
                user,
            }]);
            assert!(added, "more come");
        }
    }
    inbox.end();
    let mut counts = Counts::default();
    assert_eq!(simulation.run(&Executor::new().expect("a timer"), &mut counts), End::Done);
    assert_eq!(
        (counts.ran, counts.released),
        (CONTEXTS * MESSAGES, CONTEXTS * MESSAGES),
        "{:?}",
        counts.problems.first()
    );
}
