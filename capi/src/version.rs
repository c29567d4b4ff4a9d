//! Library version.

use std::ffi::c_char;

/// Returns the library version, as `0.1.0`.
///
/// It may differ from the header's.
#[unsafe(no_mangle)]
pub extern "C" fn counterfoil_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Returns the library version as a number: `COUNTERFOIL_VERSION_NUMBER` of its header.
#[unsafe(no_mangle)]
pub extern "C" fn counterfoil_version_number() -> u32 {
    const PARTS: [&str; 3] =
        [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")];
    PARTS.iter().fold(0, |number, part| 1000 * number + part.parse::<u32>().unwrap_or(0))
}
