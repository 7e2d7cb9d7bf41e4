//! Users who do not trust each other, on one control socket. The tests run as root, to act as several users.

#[path = "../../nic/tests/common/mod.rs"]
mod common;

#[path = "users/audit.rs"]
mod audit;
#[path = "users/bill.rs"]
mod bill;
#[path = "users/client.rs"]
mod client;
#[path = "users/connections.rs"]
mod connections;
#[path = "users/forgery.rs"]
mod forgery;
#[path = "users/hostile.rs"]
mod hostile;
#[path = "users/names.rs"]
mod names;
#[path = "users/ownership.rs"]
mod ownership;
#[path = "users/visibility.rs"]
mod visibility;
