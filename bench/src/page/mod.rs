//! The report of a run of the benches: one HTML page with plots and tables.
//!
//! * [`source`]: reading the results files.
//! * [`html`]: escaping, tables, page skeleton.
//! * [`svg`]: bar charts.
//! * [`published`]: figures that papers state.
//! * [`head`]: machine, method and commands.
//! * [`wire`]: spind and other programs on one wire.
//! * [`engine`]: the engine on packets in memory.
//! * [`handlers`]: the paper's handlers in every execution mode.
//! * [`budget`]: cores that a handler needs at a line rate.
//! * [`comparison`]: published figures beside those of the run.
//! * [`sections`]: the page of all sections, and the summary.

pub mod budget;
pub mod comparison;
pub mod engine;
pub mod handlers;
pub mod head;
pub mod html;
pub mod published;
pub mod sections;
pub mod source;
pub mod svg;
pub mod wire;
