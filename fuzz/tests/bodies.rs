//! Runs every body over its corpus, and over pseudo-random inputs.
//!
//! Set `COUNTERFOIL_FUZZ_SEED` to repeat a run and `COUNTERFOIL_FUZZ_INPUTS` for more inputs, and
//! `COUNTERFOIL_FUZZ_BODY` for one body alone. A failure names the seed and prints the input.
#![forbid(unsafe_code)]

use std::panic::catch_unwind;
use std::path::Path;

use counterfoil_campaign::scaled;
use counterfoil_fuzz::{BODIES, Body};
use counterfoil_test_support::random::split_mix;

fn random_input(random: &mut impl FnMut() -> u64) -> Vec<u8> {
    let len = random() % 400;
    (0..len).map(|_| (random() >> 32) as u8).collect()
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect(name))
}

/// Returns `true` if a body is to be run.
fn is_chosen(name: &str) -> bool {
    std::env::var("COUNTERFOIL_FUZZ_BODY").map_or(true, |body| body == name)
}

/// Runs a body; a failure names the input.
fn run(name: &str, body: Body, input: &[u8], origin: &str) {
    if catch_unwind(|| body(input)).is_err() {
        panic!("{name} fails on {origin}: {input:02x?}");
    }
}

#[test]
fn every_body_passes_its_corpus() {
    for (name, body) in BODIES {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        assert!(!paths.is_empty(), "{} is empty", folder.display());
        for path in paths {
            run(name, body, &std::fs::read(&path).unwrap(), &path.display().to_string());
        }
    }
}

#[test]
fn every_body_passes_pseudo_random_inputs() {
    let seed = setting("COUNTERFOIL_FUZZ_SEED", 20110516);
    let count = setting("COUNTERFOIL_FUZZ_INPUTS", scaled(3000));
    for (name, body) in BODIES.into_iter().filter(|(name, _)| is_chosen(name)) {
        let mut inputs = split_mix(seed);
        for number in 0..count {
            run(name, body, &random_input(&mut inputs), &format!("input {number} of seed {seed}"));
        }
    }
}

/// Pseudo-random bytes are never a valid header; a header with a few changed bytes may be.
#[test]
fn headers_with_bytes_changed_pass_too() {
    let seed = setting("COUNTERFOIL_FUZZ_SEED", 20110516);
    let mut inputs = split_mix(seed);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/wire_header");
    for entry in std::fs::read_dir(folder).unwrap() {
        let header = std::fs::read(entry.unwrap().path()).unwrap();
        for number in 0..if header.is_empty() { 0 } else { 300 } {
            let mut changed = header.clone();
            for _ in 0..=inputs() % 3 {
                let at = inputs() as usize % changed.len();
                changed[at] = (inputs() >> 32) as u8;
            }
            run("wire_header", counterfoil_fuzz::wire_header, &changed, &format!("change {number} of seed {seed}"));
        }
    }
}

/// Fifty changes are always detected; a few may not be.
#[test]
fn files_with_a_few_places_changed_pass_too() {
    let seed = setting("COUNTERFOIL_FUZZ_SEED", 20110516);
    // Bytes before the changes, and bytes in a change.
    let bodies: [(&str, Body, usize, usize); 3] = [
        ("shared_log", counterfoil_fuzz::shared_log, 0, 4),
        ("forged_shared_log", counterfoil_fuzz::forged_shared_log, 0, 4),
        ("store", counterfoil_fuzz::store, 1, 4),
    ];
    for (name, body, first, change) in bodies.into_iter().filter(|(name, ..)| is_chosen(name)) {
        let mut inputs = split_mix(seed);
        for number in 0..setting("COUNTERFOIL_FUZZ_INPUTS", scaled(3000)) {
            let len = first + change * [1, 1, 2, 3][number as usize % 4];
            let input: Vec<u8> = (0..len).map(|_| (inputs() >> 32) as u8).collect();
            run(name, body, &input, &format!("change {number} of seed {seed}"));
        }
    }
}
