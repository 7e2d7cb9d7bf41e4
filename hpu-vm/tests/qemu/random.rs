//! A deterministic source of numbers that likes edges.

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.next() % u64::from(bound)).unwrap()
    }

    pub fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    pub fn choose<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(u32::try_from(items.len()).unwrap()) as usize]
    }

    /// A register value: half the time one where signs, carries or widths change.
    pub fn value(&mut self) -> u32 {
        const EDGES: [u32; 12] =
            [0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];
        match self.below(4) {
            0 => self.choose(&EDGES),
            1 => self.choose(&EDGES).wrapping_neg(),
            _ => u32::try_from(self.next() >> 32).unwrap(),
        }
    }

    /// A signed number of `bits` bits: the least, the greatest and small ones more often.
    pub fn signed(&mut self, bits: u32) -> i32 {
        let least = -(1 << (bits - 1));
        match self.below(4) {
            0 => self.choose(&[least, -least - 1, -1, 0, 1]),
            _ => least + self.below(1 << bits).cast_signed(),
        }
    }
}
