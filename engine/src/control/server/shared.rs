//! Data that connection threads share.

use std::sync::Arc;

use super::connection_limit::ConnectionLimit;
use super::payload_limit::PayloadLimit;
use super::prepare_slots::PrepareSlots;
use super::requests::ControlHandle;
use super::settings::CurrentSettings;
use crate::context::loader::Loader;
use crate::control::descriptor_process::client::DescriptorProcess;
use crate::control::policy::host::Host;
use crate::control::shared_memory_quota::SharedMemoryQuota;
use crate::control::state::State;

/// Data that connection threads share.
pub(super) struct Shared {
    pub(super) loader: Arc<Loader>,
    pub(super) settings: CurrentSettings,
    /// Bytes of resident memory before requests are served.
    pub(super) own: u64,
    pub(super) host: Host,
    /// Entries of persistent contexts. `None`: there are none.
    pub(super) state: Option<Arc<State>>,
    pub(super) control: ControlHandle,
    pub(super) connection_limit: Arc<ConnectionLimit>,
    pub(super) prepare_slots: PrepareSlots,
    pub(super) attach_slots: PrepareSlots,
    pub(super) payload_limit: PayloadLimit,
    pub(super) shared_memory: SharedMemoryQuota,
    pub(super) descriptors: DescriptorProcess,
}
