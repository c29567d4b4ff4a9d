//! Cuts the power of simulated disks, many times; run by `cargo xtask soak crash`.
//!
//! `cut_power store|log CRASHES SEED` prints the number of power cuts, or prints a mismatch and exits with 1.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "prints its result")]

use std::process::ExitCode;

use counterfoil_test_support::power_cuts::{Exploration, Explore, log, store};
use counterfoil_test_support::random::split_mix;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let explore: Explore = match arguments.next().as_deref() {
        Some("store") => store::explore,
        Some("log") => log::explore,
        _ => return usage(),
    };
    let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok());
    let (Some(crashes), Some(seed)) = (number(), number()) else { return usage() };
    match explore(&mut split_mix(seed), Exploration { crashes, skipped_sync: None }) {
        Ok(explored) => {
            println!("{}", explored.crashes);
            ExitCode::SUCCESS
        }
        Err(mismatch) => {
            println!("{mismatch}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    println!("usage: cut_power store|log CRASHES SEED");
    ExitCode::from(2)
}
