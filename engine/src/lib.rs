//! placeholder
pub mod mpq;
