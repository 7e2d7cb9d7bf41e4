//! Persistent contexts: they survive restarts of spind and `kill -9`, and other contexts do not.

#[path = "../../nic/tests/common/mod.rs"]
mod common;

#[path = "persistence/kills.rs"]
mod kills;
#[path = "persistence/refused.rs"]
mod refused;
#[path = "persistence/restart.rs"]
mod restart;
#[path = "persistence/state.rs"]
mod state;
