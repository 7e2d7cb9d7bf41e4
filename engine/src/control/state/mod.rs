//! The state folder: an entry for each persistent context, so that the next start installs it again.
//!
//! An entry is a file that is written to a temporary name, synchronised, and renamed. Connection threads write: a request is answered
//! once its change is durable. Packet threads and the control thread never wait for a disk.
//!
//! * `entry`: the contents of an entry; `file_name`: names of entries; `folder`: files; `error`: why a folder cannot be used.
//! * `store`: the entries of all contexts, and the claims of threads that change them.
//! * `rank_table`: ranks of all contexts.

mod entry;
mod error;
mod file_name;
mod folder;
mod rank_table;
mod store;

pub use entry::{Entry, RuleTexts};
pub use error::StateError;
pub use rank_table::RankTable;
pub use store::{Claim, LoadError, Staged, State};
