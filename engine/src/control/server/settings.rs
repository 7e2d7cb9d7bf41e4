//! Settings that may change while connections are open.

use std::sync::{Arc, PoisonError, RwLock};

use spin_abi::control::Capabilities;

use crate::control::policy::Policy;
use crate::settings::Limits;

/// Settings that each request is checked against.
#[derive(Debug)]
pub struct Settings {
    /// Limits for applications.
    pub limits: Limits,
    /// What ordinary users may match and send.
    pub policy: Policy,
    /// What applications are told of both.
    pub capabilities: Capabilities,
}

/// The settings in force. A connection takes them at each request.
#[derive(Clone, Debug)]
pub struct CurrentSettings(Arc<RwLock<Arc<Settings>>>);

impl CurrentSettings {
    /// The first settings.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(RwLock::new(settings.into())))
    }

    /// The settings now.
    #[must_use]
    pub fn get(&self) -> Arc<Settings> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the settings.
    pub fn set(&self, settings: Settings) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = settings.into();
    }
}
