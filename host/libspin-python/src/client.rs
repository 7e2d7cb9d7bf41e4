//! Requests to spind.

use std::path::PathBuf;

use libspin::{Error, Install, Region};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use serde::Serialize;

use crate::connection::Connection;
use crate::errors::{InternalError, InvalidValueError, exception};
use crate::events::Events;
use crate::memory::HostMemory;

/// A connection to spind.
#[pyclass(frozen, module = "libspin._libspin")]
pub struct Client(Connection);

/// Allocates memory that can be attached to contexts, in huge pages of `page` bytes unless that is 0.
#[pyfunction]
pub fn alloc(length: u64, page: u64) -> PyResult<HostMemory> {
    let made = if page == 0 { Region::create(length) } else { Region::create_huge(length, page) };
    made.map(HostMemory::mapped_here).map_err(|error| exception(&error.into()))
}

/// Encodes a structure for the package's Python code.
fn json(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| InternalError::new_err(format!("internal error: {error}")))
}

#[pymethods]
impl Client {
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        Connection::open(&path).map(Self)
    }

    /// Closes the connection.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    /// Installs a context. Returns its id, host memory, warnings, and the JSON of its areas.
    fn install(
        &self,
        py: Python<'_>,
        options: &str,
        image: PyBackedBytes,
    ) -> PyResult<(u32, Option<HostMemory>, Vec<String>, String)> {
        let install: Install =
            serde_json::from_str(options).map_err(|error| InvalidValueError::new_err(error.to_string()))?;
        let context = self.0.call(py, move |spind| spind.install(&install, &image))?;
        Ok((context.id, context.host.map(HostMemory::mapped_here), context.warnings, json(&context.areas)?))
    }

    /// Maps the host memory of a context that another process may have installed.
    fn host_memory(&self, py: Python<'_>, context: u32) -> PyResult<HostMemory> {
        let (region, address) = self.0.call(py, move |spind| spind.host_memory(context))?;
        Ok(HostMemory::new(region, address))
    }

    /// Maps the event ring of a context.
    fn events(&self, py: Python<'_>, context: u32) -> PyResult<Events> {
        self.0.call(py, move |spind| spind.events(context)).map(Events::new)
    }

    /// Attaches memory to a context.
    fn attach(&self, py: Python<'_>, context: u32, memory: &Bound<'_, HostMemory>) -> PyResult<()> {
        let region = memory.get().region();
        self.0.call(py, move |spind| spind.attach(context, &region))
    }

    /// Detaches memory from a context.
    fn detach(&self, py: Python<'_>, context: u32, memory: &Bound<'_, HostMemory>) -> PyResult<()> {
        let address = memory.get().region().address();
        self.0.call(py, move |spind| spind.detach(context, address))
    }

    /// Reads NIC memory of a unit.
    fn read_memory<'py>(
        &self,
        py: Python<'py>,
        context: u32,
        unit: u32,
        address: u32,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        if length > libspin::MAX_BLOB {
            let most = libspin::MAX_BLOB;
            return Err(InvalidValueError::new_err(format!("length: {length} bytes: at most {most} at a time")));
        }
        let read = self.0.call(py, move |spind| {
            let mut read = vec![0; length];
            spind.read_unit_memory(context, unit, address, &mut read).map(|()| read)
        })?;
        Ok(PyBytes::new(py, &read))
    }

    /// Writes NIC memory of a unit.
    fn write_memory(&self, py: Python<'_>, context: u32, unit: u32, address: u32, data: PyBackedBytes) -> PyResult<()> {
        self.0.call(py, move |spind| spind.write_unit_memory(context, unit, address, &data))
    }

    /// Replaces the rules of a context.
    fn set_rules(&self, py: Python<'_>, context: u32, rules: Vec<String>, eom: Option<String>) -> PyResult<()> {
        self.0.call(py, move |spind| spind.set_rules(context, rules, eom))
    }

    /// Removes a context.
    fn remove(&self, py: Python<'_>, context: u32) -> PyResult<()> {
        self.0.call(py, move |spind| spind.remove(context))
    }

    /// Returns the id of a context by name or id.
    fn find(&self, py: Python<'_>, name: String) -> PyResult<u32> {
        self.0.call(py, move |spind| spind.find(&name))
    }

    /// Returns all contexts as JSON.
    fn contexts(&self, py: Python<'_>) -> PyResult<String> {
        self.read(py, libspin::Client::contexts)
    }

    /// Returns all counters as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        self.read(py, libspin::Client::stats)
    }

    /// Returns the bills of users as JSON.
    fn users(&self, py: Python<'_>) -> PyResult<String> {
        self.read(py, libspin::Client::users)
    }

    /// Returns spind's capabilities as JSON.
    fn capabilities(&self, py: Python<'_>) -> PyResult<String> {
        self.read(py, libspin::Client::capabilities)
    }

    /// Replays a pcap. Returns the pcap of sent frames, and the counts as JSON.
    fn replay<'py>(&self, py: Python<'py>, pcap: PyBackedBytes) -> PyResult<(Bound<'py, PyBytes>, String)> {
        let (sent, counts) = self.0.call(py, move |spind| spind.replay_counted(&pcap))?;
        Ok((PyBytes::new(py, &sent), json(&counts)?))
    }
}

impl Client {
    fn read<T: Serialize + Send + 'static>(
        &self,
        py: Python<'_>,
        request: fn(&mut libspin::Client) -> Result<T, Error>,
    ) -> PyResult<String> {
        json(&self.0.call(py, request)?)
    }
}
