//! Programs that a seed makes (`mpi/preload/tests/c/random`), in jobs.
//!
//! `cargo xtask soak mpi-programs` sets the number of programs and the seed.

use std::collections::BTreeMap;

/// Most programs in one job.
const BATCH_MAX: u32 = 50;
/// Most ranks of a job; jobs have 2 to this many in turn.
const RANKS_MAX: u32 = 6;
/// Most steps of a program.
const STEPS_MAX: u32 = 99;
/// Runs without the library that are compared with one that differs, since some results depend on time.
pub(crate) const PLAIN_RUNS: u32 = 10;

/// Printed lines: their values by what they begin with.
pub(crate) type Lines = BTreeMap<String, String>;

/// Programs of a job: those of a seed from one number on, and at most so many steps of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) ranks: u32,
    pub(crate) seed: u64,
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) steps: u32,
}

impl Batch {
    /// Returns the batches that the environment asks for, of `otherwise` programs by default.
    pub(crate) fn all(otherwise: u64) -> impl Iterator<Item = Batch> {
        let programs = number("COUNTERFOIL_PROGRAMS", otherwise) as u32;
        let seed = number("COUNTERFOIL_PROGRAMS_SEED", 1);
        let begin = number("COUNTERFOIL_PROGRAMS_FIRST", 0) as u32;
        // A short run, too, has jobs of each size.
        let length = (programs / (RANKS_MAX - 1)).clamp(1, BATCH_MAX);
        (begin..programs).step_by(length as usize).map(move |first| {
            let (ranks, count) = (2 + first / length % (RANKS_MAX - 1), length.min(programs - first));
            Batch { ranks, seed, first, count, steps: STEPS_MAX }
        })
    }

    /// Returns the arguments that run the programs at a level of thread support.
    pub(crate) fn arguments(self, level: &str) -> Vec<String> {
        let numbers = [self.seed, self.first.into(), self.count.into(), self.steps.into()];
        numbers.iter().map(u64::to_string).chain([level.to_owned()]).collect()
    }

    /// Returns the smallest part of a failing batch that still fails: one program, and as few of its steps as possible.
    /// The program `suspect` is tried first.
    pub(crate) fn shrink(self, suspect: u32, fails: impl Fn(&Batch) -> bool) -> Batch {
        let programs = std::iter::once(suspect).chain(self.first..self.first + self.count);
        let one = |first| Batch { first, count: 1, ..self };
        let Some(program) = programs.map(one).find(&fails) else { return self };
        (1..=20).map(|steps| Batch { steps, ..program }).find(fails).unwrap_or(program)
    }

    /// Says that these programs and those before them are the same.
    pub(crate) fn report(self) {
        eprintln!("{} programs, seed {}: no difference", self.first + self.count, self.seed);
    }
}

/// Returns the lines by what they begin with.
pub(crate) fn lines<'a>(texts: impl IntoIterator<Item = &'a str>) -> Lines {
    let lines = texts.into_iter().flat_map(str::lines).filter_map(|line| line.rsplit_once(' '));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Returns the value of a variable of the environment.
pub(crate) fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |value| value.parse().unwrap())
}
