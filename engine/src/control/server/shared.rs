//! What connection threads share.

use std::sync::Arc;

use spin_abi::control::Capabilities;

use super::connection_limit::Connections;
use super::payload_limit::Blobs;
use super::prepare_slots::Turns;
use super::requests::Control;
use crate::control::shared_memory_quota::Handed;
use crate::loader::Loader;
use crate::settings::Limits;

/// What connection threads share.
pub(super) struct Shared {
    pub(super) loader: Arc<Loader>,
    pub(super) limits: Limits,
    pub(super) capabilities: Capabilities,
    pub(super) control: Control,
    pub(super) connections: Arc<Connections>,
    pub(super) turns: Turns,
    pub(super) blobs: Blobs,
    pub(super) handed: Handed,
}
