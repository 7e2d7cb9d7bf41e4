//! The image, its rules, and the packets that arrive for it.

use spin_abi::control::Install;
use spin_nic::traffic::{Pattern, Plan, PlanError};

/// An execution context and the load on it.
#[derive(Clone, Debug)]
pub struct Context {
    /// The handler image.
    pub image: Vec<u8>,
    /// How it is installed.
    pub install: Install,
    /// Packets that match its rules.
    pub packets: Packets,
}

/// Packets that arrive.
#[derive(Clone, Debug)]
pub enum Packets {
    /// UDP datagrams of a plan, with frames of each of the lengths.
    Plan(Box<Plan>),
    /// Captured frames.
    Captured(Vec<Vec<u8>>),
}

/// Frames of a length, in memory.
const FRAMES: usize = 1024;

impl Packets {
    /// The frames of each length, or the captured ones together.
    ///
    /// # Errors
    /// The plan is not valid.
    pub fn frames(&self, lengths: &[u16]) -> Result<Vec<Vec<Vec<u8>>>, PlanError> {
        match self {
            Self::Captured(frames) => Ok(vec![frames.clone()]),
            Self::Plan(plan) => lengths.iter().map(|&length| planned(plan, length)).collect(),
        }
    }
}

fn planned(plan: &Plan, length: u16) -> Result<Vec<Vec<u8>>, PlanError> {
    let mut pattern = Pattern::new(Plan { lengths: vec![length], ..plan.clone() })?;
    let frame = |number| {
        let mut frame = vec![0; length.into()];
        pattern.write(number, &mut frame);
        frame
    };
    Ok((0..FRAMES as u64).map(frame).collect())
}
