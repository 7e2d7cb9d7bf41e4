//! What an image says that it was built for, by symbols that spin-cc and the SDK's headers define: installed as something else its handlers
//! would misunderstand every packet without a word. Images that say nothing are taken for what they are installed as.

use hpu_vm::Image;
use spin_abi::control::{Abi, Install};

use crate::install::InstallError;

/// Whose handlers they are: spin-cc's `--abi`.
const ABI: &str = "__spin_abi";
/// They return verdicts, which may be ignored unless it is 1: `spin_verdict.h`. They return none when it is 0, or not there.
const VERDICTS: &str = "__spin_verdicts";

/// Whether an image may be installed so.
pub(super) fn check(image: &Image, install: &Install) -> Result<(), InstallError> {
    let Some(built) = image.symbol(ABI) else { return Ok(()) };
    let built = match built {
        1 => Abi::Wire,
        2 => Abi::Pspin,
        3 => Abi::Fpspin,
        _ => return Ok(()),
    };
    if built != install.abi {
        return Err(InstallError::OtherAbi { built, asked: install.abi });
    }
    match (image.symbol(VERDICTS).filter(|&verdicts| verdicts != 0), install.verdicts) {
        (Some(1), false) => Err(InstallError::Verdicts),
        (None, true) if built == Abi::Wire => Err(InstallError::NoVerdicts),
        _ => Ok(()),
    }
}
