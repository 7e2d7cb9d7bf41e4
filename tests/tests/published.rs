//! PsPIN's example handlers, written from the machine's documentation as their authors would (`tests/published/pspin`), in all forms of
//! images: under drivers of the simulation, and under spind on the loopback NIC and on veth. Oddities of the originals are kept.

#[path = "../../nic/tests/common/mod.rs"]
mod common;
#[path = "../published/image.rs"]
mod images;
#[path = "../../nic/tests/packet_socket/mod.rs"]
mod packet_socket;
#[path = "published/simulated.rs"]
mod simulated;
#[path = "published/under_spind.rs"]
mod under_spind;
