//! Programs of contexts in the XDP hook: the hook process loads them, the loader process puts them into the filter's table.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use hpu_vm::bpf::{Layout, Options};
use hpu_vm::memory::Region;
use spin_abi::rules::MAX_PROGRAMS;

use super::client::{HookError, HookProcess, LoadRequest};
use super::message::MapToken;
use crate::control::loader_process::client::LoaderProcess;
use crate::hook::{LoadedProgram, Programs, Refusal};

/// Processors that packets may be received on (kernel documentation: `cputopology.rst`).
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
/// Name of the maps, for tools.
const MAP_NAME: &str = "spin_memory";
/// Name of programs of contexts without a name, for tools.
const NAME: &str = "spin_handler";
/// The longest name of a program (`BPF_OBJ_NAME_LEN` without the final NUL).
const MAX_NAME: usize = 15;

/// Both processes, and what they have been given.
#[derive(Debug)]
pub struct HookPrograms {
    hook: Arc<HookProcess>,
    loader: Arc<LoaderProcess>,
    sockets: MapToken,
    processors: u32,
    /// Memory that exists, with its map in the hook process.
    regions: Mutex<Vec<(Weak<Region>, MapToken)>>,
    /// Places in the filter's table that programs have.
    taken: Mutex<BTreeSet<u16>>,
}

impl HookPrograms {
    /// Programs that hand packets of user space to the sockets of a map.
    ///
    /// # Errors
    /// The hook process does not take the map.
    pub fn new(hook: Arc<HookProcess>, loader: Arc<LoaderProcess>, sockets: BorrowedFd<'_>) -> Result<Self, HookError> {
        let sockets = hook.add_sockets(sockets)?;
        let (processors, regions, taken) = (possible_processors(), Mutex::default(), Mutex::default());
        Ok(Self { hook, loader, sockets, processors, regions, taken })
    }

    /// Has the hook process close the maps of memory that is gone.
    fn free_maps(&self) -> Result<(), HookError> {
        let mut regions = lock(&self.regions);
        let is_gone = |(region, _): &(Weak<Region>, MapToken)| region.strong_count() == 0;
        let gone: Vec<MapToken> = regions.iter().filter(|entry| is_gone(entry)).map(|(_, token)| *token).collect();
        if gone.is_empty() {
            return Ok(());
        }
        regions.retain(|entry| !is_gone(entry));
        self.hook.free_maps(&gone)
    }

    /// The map of a region that exists.
    fn token(&self, region: &Arc<Region>) -> Option<MapToken> {
        let is_it = |(known, _): &&(Weak<Region>, MapToken)| known.as_ptr() == Arc::as_ptr(region);
        lock(&self.regions).iter().find(is_it).map(|(_, token)| *token)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is complete, or has not begun.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Programs for HookPrograms {
    fn processors(&self) -> u32 {
        self.processors
    }

    fn region(&self, len: usize) -> Result<Arc<Region>, Refusal> {
        self.free_maps().map_err(|error| Refusal::of(&error))?;
        let bytes = u32::try_from(len).map_err(|error| Refusal::of(&error))?;
        let (token, map) = self.hook.make_map(MAP_NAME, bytes).map_err(|error| Refusal::of(&error))?;
        let region = Region::adopt(map, len)?;
        lock(&self.regions).push((Arc::downgrade(&region), token));
        Ok(region)
    }

    fn load(
        &self,
        name: &str,
        image: &[u8],
        layout: &Layout,
        options: Options,
        maps: &[&Arc<Region>],
    ) -> Result<LoadedProgram, Refusal> {
        let tokens: Option<Vec<MapToken>> = maps.iter().map(|region| self.token(region)).collect();
        let mut tokens = tokens.ok_or_else(|| Refusal("memory that is in no map".to_owned()))?;
        let sockets = u32::try_from(tokens.len()).ok();
        tokens.push(self.sockets);
        let name = tool_name(name);
        let request =
            LoadRequest { name: &name, image, layout, options: Options { sockets, ..options }, maps: &tokens };
        let loaded = self.hook.load(request).map_err(|error| Refusal::of(&error))?;
        Ok(LoadedProgram(loaded.fd))
    }

    fn take_index(&self) -> Option<u16> {
        let mut taken = lock(&self.taken);
        let index = (0..MAX_PROGRAMS as u16).find(|index| !taken.contains(index))?;
        taken.insert(index);
        Some(index)
    }

    fn free_index(&self, index: u16) {
        lock(&self.taken).remove(&index);
    }

    fn set(&self, index: u16, program: BorrowedFd<'_>) -> Result<(), Refusal> {
        self.loader.set_hook(index.into(), program).map_err(|error| Refusal::of(&error))
    }

    fn clear(&self, index: u16) -> Result<(), Refusal> {
        self.loader.clear_hook(index.into()).map_err(|error| Refusal::of(&error))
    }
}

/// The name of a context's program, for tools: what the kernel allows of the context's name.
fn tool_name(context: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' };
    let name: String = context.chars().map(allowed).take(MAX_NAME).collect();
    if name.is_empty() { NAME.to_owned() } else { name }
}

/// One more than the number of the last processor that there may be.
fn possible_processors() -> u32 {
    let list = fs::read_to_string(POSSIBLE).ok();
    let last = list.as_deref().and_then(|list| list.trim().rsplit(['-', ',']).next()?.parse::<u32>().ok());
    let present = || thread::available_parallelism().ok().and_then(|count| u32::try_from(count.get()).ok());
    last.map(|last| last.saturating_add(1)).or_else(present).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::tool_name;

    #[test]
    fn programs_have_the_name_of_their_context() {
        for (context, program) in [
            ("", "spin_handler"),
            ("udp_pingpong", "udp_pingpong"),
            ("a b/c-d.e", "a_b_c_d.e"),
            ("a name of more than fifteen letters", "a_name_of_more_"),
            ("größe", "gr__e"),
        ] {
            assert_eq!(tool_name(context), program, "{context}");
        }
    }
}
