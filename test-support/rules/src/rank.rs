//! A rank in a job under one of the small rules.
//!
//! The launcher starts it, with the rule name as the first argument.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use counterfoil_runtime::local::{JoinOptions, join_under};
use counterfoil_test_rules::{RULES, Work};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let rule = RULES.into_iter().find(|rule| format!("{rule:?}") == name).ok_or("no such rule")?;
    let mut options = JoinOptions { job: Default::default(), rank: 0, incarnation: 0, launcher: 0 };
    while let (Some(option), Some(value)) = (arguments.next(), arguments.next()) {
        match option.as_str() {
            "--job" => options.job = value.into(),
            "--rank" => options.rank = value.parse()?,
            "--incarnation" => options.incarnation = value.parse()?,
            "--launcher" => options.launcher = value.parse()?,
            _ => return Err(format!("unknown option {option}").into()),
        }
    }
    let (mut endpoint, work) = join_under(&rule, &options)?;
    let outcome = match postcard::from_bytes(&work)? {
        Work::Calls(program) => program.run(&mut endpoint),
        Work::OlderLine(program) => program.run(&mut endpoint),
    };
    let result = outcome.and_then(|outcome| endpoint.finish(outcome));
    match result {
        // The launcher starts a process to continue from the checkpoint.
        Err(_) if endpoint.is_rolling_back() => Ok(()),
        Err(error) => {
            endpoint.fail(error.to_string());
            Err(error.into())
        }
        Ok(()) => Ok(()),
    }
}
