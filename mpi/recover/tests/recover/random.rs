//! Programs that a seed makes (`mpi/preload/tests/c/random`): what they receive, and what they send, is the same
//! without the library, under it and when a rank is killed at some call; and each rank does the same alone.
//!
//! `cargo xtask soak mpi-programs --recover` sets the number of programs and the seed.

use std::collections::BTreeMap;

use counterfoil_settings::recover::KillAtCall;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::program::{Program, Ran};
use crate::recovers::reach;
use crate::replays::Kept;
use crate::ulfm::outlives_failures;

/// Most programs in one job.
const BATCH_MAX: u32 = 50;
/// Most ranks of a job; jobs have 2 to this many in turn.
const RANKS_MAX: u32 = 6;
/// Log of each rank, in bytes.
const LOG_BYTES: usize = 1 << 30;
/// Most steps of a program.
const STEPS_MAX: u32 = 99;
/// Runs without the library that are compared with one that differs, since some results depend on time.
const PLAIN_RUNS: u32 = 10;

/// Printed lines: their values by what they begin with.
type Lines = BTreeMap<String, String>;

/// Programs of a job: those of a seed from one number on, and at most so many steps of each.
#[derive(Clone, Copy, Debug)]
struct Batch {
    ranks: u32,
    seed: u64,
    first: u32,
    count: u32,
    steps: u32,
}

impl Batch {
    /// Returns the compiled programs, with the arguments of this batch.
    fn program(self) -> Program {
        let numbers =
            [self.seed, self.first.into(), self.count.into(), self.steps.into()].map(|number| number.to_string());
        let arguments: Vec<&str> = numbers.iter().map(String::as_str).chain(["single"]).collect();
        let mut program = Program::compile("preload/tests/c/random", self.ranks).with(&arguments);
        program.log_bytes = LOG_BYTES;
        program
    }

    /// Runs the programs without the library.
    fn plain(self, program: &Program) -> Lines {
        let output = program.run_plain();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{self:?} without the library: {output:?}");
        lines([&*text])
    }

    /// Compares a run under the library with what is printed without it.
    ///
    /// # Errors
    /// How they differ.
    fn compare(self, program: &Program, plain: &Lines, ran: &Ran) -> Result<(), String> {
        if !ran.output.status.success() {
            return Err(ran.said());
        }
        let printed = lines(ran.printed.iter().map(String::as_str));
        let names = plain.keys().chain(printed.keys());
        let mut open: Vec<&String> = names.filter(|name| plain.get(*name) != printed.get(*name)).collect();
        for _ in 0..PLAIN_RUNS {
            let Some(name) = open.first() else { return Ok(()) };
            let (before, now) = (plain.get(*name), printed.get(*name));
            eprintln!("{self:?}: {name} {before:?}, and with the library {now:?}; running it without");
            let again = self.plain(program);
            open.retain(|name| again.get(*name) != printed.get(*name));
        }
        let differ =
            |name: &&String| format!("{name} {:?}, and with the library {:?}", plain.get(*name), printed.get(*name));
        open.first().map_or(Ok(()), |name| Err(differ(name)))
    }

    /// Returns the first program that differs alone without a kill, with as few of its steps as possible.
    fn shrink(self) -> Option<Batch> {
        let differs = |batch: &Batch| {
            let program = batch.program();
            batch.compare(&program, &batch.plain(&program), &program.recovered(0, None)).is_err()
        };
        let one = (self.first..self.first + self.count).map(|first| Batch { first, count: 1, ..self }).find(differs)?;
        (1..=20).map(|steps| Batch { steps, ..one }).find(differs).or(Some(one))
    }
}

/// Returns the lines of all ranks by what they begin with.
fn lines<'a>(texts: impl IntoIterator<Item = &'a str>) -> Lines {
    let lines = texts.into_iter().flat_map(str::lines).filter_map(|line| line.rsplit_once(' '));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Returns the value of a variable of the environment.
fn variable(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().unwrap())
}

#[test]
fn random_programs_do_the_same_when_a_rank_is_killed() {
    let programs = variable("COUNTERFOIL_PROGRAMS", 25) as u32;
    let seed = variable("COUNTERFOIL_PROGRAMS_SEED", 1);
    let begin = variable("COUNTERFOIL_PROGRAMS_FIRST", 0) as u32;
    let kills = variable("COUNTERFOIL_PROGRAMS_KILLS", 1);
    // A short run, too, has jobs of each size.
    let length = (programs / (RANKS_MAX - 1)).clamp(1, BATCH_MAX);
    for first in (begin..programs).step_by(length as usize) {
        let (ranks, count) = (2 + first / length % (RANKS_MAX - 1), length.min(programs - first));
        let batch = Batch { ranks, seed, first, count, steps: STEPS_MAX };
        let program = batch.program();
        let plain = batch.plain(&program);
        let kept = Kept::run(&program, 0, None);
        if let Err(what) = batch.compare(&program, &plain, &kept.ran) {
            panic!("{batch:?}: {what}\nThe smallest part that differs: {:?}", batch.shrink());
        }
        kept.expect_all_same();
        let mut random = SplitMix64::seed_from_u64(seed ^ u64::from(first) << 32);
        for _ in 0..if outlives_failures() { kills } else { 0 } {
            let rank = (random.next_u64() % u64::from(ranks)) as u32;
            let kill = KillAtCall { rank, call: random.next_u64() % kept.ran.calls[&rank] + 1 };
            reach(kill, |kill| {
                let kept = Kept::run(&program, 1, Some(kill));
                if let Err(what) = batch.compare(&program, &plain, &kept.ran) {
                    panic!("{batch:?}, {kill:?}: {what}");
                }
                kept.expect_all_same();
                kept.ran
            });
        }
        eprintln!("{} programs, seed {seed}: no difference", first + count);
    }
}
