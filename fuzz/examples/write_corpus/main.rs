//! Writes the committed corpora: `cargo run -p counterfoil-fuzz --example write_corpus`.
//!
//! The files are reproducible.
#![forbid(unsafe_code)]

mod collections;
mod headers;
mod notices;
mod stores;
mod windows;

use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    write("wire_header", &headers::headers())?;
    write("ack_windows", &windows::windows())?;
    write("collector", &collections::collections())?;
    write("shared_log", &stores::files())?;
    write("forged_shared_log", &stores::forged_files())?;
    write("store", &stores::stores())?;
    write("power_cuts", &stores::histories())?;
    write("recovery_notices", &notices::jobs())
}

fn write(body: &str, inputs: &[(&str, Vec<u8>)]) -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(body);
    std::fs::create_dir_all(&folder)?;
    for (name, input) in inputs {
        std::fs::write(folder.join(name), input)?;
    }
    Ok(())
}
