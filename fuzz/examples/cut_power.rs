//! Cuts the power of simulated disks, many times: what `cargo xtask soak crash` runs.
//!
//! `cut_power store|log CRASHES SEED` prints how often it was cut, or what was wrong after it and exits with 1.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "what is printed is what it is for")]

use std::process::ExitCode;

use counterfoil::model::numbers;
use counterfoil::{model as log, store::model as store};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let level = arguments.next();
    let mut number = || arguments.next().and_then(|text| text.parse::<u64>().ok());
    let (Some(crashes), Some(seed)) = (number(), number()) else { return usage() };
    let crashes = match level.as_deref() {
        Some("store") => {
            let exploration = store::Exploration { crashes, lie: None };
            let explored = store::explore(&mut numbers(seed), exploration);
            explored.map(|explored| explored.crashes).map_err(|mismatch| mismatch.to_string())
        }
        Some("log") => {
            let exploration = log::Exploration { crashes, lie: None };
            let explored = log::explore(&mut numbers(seed), exploration);
            explored.map(|explored| explored.crashes).map_err(|mismatch| mismatch.to_string())
        }
        _ => return usage(),
    };
    match crashes {
        Ok(crashes) => {
            println!("{crashes}");
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
