//! The output of `events`: text, or one JSON object in each line.

use std::collections::HashMap;
use std::io::{Write, stdout};
use std::time::Duration;

use libspin::{Client, Event, FaultInfo, SourceLine, What};
use serde::Serialize;

use crate::error::Error;

/// An event as JSON: the fields of [`Event`], and what spind knows of a fault's place.
#[derive(Serialize)]
struct EventObject<'e> {
    context: u32,
    #[serde(flatten)]
    event: Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    symbol: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<&'e SourceLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inlined_at: Option<&'e SourceLine>,
}

/// Events that were overwritten before they were read, as JSON.
#[derive(Serialize)]
#[serde(tag = "event", rename = "lost")]
struct LostObject {
    context: u32,
    count: u64,
}

/// Prints the pending events; with `follow`, also new ones until the context is removed.
pub fn print(spind: &mut Client, context: u32, follow: bool, json: bool) -> Result<(), Error> {
    let mut events = spind.events(context)?;
    let mut places = HashMap::new();
    loop {
        let lost = events.lost();
        let read: Vec<_> = events.by_ref().collect();
        if events.lost() > lost {
            writeln!(stdout(), "{}", lost_line(context, events.lost() - lost, json)?)?;
        }
        for event in read {
            let place = match event.what {
                What::Fault { fault, .. } => place(spind, context, fault.pc, &mut places),
                _ => None,
            };
            writeln!(stdout(), "{}", line(context, event, place, json)?)?;
        }
        if !follow {
            return Ok(());
        }
        // The last events are written before the context is removed.
        while !events.wait(Duration::from_secs(1)) {
            if name(spind, context)?.is_none() && !events.wait(Duration::ZERO) {
                eprintln!("spinctl: context {context} is gone");
                return Ok(());
            }
        }
    }
}

fn line(context: u32, event: Event, place: Option<&FaultInfo>, json: bool) -> std::io::Result<String> {
    if json {
        let symbol = place.map(|place| place.symbol.as_str());
        let line = place.and_then(|place| place.line.as_ref());
        let inlined_at = place.and_then(|place| place.inlined_at.as_ref());
        return Ok(serde_json::to_string(&EventObject { context, event, symbol, line, inlined_at })?);
    }
    Ok(place.map_or_else(|| event.to_string(), |place| format!("{event} in {}", place.place())))
}

fn lost_line(context: u32, count: u64, json: bool) -> std::io::Result<String> {
    if json {
        return Ok(serde_json::to_string(&LostObject { context, count })?);
    }
    Ok(format!("{count} events were overwritten before they were read"))
}

/// Returns a fault with the same pc, which has function and line, from spind's list of the context's latest faults. Known
/// places are not requested again.
fn place<'p>(
    spind: &mut Client,
    context: u32,
    pc: u32,
    places: &'p mut HashMap<u32, Option<FaultInfo>>,
) -> Option<&'p FaultInfo> {
    if !places.contains_key(&pc) {
        let contexts = spind.contexts().unwrap_or_default();
        let faults = contexts.into_iter().filter(|info| info.context == context).flat_map(|info| info.faults);
        places.extend(faults.map(|info| (info.fault.pc, Some(info))));
    }
    places.entry(pc).or_default().as_ref()
}

/// Returns a context's name; `None` if the context does not exist.
pub fn name(spind: &mut Client, id: u32) -> Result<Option<String>, Error> {
    match spind.contexts() {
        Err(libspin::Error::Refused(_)) => Ok(Some(String::new())),
        contexts => Ok(contexts?.into_iter().find(|context| context.context == id).map(|context| context.name)),
    }
}

#[cfg(test)]
mod tests {
    use super::{line, lost_line};
    use libspin::{Direction, Event, FaultInfo, SourceLine, What};
    use serde_json::{Value, json};

    const FAULT: &str = r#"{"handler": "payload", "symbol": "dig+0x4", "line": {"file": "dig.c", "line": 34},
        "fault": {"cause": "load-access", "pc": 4096, "address": 7}}"#;

    fn object(what: What, place: Option<&FaultInfo>) -> Value {
        let text = line(3, Event { flow: 9, what }, place, true).unwrap();
        assert!(!text.contains('\n'), "one line: {text}");
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn each_event_is_an_object() {
        let info: FaultInfo = serde_json::from_str(FAULT).unwrap();
        let fault = What::Fault { stage: 1, fault: info.fault };
        let expected = json!({"context": 3, "flow": 9, "event": "fault", "stage": 1,
            "fault": {"cause": "load-access", "pc": 4096, "address": 7},
            "symbol": "dig+0x4", "line": {"file": "dig.c", "line": 34}});
        assert_eq!(object(fault, Some(&info)), expected);
        assert_eq!(object(fault, None).get("symbol"), None);
        let inlined = FaultInfo { inlined_at: Some(SourceLine { file: "own.c".into(), line: 5 }), ..info };
        assert_eq!(object(fault, Some(&inlined))["inlined_at"], json!({"file": "own.c", "line": 5}));
        for (what, name) in [(What::TimedOut, "timed-out"), (What::Evicted, "evicted"), (What::Killed, "killed")] {
            assert_eq!(object(what, None), json!({"context": 3, "flow": 9, "event": name}));
        }
        let copied = What::Copied { direction: Direction::ToHost, host: 1 << 40, length: 64 };
        let expected = json!({"context": 3, "flow": 9, "event": "copied", "direction": "to-host",
            "host": 1_u64 << 40, "length": 64});
        assert_eq!(object(copied, None), expected);
        let lost: Value = serde_json::from_str(&lost_line(3, 5, true).unwrap()).unwrap();
        assert_eq!(lost, json!({"context": 3, "event": "lost", "count": 5}));
    }

    #[test]
    fn text_names_the_place_of_a_fault() {
        let info: FaultInfo = serde_json::from_str(FAULT).unwrap();
        let event = Event { flow: 9, what: What::Fault { stage: 1, fault: info.fault } };
        assert!(line(3, event, Some(&info), false).unwrap().ends_with(" in dig+0x4 (dig.c:34)"));
    }
}
