//! spind is killed at random times while several clients install, replace, change and remove persistent contexts. After each start, every
//! change that was acknowledged is there. One that was under way is there, or not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use libspin::{Client, Error, Install};
use spin_testing::{bounded, from_environment};
use spin_tests::{Killed, Spind, binary, image};

use crate::state::{contexts, persistent, start, state};

/// Clients at a time.
const CLIENTS: u16 = 3;
/// Contexts of a client at a time.
const CONTEXTS: usize = 5;
/// Longest time until a kill, in microseconds.
const LONGEST: u64 = 150_000;

/// A change that was not acknowledged.
#[derive(Debug)]
enum Pending {
    Install { name: String },
    Replace { old: u32, name: String },
    SetRules { id: u32, rule: String },
    Remove { id: u32 },
}

/// What a client knows of its contexts: name and rule by id.
#[derive(Default)]
struct Known {
    contexts: BTreeMap<u32, (String, String)>,
    pending: Option<Pending>,
    /// Number of names so far.
    names: u32,
    acknowledged: u64,
}

impl Known {
    /// Changes contexts until spind is killed.
    fn change(&mut self, socket: &Path, client: u16, image: &[u8], random: &mut fastrand::Rng) {
        let Ok(mut spind) = Client::connect(socket) else { return };
        loop {
            self.names += 1;
            let (name, port) = (format!("{client}-{}", self.names), 1000 * (client + 1) + random.u16(..1000));
            let ids: Vec<u32> = self.contexts.keys().copied().collect();
            let done = match (random.choice(&ids).copied(), random.u8(..8)) {
                (Some(id), 0..2) => self.remove(&mut spind, id),
                (Some(id), 2) => self.set_rules(&mut spind, id, port),
                (Some(id), 3..5) => self.install(&mut spind, name, port, Some(id), image),
                (Some(id), _) if ids.len() >= CONTEXTS => self.remove(&mut spind, id),
                _ => self.install(&mut spind, name, port, None, image),
            };
            match done {
                Ok(()) => (self.pending, self.acknowledged) = (None, self.acknowledged + 1),
                Err(Error::Refused(why)) => panic!("{:?} was refused: {why}", self.pending),
                Err(_) => return,
            }
        }
    }

    fn install(
        &mut self,
        spind: &mut Client,
        name: String,
        port: u16,
        replaces: Option<u32>,
        image: &[u8],
    ) -> Result<(), Error> {
        self.pending = Some(match replaces {
            Some(old) => Pending::Replace { old, name: name.clone() },
            None => Pending::Install { name: name.clone() },
        });
        let install = Install { name: name.clone(), replaces, ..persistent(port) };
        let id = spind.install(&install, image)?.id;
        replaces.map(|old| self.contexts.remove(&old));
        self.contexts.insert(id, (name, install.rules[0].clone()));
        Ok(())
    }

    fn set_rules(&mut self, spind: &mut Client, id: u32, port: u16) -> Result<(), Error> {
        let rule = format!("udp dport {port}");
        self.pending = Some(Pending::SetRules { id, rule: rule.clone() });
        spind.set_rules(id, vec![rule.clone()], None)?;
        self.contexts.entry(id).and_modify(|(_, rules)| *rules = rule);
        Ok(())
    }

    fn remove(&mut self, spind: &mut Client, id: u32) -> Result<(), Error> {
        self.pending = Some(Pending::Remove { id });
        spind.remove(id)?;
        self.contexts.remove(&id);
        Ok(())
    }

    /// Takes in what became of the pending change, given the contexts that are there.
    fn settle(&mut self, there: &BTreeMap<u32, (String, String)>) {
        let named = |wanted: &str| there.iter().find(|(_, (name, _))| name == wanted).map(|(id, it)| (*id, it.clone()));
        match self.pending.take() {
            Some(Pending::Install { name }) => self.contexts.extend(named(&name)),
            Some(Pending::Replace { old, name }) => {
                if let Some(new) = named(&name) {
                    self.contexts.remove(&old);
                    self.contexts.extend([new]);
                }
            }
            Some(Pending::SetRules { id, rule }) => {
                let is_set = there.get(&id).is_some_and(|(_, rules)| *rules == rule);
                self.contexts.entry(id).and_modify(|(_, rules)| *rules = if is_set { rule } else { rules.clone() });
            }
            Some(Pending::Remove { id }) if !there.contains_key(&id) => drop(self.contexts.remove(&id)),
            Some(Pending::Remove { .. }) | None => {}
        }
    }
}

/// Kills a spind that may not have finished its start.
fn kill_during_start(folder: &Path, after: Duration) {
    let mut command = Command::new(binary("spind"));
    command
        .args(["--nic", "loopback"])
        .arg("--state")
        .arg(state(folder))
        .arg("--socket")
        .arg(folder.join("early.sock"));
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("spind starts");
    thread::sleep(after);
    drop(Killed(child));
}

#[test]
fn acknowledged_changes_survive_kills_at_random_times() {
    let seed = from_environment("SPIN_KILL_SEED", fastrand::u64(..));
    println!("SPIN_KILL_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let image = image("udp_pingpong");
    let mut clients: [Known; CLIENTS as usize] = Default::default();
    let mut spind = start(tempfile::tempdir().expect("a temporary folder"));
    for round in 0..bounded(30, 1000) {
        let socket: PathBuf = spind.socket();
        let seeds: Vec<u64> = clients.iter().map(|_| random.u64(..)).collect();
        let folder = thread::scope(|scope| {
            for ((client, number), seed) in clients.iter_mut().zip(0..).zip(seeds) {
                let (socket, image) = (&socket, &image);
                scope.spawn(move || client.change(socket, number, image, &mut fastrand::Rng::with_seed(seed)));
            }
            thread::sleep(Duration::from_micros(random.u64(..LONGEST)));
            spind.kill()
        });
        if round % 4 == 0 {
            kill_during_start(folder.path(), Duration::from_micros(random.u64(..LONGEST)));
        }
        spind = start(folder);
        settle(&spind, &mut clients, round);
    }
    let acknowledged: u64 = clients.iter().map(|client| client.acknowledged).sum();
    println!("{acknowledged} acknowledged changes");
    assert!(acknowledged > 0, "no change was acknowledged");
}

/// Compares the contexts that are there with those that the clients know.
fn settle(spind: &Spind, clients: &mut [Known], round: u32) {
    let mut client = Client::connect(spind.socket()).expect("it listens");
    let there: BTreeMap<_, _> =
        contexts(&mut client).into_iter().map(|(id, name, rules)| (id, (name, rules))).collect();
    let pending: Vec<_> =
        clients.iter().filter_map(|client| client.pending.as_ref()).map(|it| format!("{it:?}")).collect();
    clients.iter_mut().for_each(|client| client.settle(&there));
    let expected: BTreeMap<_, _> = clients.iter().flat_map(|client| client.contexts.clone()).collect();
    assert_eq!(there, expected, "round {round}; pending: {pending:?}\n{}", spind.logged);
}
