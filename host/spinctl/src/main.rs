//! `spinctl`: installs, lists, watches and removes execution contexts of a running spind.
#![forbid(unsafe_code)]

mod args;
mod error;
mod events;
mod json;
mod show;
mod watch;

use std::fs;
use std::io::{ErrorKind, Read, Write, stdout};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;

use args::{Args, Command, InstallArgs, JsonForm};
use clap::Parser;
use error::Error;
use events::name;
use libspin::{Client, Compat, Install, MAX_BLOB};

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of our output has closed the pipe.
        Err(Error::Output(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spinctl: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Error> {
    let mut spind = Client::connect(&args.socket)?;
    match &args.command {
        Command::Install(install) => {
            let image = read(&install.image)?;
            let mut request = request(install);
            if let Some(wanted) = &install.replace {
                let id = spind.find(wanted)?;
                request.replaces = Some(id);
                if install.name.is_none() {
                    // A context that is replaced by name keeps its name, so that the same command works again.
                    request.name = name(&mut spind, id)?.unwrap_or(request.name);
                }
            }
            let context = spind.install(&request, &image)?;
            let place = request.replaces.map(|old| format!(" in place of {old}")).unwrap_or_default();
            writeln!(stdout(), "installed context {}{place}", context.id)?;
            context.warnings.iter().for_each(|warning| eprintln!("spinctl: {warning}"));
            warn_of_others(&mut spind, context.id);
        }
        Command::List { json, users: true } => {
            show::users(&mut stdout().lock(), &spind.users()?, json.form.is_some())?;
        }
        Command::List { json, users: false } => show::contexts(&mut stdout().lock(), &spind.contexts()?, json.form)?,
        Command::Stats { json, watch: Some(every), count, .. } => {
            if json.form == Some(JsonForm::Pairs) {
                return Err(Error::WatchInPairs);
            }
            watch::watch(&mut spind, *every, *count, json.form.is_some())?;
        }
        Command::Stats { json, explain, .. } => stats(spind.stats()?, json.form, *explain)?,
        Command::Capabilities { json } => {
            show::capabilities(&mut stdout().lock(), &spind.capabilities()?, json.form.is_some())?;
        }
        Command::Rm { context } => {
            let id = find_removable(&mut spind, context)?;
            spind.remove(id)?;
            writeln!(stdout(), "removed context {id}")?;
        }
        Command::Dump { context, offset, length } => {
            let id = spind.find(context)?;
            let (host, _) = spind.host_memory(id)?;
            dump(&host, *offset, *length)?;
        }
        Command::Events { context, follow, json } => {
            let id = spind.find(context)?;
            events::print(&mut spind, id, *follow, *json)?;
        }
        Command::Replay { input, output } => {
            if is_same(input, output) {
                return Err(Error::SameFile { path: output.clone() });
            }
            let (sent, replayed) = spind.replay_counted(&read(input)?)?;
            show::replayed(&mut stdout(), &replayed)?;
            fs::write(output, sent).map_err(|source| Error::File { path: output.clone(), source })?;
        }
    }
    Ok(())
}

/// The id of a context to remove. A persistent context that could not be restored is not listed, and has an id.
fn find_removable(spind: &mut Client, wanted: &str) -> Result<u32, libspin::Error> {
    match (spind.find(wanted), wanted.parse()) {
        (Err(libspin::Error::NoSuchContext(_)), Ok(id)) => Ok(id),
        (found, _) => found,
    }
}

/// Prints the output of `stats`.
fn stats(stats: libspin::Stats, form: Option<JsonForm>, explain: bool) -> std::io::Result<()> {
    let mut out = stdout().lock();
    match form {
        Some(JsonForm::Objects) => show::as_json(&mut out, &json::stats(&stats)?),
        Some(JsonForm::Pairs) => show::as_json(&mut out, &json::old_stats(stats)?),
        None => show::stats(&mut out, &stats, explain),
    }
}

/// Whether an earlier context's rule takes all packets of a rule: each of its conditions is one of that rule's.
fn hides(earlier: &str, rule: &str) -> bool {
    earlier == "any" || earlier.split(" and ").all(|term| rule.split(" and ").any(|own| own == term))
}

/// Prints which rules of a new context an earlier context hides: that one gets the packets.
fn warn_of_others(spind: &mut Client, id: u32) {
    let contexts = spind.contexts().unwrap_or_default();
    let Some(place) = contexts.iter().position(|context| context.context == id) else { return };
    for rule in &contexts[place].rules {
        if let Some(first) =
            contexts[..place].iter().find(|other| other.rules.iter().any(|earlier| hides(earlier, rule)))
        {
            eprintln!(
                "spinctl: note: context {} ({}) comes first, and gets what matches {rule:?}",
                first.context, first.name
            );
        }
    }
}

/// Writes a range of host memory to standard output.
fn dump(host: &libspin::Region, offset: u64, length: Option<u64>) -> Result<(), Error> {
    let end = length.map_or(host.len().max(offset), |length| offset.saturating_add(length));
    if offset > host.len() || end > host.len() {
        return Err(Error::Outside { offset, end, len: host.len() });
    }
    let mut out = stdout().lock();
    let mut chunk = [0; 4096];
    let mut at = offset;
    while at < end {
        let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(chunk.len());
        host.read(at, &mut chunk[..len])?;
        out.write_all(&chunk[..len])?;
        at += len as u64;
    }
    Ok(())
}

/// Whether two paths lead to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    let [one, other] = [one, other].map(|path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok());
    one.is_some() && one == other
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    // One byte more than spind accepts, so that an endless file is recognised as too long.
    let read = fs::File::open(path).and_then(|file| file.take(MAX_BLOB as u64 + 1).read_to_end(&mut bytes));
    read.map_err(|source| Error::File { path: path.to_path_buf(), source })?;
    if bytes.len() > MAX_BLOB { Err(Error::TooLong { path: path.to_path_buf() }) } else { Ok(bytes) }
}

/// Makes the request of `spinctl install`.
fn request(args: &InstallArgs) -> Install {
    let stem = args.image.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    Install {
        name: args.name.clone().or(stem).unwrap_or_default(),
        rules: args.rule.clone(),
        eom: args.eom.clone(),
        key: args.key.clone().or_else(|| (args.compat == Compat::Fpspin).then(|| Compat::Fpspin.to_string())),
        header: args.header.clone(),
        early: args.early,
        handlers: args.handlers.clone(),
        host_mem: args.host_mem,
        handler_mem: args.handler_mem,
        scratchpad: args.scratchpad,
        l1_bytes: args.l1_bytes,
        instruction_limit: args.instruction_limit,
        watchdog_us: args.watchdog_us,
        message_timeout_us: args.message_timeout_us,
        doorbell_us: args.doorbell_us,
        checks: args.checks,
        isolation: args.isolation,
        placement: args.placement,
        tier: args.tier,
        weight: Some(args.weight),
        full: args.full,
        hpus: Some(args.hpus),
        abi: args.abi,
        verdicts: args.verdicts,
        replaces: None,
        lifetime: args.lifetime,
        unit: args.unit,
        units: args.units,
        handler_mem_per_unit: args.handler_mem_per_unit,
    }
}

#[cfg(test)]
mod tests {
    use super::{Args, Command, Install, Parser, hides, request};
    use libspin::Tier;
    use serde_json::to_value;

    #[test]
    fn a_default_tier_is_not_sent_since_an_older_spind_refuses_the_key() {
        let sent = |words: &str| match Args::parse_from(words.split(' ')).command {
            Command::Install(args) => request(&args),
            other => panic!("{other:?}"),
        };
        let (usual, kernel) =
            (sent("spinctl install a.elf --rule any"), sent("spinctl install a.elf --rule any --tier kernel"));
        assert_eq!((usual.tier, kernel.tier), (Tier::User, Tier::Kernel));
        let [usual, kernel] = [usual, kernel].map(|request| to_value(request).unwrap());
        assert_eq!((usual.get("tier"), kernel["tier"].as_str()), (None, Some("kernel")));
        assert_eq!(serde_json::from_value::<Install>(kernel).unwrap().tier, Tier::Kernel);
    }

    #[test]
    fn a_rule_with_fewer_conditions_hides_one_with_more() {
        for (earlier, rule) in
            [("any", "udp"), ("udp dport 1", "udp dport 1"), ("udp dport 1", "ip src 10.0.0.1 and udp dport 1")]
        {
            assert!(hides(earlier, rule), "{earlier}, {rule}");
        }
        assert!(!hides("udp dport 1 and vlan", "udp dport 1") && !hides("udp dport 1", "udp dport 10"));
    }
}
