//! Every body over its corpus, and over pseudo-random inputs. Set `COUNTERFOIL_FUZZ_SEED` to repeat a run and
//! `COUNTERFOIL_FUZZ_INPUTS` for more inputs. A failure says which input of which seed it was, and prints the input.
#![forbid(unsafe_code)]

use std::panic::catch_unwind;
use std::path::Path;

use counterfoil::model::numbers;
use counterfoil_fuzz::{BODIES, Body};

fn random_input(random: &mut impl FnMut() -> u64) -> Vec<u8> {
    let len = random() % 400;
    (0..len).map(|_| (random() >> 32) as u8).collect()
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().expect(name))
}

/// A failed assertion says which input it was.
fn run(name: &str, body: Body, input: &[u8], whence: &str) {
    if catch_unwind(|| body(input)).is_err() {
        panic!("{name} fails on {whence}: {input:02x?}");
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
    let count = setting("COUNTERFOIL_FUZZ_INPUTS", 3000);
    for (name, body) in BODIES {
        let mut inputs = numbers(seed);
        for number in 0..count {
            run(name, body, &random_input(&mut inputs), &format!("input {number} of seed {seed}"));
        }
    }
}

/// Pseudo-random bytes are never a header; a header with a few bytes changed may be.
#[test]
fn headers_with_bytes_changed_pass_too() {
    let seed = setting("COUNTERFOIL_FUZZ_SEED", 20110516);
    let mut inputs = numbers(seed);
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

/// Fifty changes are always noticed; one or two may not be.
#[test]
fn shared_logs_with_one_or_two_places_changed_pass_too() {
    let seed = setting("COUNTERFOIL_FUZZ_SEED", 20110516);
    let mut inputs = numbers(seed);
    for number in 0..setting("COUNTERFOIL_FUZZ_INPUTS", 3000) {
        let len = 4 + 4 * (number % 3 == 0) as usize;
        let input: Vec<u8> = (0..len).map(|_| (inputs() >> 32) as u8).collect();
        run("shared_log", counterfoil_fuzz::shared_log, &input, &format!("change {number} of seed {seed}"));
    }
}
