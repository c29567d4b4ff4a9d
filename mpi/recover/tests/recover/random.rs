//! Programs made from a seed (`mpi/preload/tests/c/random`).
//!
//! They receive and send the same without the library, under it and when ranks are killed at some calls; and each rank
//! does the same alone.
//!
//! `cargo xtask soak mpi-programs --recover` sets the number of programs and the seed.

use std::collections::BTreeMap;

use counterfoil_settings::recover::KillAtCall;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::batch::{Batch, Lines, PLAIN_RUNS, lines, number};
use crate::program::{Program, Ran};
use crate::recovers::reach;
use crate::replays::Kept;
use crate::ulfm::outlives_failures;

/// Log size per rank, in bytes.
const LOG_BYTES: usize = 1 << 30;

impl Batch {
    /// Returns the compiled programs, with this batch's arguments.
    ///
    /// Every other batch calls MPI like Fortran programs.
    fn program(self) -> Program {
        let compile = if self.ranks.is_multiple_of(2) { Program::compile_in_fortran } else { Program::compile };
        let mut program = compile("preload/tests/c/random", self.ranks);
        program.arguments = self.arguments("single");
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

    /// Compares the output under the library with that without it.
    ///
    /// # Errors
    /// Their differences.
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

    /// Returns `true` if the programs differ without a kill.
    fn differs(&self) -> bool {
        let program = self.program();
        self.compare(&program, &self.plain(&program), &program.recovered(0, [])).is_err()
    }
}

/// Maximum number of kills in one job, each with a spare.
const KILLS_OF_A_JOB: usize = 8;

/// Draws a rank's call before which it is killed.
fn draw(random: &mut SplitMix64, batch: Batch, calls: &BTreeMap<u32, u64>) -> KillAtCall {
    let rank = (random.next_u64() % u64::from(batch.ranks)) as u32;
    KillAtCall { rank, call: random.next_u64() % calls[&rank] + 1 }
}

#[test]
fn random_programs_do_the_same_when_ranks_are_killed() {
    let kills = number("COUNTERFOIL_PROGRAMS_KILLS", 1) as usize;
    let mut killed = 0;
    for batch in Batch::all(25) {
        let program = batch.program();
        let plain = batch.plain(&program);
        let kept = Kept::run(&program, 0, []);
        if let Err(what) = batch.compare(&program, &plain, &kept.ran) {
            panic!(
                "{batch:?}: {what}\nThe smallest part that differs: {:?}",
                batch.shrink(batch.first, Batch::differs)
            );
        }
        kept.expect_all_same();
        let mut random = SplitMix64::seed_from_u64(batch.seed ^ u64::from(batch.first) << 32);
        let drawn = (0..kills).map(|_| draw(&mut random, batch, &kept.ran.calls));
        let mut drawn: Vec<KillAtCall> = drawn.collect();
        for kills in drawn.chunks_mut(KILLS_OF_A_JOB) {
            if !outlives_failures() {
                // A kill ends all processes: a process of each start is killed.
                let rank = kills[0].rank;
                kills
                    .iter_mut()
                    .for_each(|kill| *kill = KillAtCall { rank, call: kill.call % kept.ran.calls[&rank] + 1 });
            }
            // A rank's first is for its first process, and the others repeat its calls.
            kills.sort_unstable_by_key(|kill| kill.call);
            killed += reach(kills, |kills| {
                let kept = Kept::recover(&program, kills);
                if let Err(what) = batch.compare(&program, &plain, &kept.ran) {
                    panic!("{batch:?}, {kills:?}: {what}");
                }
                kept.expect_all_same();
                kept.ran
            });
        }
        batch.report();
    }
    eprintln!("{killed} kills");
}
