//! Data that connection threads share.

use std::sync::Arc;

use spin_abi::control::Capabilities;

use super::connection_limit::ConnectionLimit;
use super::payload_limit::PayloadLimit;
use super::prepare_slots::PrepareSlots;
use super::requests::ControlHandle;
use crate::context::loader::Loader;
use crate::control::policy::Policy;
use crate::control::policy::host::Host;
use crate::control::shared_memory_quota::SharedMemoryQuota;
use crate::settings::Limits;

/// Data that connection threads share.
pub(super) struct Shared {
    pub(super) loader: Arc<Loader>,
    pub(super) limits: Limits,
    /// Bytes of resident memory before requests are served.
    pub(super) own: u64,
    pub(super) policy: Policy,
    pub(super) host: Host,
    pub(super) capabilities: Capabilities,
    pub(super) control: ControlHandle,
    pub(super) connection_limit: Arc<ConnectionLimit>,
    pub(super) prepare_slots: PrepareSlots,
    pub(super) payload_limit: PayloadLimit,
    pub(super) shared_memory: SharedMemoryQuota,
}
