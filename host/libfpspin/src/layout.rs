//! Structures and constants of `fpspin.h`, in C layout.

use core::ffi::{c_int, c_void};
use core::mem::{align_of, offset_of, size_of};

use crate::slmp;

/// Number of HPUs of the machine.
pub const NUM_HPUS: usize = 16;
/// Bytes of a host memory page; each HPU has one.
pub const PAGE_SIZE: usize = 4096;
/// Default number of pages: one for each HPU.
pub const HOSTDMA_PAGES_DEFAULT: usize = 16;
/// Offset of an HPU's payload in its page.
pub const DMA_ALIGN: usize = 64;
/// Number of counters of an image.
pub const NUM_COUNTERS: usize = 16;
/// Maximum number of rulesets of a context.
pub const NUM_RULESETS: usize = 4;

/// `FPSPIN_MODE_AND`.
pub const MODE_AND: c_int = 0;
/// `FPSPIN_MODE_OR`.
pub const MODE_OR: c_int = 1;

/// `struct fpspin_rule`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Rule {
    /// Index of the 32-bit word in the frame.
    pub idx: c_int,
    /// Mask applied to the word.
    pub mask: u32,
    /// Smallest masked value that matches.
    pub start: u32,
    /// Greatest masked value that matches.
    pub end: u32,
}

/// `fpspin_ruleset_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Ruleset {
    /// Rules: 0 to 2 match a packet, rule 3 marks the end of a message.
    pub r: [Rule; 4],
    /// [`MODE_AND`] or [`MODE_OR`].
    pub mode: c_int,
}

/// The named members of `fpspin_flag_t`. That they are packed decides how C passes a flag: on x86-64, in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, packed)]
pub struct FlagParts {
    /// Request id.
    pub dma_id: u8,
    /// Payload length in bytes.
    pub len: u32,
    /// HPU number.
    pub hpu_id: u16,
}

/// `fpspin_flag_t`: a doubleword.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct Flag {
    /// The first bytes.
    pub parts: FlagParts,
    /// The last byte.
    pub spare: u8,
}

impl Flag {
    /// The flag as a number.
    #[must_use]
    pub const fn word(self) -> u64 {
        let Self { parts: FlagParts { dma_id, len, hpu_id }, spare } = self;
        dma_id as u64 | (len as u64) << 8 | (hpu_id as u64) << 40 | (spare as u64) << 56
    }

    /// The flag of a number.
    #[must_use]
    pub const fn of(word: u64) -> Self {
        let parts = FlagParts { dma_id: word as u8, len: (word >> 8) as u32, hpu_id: (word >> 40) as u16 };
        Self { parts, spare: (word >> 56) as u8 }
    }
}

/// `fpspin_counter_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counter {
    /// Sum of all counted values.
    pub sum: u32,
    /// Number of counted values.
    pub count: u32,
}

impl Counter {
    /// Returns the average; 0 if nothing was counted.
    #[must_use]
    pub fn average(self) -> f64 {
        if self.count == 0 { 0.0 } else { f64::from(self.sum) / f64::from(self.count) }
    }

    /// Returns the average as a whole number; 0 if nothing was counted.
    #[must_use]
    pub fn whole_average(self) -> u32 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }
}

/// `struct host_data`.
#[repr(C)]
pub struct HostData {
    /// Answer to the latest request of each HPU.
    pub flag: [u64; NUM_HPUS],
    /// Counters that handlers update.
    pub counters: [Counter; NUM_COUNTERS],
}

/// `struct mem_area`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct MemArea {
    /// Address of the first byte in NIC memory.
    pub addr: u32,
    /// Size in bytes.
    pub size: u32,
}

/// `fpspin_ctx_t`.
#[derive(Debug)]
#[repr(C)]
pub struct Ctx {
    /// Context id that the program passed.
    pub ctx_id: c_int,
    /// Descriptor of the connection to spind.
    pub fd: c_int,
    /// Host memory, mapped.
    pub cpu_addr: *mut c_void,
    /// Length of the host memory in bytes.
    pub mmap_len: usize,
    /// Id of the request taken last, for each HPU.
    pub dma_idx: [u8; NUM_HPUS],
    /// Address of `__host_data` in NIC memory; the C field is the pointer `pspin_host_data`.
    pub host_data_ptr: u64,
    /// Header handler.
    pub hh: MemArea,
    /// Payload handler.
    pub ph: MemArea,
    /// Completion handler.
    pub th: MemArea,
    /// Handler memory.
    pub handler_mem: MemArea,
    /// Program-defined pointer.
    pub app_data: *mut c_void,
}

/// `slmp_sock_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SlmpSock {
    /// Whether more than one thread sends.
    pub parallel: bool,
    /// Maximum number of unacknowledged packets.
    pub wnd_sz: c_int,
    /// Alignment of payload lengths in bytes.
    pub align: c_int,
    /// Interval between packets in microseconds.
    pub fc_us: c_int,
    /// Number of sending threads.
    pub num_threads: c_int,
}

const _: () = {
    assert!(NUM_HPUS == 16 && PAGE_SIZE == 4096 && HOSTDMA_PAGES_DEFAULT == 16 && DMA_ALIGN == 64);
    assert!(NUM_COUNTERS == 16 && NUM_RULESETS == 4 && MODE_AND == 0 && MODE_OR == 1);
    assert!(slmp::PORT == 9330 && slmp::MAX_PAYLOAD == 1462);
    assert!(slmp::EOM == 0x8000 && slmp::SYN == 0x4000 && slmp::ACK == 0x2000);
    assert!(size_of::<Rule>() == 16 && offset_of!(Rule, mask) == 4 && offset_of!(Rule, start) == 8);
    assert!(offset_of!(Rule, idx) == 0 && offset_of!(Rule, end) == 12);
    assert!(size_of::<Ruleset>() == 68 && offset_of!(Ruleset, r) == 0 && offset_of!(Ruleset, mode) == 64);
    assert!(size_of::<Flag>() == 8 && align_of::<Flag>() == 8 && offset_of!(Flag, parts) == 0);
    assert!(offset_of!(FlagParts, len) == 1 && offset_of!(FlagParts, hpu_id) == 5 && offset_of!(Flag, spare) == 7);
    assert!(size_of::<Counter>() == 8 && offset_of!(Counter, count) == 4);
    assert!(size_of::<HostData>() == 256 && offset_of!(HostData, counters) == 128);
    assert!(size_of::<MemArea>() == 8 && offset_of!(MemArea, size) == 4);
    assert!(size_of::<SlmpSock>() == 20 && offset_of!(SlmpSock, parallel) == 0 && offset_of!(SlmpSock, wnd_sz) == 4);
    assert!(offset_of!(SlmpSock, align) == 8 && offset_of!(SlmpSock, fc_us) == 12);
    assert!(offset_of!(SlmpSock, num_threads) == 16);
    assert!(size_of::<Ctx>() == 88 && offset_of!(Ctx, ctx_id) == 0 && offset_of!(Ctx, fd) == 4);
    assert!(offset_of!(Ctx, cpu_addr) == 8 && offset_of!(Ctx, mmap_len) == 16 && offset_of!(Ctx, dma_idx) == 24);
    assert!(offset_of!(Ctx, host_data_ptr) == 40 && offset_of!(Ctx, hh) == 48 && offset_of!(Ctx, ph) == 56);
    assert!(offset_of!(Ctx, th) == 64 && offset_of!(Ctx, handler_mem) == 72 && offset_of!(Ctx, app_data) == 80);
};

#[cfg(test)]
mod tests {
    use super::{Counter, Flag, FlagParts};

    #[test]
    fn a_flag_is_a_doubleword() {
        let parts = FlagParts { dma_id: 0x11, len: 0x2233_4455, hpu_id: 0x6677 };
        let flag = Flag { parts, spare: 0x88 };
        assert_eq!(flag.word(), 0x8866_7722_3344_5511);
        assert_eq!(Flag::of(flag.word()), flag);
    }

    #[test]
    fn the_average_of_nothing_is_nothing() {
        assert!(Counter { sum: 5, count: 0 }.average().abs() < f64::EPSILON);
        assert!((Counter { sum: 5, count: 2 }.average() - 2.5).abs() < f64::EPSILON);
        let whole = [(5, 0), (5, 2), (7, 7)].map(|(sum, count)| Counter { sum, count }.whole_average());
        assert_eq!(whole, [0, 2, 1]);
    }
}
