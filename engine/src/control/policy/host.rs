//! The host whose interface spind serves: its addresses, and its ports.

use std::io;
use std::sync::Arc;

use spin_pspin::hpu::send_rights::HostAddresses;

use super::ranges::Unprivileged;
use crate::control::loader_process::client::LoaderProcess;
use crate::install::ports::Ports;

/// The host behind the NIC.
#[derive(Clone, Debug)]
pub enum Host {
    /// None: the frames are those of a capture.
    Absent,
    /// The host of an interface.
    Interface {
        /// Name of the interface.
        name: String,
        /// Reads its addresses.
        loader: Arc<LoaderProcess>,
        /// Ports that contexts have.
        ports: Arc<Ports>,
    },
}

impl Host {
    /// The addresses of the interface now. `None` without a host.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn addresses(&self) -> io::Result<Option<HostAddresses>> {
        match self {
            Self::Absent => Ok(None),
            Self::Interface { name, loader, .. } => loader.addresses(name).map(Some),
        }
    }

    /// The ports that contexts have. `None` without a host.
    #[must_use]
    pub const fn ports(&self) -> Option<&Arc<Ports>> {
        match self {
            Self::Absent => None,
            Self::Interface { ports, .. } => Some(ports),
        }
    }

    /// The unprivileged ports now. Those of the kernel's defaults without a host.
    #[must_use]
    pub fn unprivileged(&self) -> Unprivileged {
        match self {
            Self::Absent => Unprivileged::new(1024, (32_768, 60_999)),
            Self::Interface { .. } => Unprivileged::of_host(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    use spin_pspin::hpu::send_rights::HostAddresses;

    use super::{Host, LoaderProcess, Ports};

    fn host(name: &str) -> Host {
        let loader = Arc::new(LoaderProcess::on_thread());
        Host::Interface { name: name.to_owned(), ports: Arc::new(Ports::new(loader.clone(), 100)), loader }
    }

    #[test]
    fn the_loopback_has_its_addresses() {
        let HostAddresses { mac, ip } = host("lo").addresses().expect("it exists").expect("a host");
        assert_eq!(mac, [0; 6]);
        assert!(ip.contains(&IpAddr::from(Ipv4Addr::LOCALHOST)), "{ip:?}");
        let gone = host("nosuchif0").addresses().expect_err("no such interface").to_string();
        assert!(gone.contains("nosuchif0"), "{gone}");
        assert_eq!(Host::Absent.addresses().expect("nothing to ask"), None);
    }
}
