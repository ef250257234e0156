//! Names and nonces from the operating system.

use crate::error::{ExchangeError, Result};

pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| ExchangeError::Memory(error.to_string()))?;
    Ok(bytes)
}
