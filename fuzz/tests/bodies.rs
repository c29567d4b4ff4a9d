//! Every body over its corpus, and over pseudo-random inputs. Set `COUNTERFOIL_FUZZ_SEED` to repeat a run and
//! `COUNTERFOIL_FUZZ_INPUTS` for more inputs. A failure says which input of which seed it was, and prints the input.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use std::panic::catch_unwind;
use std::path::Path;

use counterfoil_fuzz::{BODIES, Body};

/// SplitMix64: a seed gives the same inputs everywhere.
struct Inputs(u64);

impl Inputs {
    fn next_word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn next_input(&mut self) -> Vec<u8> {
        let len = self.next_word() % 400;
        (0..len).map(|_| (self.next_word() >> 32) as u8).collect()
    }
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
        let mut inputs = Inputs(seed);
        for number in 0..count {
            run(name, body, &inputs.next_input(), &format!("input {number} of seed {seed}"));
        }
    }
}

/// Pseudo-random bytes are never a header; a header with a few bytes changed may be.
#[test]
fn headers_with_bytes_changed_pass_too() {
    let seed = setting("COUNTERFOIL_FUZZ_SEED", 20110516);
    let mut inputs = Inputs(seed);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/wire_header");
    for entry in std::fs::read_dir(folder).unwrap() {
        let header = std::fs::read(entry.unwrap().path()).unwrap();
        for number in 0..if header.is_empty() { 0 } else { 300 } {
            let mut changed = header.clone();
            for _ in 0..=inputs.next_word() % 3 {
                let at = inputs.next_word() as usize % changed.len();
                changed[at] = (inputs.next_word() >> 32) as u8;
            }
            run("wire_header", counterfoil_fuzz::wire_header, &changed, &format!("change {number} of seed {seed}"));
        }
    }
}

/// Fifty changes are always noticed; one or two may not be.
#[test]
fn shared_logs_with_one_or_two_places_changed_pass_too() {
    let seed = setting("COUNTERFOIL_FUZZ_SEED", 20110516);
    let mut inputs = Inputs(seed);
    for number in 0..setting("COUNTERFOIL_FUZZ_INPUTS", 3000) {
        let len = 4 + 4 * (number % 3 == 0) as usize;
        let input: Vec<u8> = (0..len).map(|_| (inputs.next_word() >> 32) as u8).collect();
        run("shared_log", counterfoil_fuzz::shared_log, &input, &format!("change {number} of seed {seed}"));
    }
}
