//! Checks that an image is installed for the ABI it was built for. Symbols that spin-cc and the SDK's headers define name that ABI.
//! Handlers of another ABI would misread every packet without any error. An image without these symbols is accepted for any ABI.

use hpu_vm::Image;
use spin_abi::control::{Abi, Install};

use crate::install::InstallError;

/// Symbol of the ABI: `--abi` of spin-cc.
const ABI: &str = "__spin_abi";
/// Symbol for verdicts of handlers (`spin_verdict.h`). 1: they must not be ignored. Other values: they may be. 0 or absent: none.
const VERDICTS: &str = "__spin_verdicts";

/// Checks the ABI and verdicts of an image against the request.
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
