//! Programs generated from a seed (`mpi/preload/tests/c/random`), in jobs.
//!
//! `cargo xtask soak mpi-programs` sets the number of programs and the seed.

use std::collections::BTreeMap;

/// Maximum number of programs in one job.
const BATCH_MAX: u32 = 50;
/// Maximum number of ranks in a job; jobs have 2 to this many in turn.
const RANKS_MAX: u32 = 6;
/// Maximum number of steps in a program.
const STEPS_MAX: u32 = 99;
/// Runs without the library to compare with a differing one, since some results depend on time.
pub(crate) const PLAIN_RUNS: u32 = 10;

/// Printed lines: their values by prefix.
pub(crate) type Lines = BTreeMap<String, String>;

/// A job's programs: a seed's programs from one number on, with a limit of steps for each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) ranks: u32,
    pub(crate) seed: u64,
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) steps: u32,
}

impl Batch {
    /// Returns the batches requested by the environment, with `otherwise` programs by default.
    pub(crate) fn all(otherwise: u64) -> impl Iterator<Item = Batch> {
        let programs = number("COUNTERFOIL_PROGRAMS", otherwise) as u32;
        let seed = number("COUNTERFOIL_PROGRAMS_SEED", 1);
        let begin = number("COUNTERFOIL_PROGRAMS_FIRST", 0) as u32;
        // A short run, too, has jobs with each size.
        let length = (programs / (RANKS_MAX - 1)).clamp(1, BATCH_MAX);
        (begin..programs).step_by(length as usize).map(move |first| {
            let (ranks, count) = (2 + first / length % (RANKS_MAX - 1), length.min(programs - first));
            Batch { ranks, seed, first, count, steps: STEPS_MAX }
        })
    }

    /// Returns the arguments to run the programs at a thread support level.
    pub(crate) fn arguments(self, level: &str) -> Vec<String> {
        let numbers = [self.seed, self.first.into(), self.count.into(), self.steps.into()];
        numbers.iter().map(u64::to_string).chain([level.to_owned()]).collect()
    }

    /// Shrinks a failing batch to the smallest part that still fails: one program, and as few of its steps as possible.
    ///
    /// The program `suspect` is tried first.
    pub(crate) fn shrink(self, suspect: u32, fails: impl Fn(&Batch) -> bool) -> Batch {
        let programs = std::iter::once(suspect).chain(self.first..self.first + self.count);
        let one = |first| Batch { first, count: 1, ..self };
        let Some(program) = programs.map(one).find(&fails) else { return self };
        (1..=20).map(|steps| Batch { steps, ..program }).find(fails).unwrap_or(program)
    }

    /// Reports equal results for these programs and the ones before them.
    pub(crate) fn report(self) {
        eprintln!("{} programs, seed {}: no difference", self.first + self.count, self.seed);
    }
}

/// Returns the lines by prefix.
pub(crate) fn lines<'a>(texts: impl IntoIterator<Item = &'a str>) -> Lines {
    let lines = texts.into_iter().flat_map(str::lines).filter_map(|line| line.rsplit_once(' '));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Returns the value of an environment variable.
pub(crate) fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |value| value.parse().unwrap())
}
