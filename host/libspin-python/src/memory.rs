//! Host memory as a Python object with the buffer protocol.
#![allow(unsafe_code, reason = "fills Python's structure that describes a buffer")]

use std::ffi::c_int;
use std::sync::Arc;

use libspin::{OutOfBounds, Region};
use pyo3::exceptions::{PyIndexError, PyMemoryError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

/// Host memory of a context, or memory to attach to contexts. It stays mapped as long as this object or a view of it exists.
#[pyclass(frozen, module = "libspin._libspin")]
pub struct HostMemory {
    region: Arc<Region>,
    address: u64,
}

impl HostMemory {
    /// Memory that handlers address as this process does.
    pub fn mapped_here(region: Region) -> Self {
        let address = region.address();
        Self::new(region, address)
    }

    /// Memory whose first byte has `address` in handlers.
    pub fn new(region: Region, address: u64) -> Self {
        Self { region: Arc::new(region), address }
    }

    /// The region, to attach it.
    pub fn region(&self) -> Arc<Region> {
        self.region.clone()
    }
}

/// Refuses an offset at which a word of `size` bytes is not read atomically.
fn aligned(offset: u64, size: u64) -> PyResult<u64> {
    let refusal = || PyValueError::new_err(format!("offset {offset:#x} is not a multiple of {size}"));
    offset.is_multiple_of(size).then_some(offset).ok_or_else(refusal)
}

fn outside(error: OutOfBounds) -> PyErr {
    PyIndexError::new_err(error.to_string())
}

#[pymethods]
impl HostMemory {
    /// Address of the first byte in handlers.
    #[getter]
    fn address(&self) -> u64 {
        self.address
    }

    /// Copies bytes from memory.
    fn read<'py>(&self, py: Python<'py>, offset: u64, length: usize) -> PyResult<Bound<'py, PyBytes>> {
        // Checked before memory is allocated.
        let end = offset.checked_add(length as u64).filter(|end| *end <= self.region.len());
        end.ok_or_else(|| outside(OutOfBounds { offset, len: length, region: self.region.len() }))?;
        PyBytes::new_with(py, length, |to| self.region.read(offset, to).map_err(outside))
    }

    /// Copies the bytes of an object with the buffer protocol to memory.
    fn write(&self, offset: u64, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let copy = PyMemoryView::from(data)?.call_method0("tobytes")?;
        self.region.write(offset, copy.cast::<PyBytes>()?.as_bytes()).map_err(outside)
    }

    /// Reads four aligned bytes atomically, as a little-endian number.
    fn u32(&self, offset: u64) -> PyResult<u32> {
        self.region.load_u32(aligned(offset, 4)?).map_err(outside)
    }

    /// Reads eight aligned bytes atomically, as a little-endian number.
    fn u64(&self, offset: u64) -> PyResult<u64> {
        self.region.load_u64(aligned(offset, 8)?).map_err(outside)
    }

    fn __len__(&self) -> PyResult<usize> {
        usize::try_from(self.region.len()).map_err(|error| PyMemoryError::new_err(error.to_string()))
    }

    fn __repr__(&self) -> String {
        format!("<HostMemory: {} bytes, {:#x} in handlers>", self.region.len(), self.address)
    }

    /// Describes the memory as bytes that may be written.
    ///
    /// # Safety
    /// `view` is null or may be written.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let memory = slf.get();
        let len = isize::try_from(memory.region.len())?;
        // SAFETY: Python passes a view that may be written, or null, which is refused. The view counts as a reference to
        // `slf`, and `slf` keeps its region until it is freed, so all `len` bytes stay mapped and writable as long as
        // the view exists. No Rust reference to these bytes exists: Rust accesses them only within `Region::read` and
        // `Region::write`, by atomics or as C does, while this thread has the GIL. Users of the view are C code.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), memory.region.as_ptr().cast(), len, 0, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}
