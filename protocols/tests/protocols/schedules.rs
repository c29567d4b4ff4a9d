//! Whole jobs under the sender-based rule, in one process and without time: N state machines, FIFO connections in
//! memory, and a seeded scheduler killing and replacing ranks at any event.
//!
//! To repeat a failure: `SCHEDULE_SEED=<seed> cargo test -p counterfoil-protocols schedules::`.

mod application;
mod oracle;
mod process;
mod world;

use counterfoil_campaign::scaled;
use counterfoil_log_core::Rank;

use application::Program;
use world::{Fault, FaultKind, Outcome, Settings, Tally, World};

use crate::random::Random;

const BASE: Settings = Settings {
    ranks: 4,
    rounds: 4,
    checkpoints: false,
    lanes_survive: false,
    judge_on_take: false,
    sabotage_drop_choices: false,
    sabotage_cover_early: false,
    sabotage_drop_unexpected: false,
    sabotage_drop_records: false,
    sabotage_mix_connections: false,
};

/// Draws one to four kills of one or more ranks, any time before the run without kills would have ended, sometimes
/// shortly after the previous one; and some broken connections.
fn draw_faults(random: &mut Random, ranks: u32, ticks: u64) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut tick = 0;
    for _ in 0..1 + random.below(4) {
        tick = if random.one_in(3) { tick + random.below(600) } else { random.below(ticks) };
        let mut victims: Vec<Rank> = (0..ranks).map(Rank).collect();
        random.shuffle(&mut victims);
        victims.truncate(if random.one_in(3) { 1 + random.below(ranks.into()) as usize } else { 1 });
        faults.push((tick, FaultKind::Kill(victims)));
    }
    for _ in 0..random.below(3) {
        let (a, b) = (random.below(ranks.into()) as u32, 1 + random.below(u64::from(ranks) - 1) as u32);
        faults.push((random.below(ticks), FaultKind::Cut(Rank(a), Rank((a + b) % ranks))));
    }
    faults
}

/// Runs one seed with and without kills.
fn run(settings: Settings, seed: u64) -> Outcome<Tally> {
    let mut random = Random::new(seed);
    let settings = Settings { ranks: 2 + random.below(u64::from(settings.ranks) - 1) as u32, ..settings };
    let program = Program::draw(&mut random, settings.ranks, settings.rounds, settings.checkpoints);
    let (reference, failure_free) = World::run(settings, &program, Random::new(random.next()), Vec::new())?;
    let faults = draw_faults(&mut random, settings.ranks, failure_free.ticks);
    let (oracle, tally) = World::run(settings, &program, random, faults)?;
    oracle.compare(&reference)?;
    Ok(tally)
}

/// Runs many seeds, or the one of `SCHEDULE_SEED`; all must pass.
fn run_all(settings: Settings, seeds: std::ops::Range<u64>) -> Tally {
    let only = std::env::var("SCHEDULE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = only.map_or(seeds, |seed: u64| seed..seed + 1);
    let mut sum = Tally::default();
    for seed in seeds {
        match run(settings, seed) {
            Ok(tally) => sum.add(&tally),
            Err(what) => panic!("SCHEDULE_SEED={seed}: {what}"),
        }
    }
    eprintln!("{sum:?}");
    sum
}

#[test]
fn killed_ranks_recover_without_checkpoints() {
    let tally = run_all(BASE, 0..scaled(600));
    assert!(
        tally.kills > scaled(600) && tally.kills_during_recovery > scaled(100) && tally.cuts > scaled(300),
        "{tally:?}"
    );
    assert!(tally.choices_forced > scaled(1000) && tally.duplicates > scaled(1000), "{tally:?}");
    assert!(
        tally.dead_messages > scaled(100) && tally.dead_hellos > scaled(10) && tally.explicit_acks > scaled(100),
        "{tally:?}"
    );
}

#[test]
fn killed_ranks_recover_from_checkpoints() {
    let tally = run_all(Settings { checkpoints: true, ..BASE }, 10_000..10_000 + scaled(600));
    assert!(
        tally.checkpoints > scaled(1000) && tally.rolled_back > scaled(100) && tally.choices_forced > scaled(500),
        "{tally:?}"
    );
}

#[test]
fn killed_ranks_recover_when_their_logs_survive() {
    run_all(Settings { lanes_survive: true, ..BASE }, 20_000..20_000 + scaled(300));
    run_all(Settings { lanes_survive: true, checkpoints: true, ..BASE }, 30_000..30_000 + scaled(600));
}

#[test]
fn killed_ranks_recover_when_the_window_sees_messages_as_they_are_taken() {
    let on_take = Settings { judge_on_take: true, ..BASE };
    run_all(on_take, 40_000..40_000 + scaled(300));
    run_all(Settings { checkpoints: true, ..on_take }, 50_000..50_000 + scaled(300));
    run_all(Settings { checkpoints: true, lanes_survive: true, ..on_take }, 60_000..60_000 + scaled(300));
}

/// Asserts that one among the first seeds reveals a planted mistake.
fn assert_caught(settings: Settings) {
    let found = (0..1000).find_map(|seed| run(settings, seed).err().map(|what| (seed, what)));
    let (seed, what) = found.expect("the schedules must find a planted mistake");
    eprintln!("found with seed {seed}: {what}");
}

#[test]
fn a_driver_that_forgets_choices_is_caught() {
    assert_caught(Settings { sabotage_drop_choices: true, ..BASE });
}

#[test]
fn a_driver_that_calls_a_checkpoint_durable_too_early_is_caught() {
    assert_caught(Settings { sabotage_cover_early: true, checkpoints: true, ..BASE });
}

#[test]
fn a_checkpoint_without_the_messages_that_were_not_taken_is_caught() {
    assert_caught(Settings { sabotage_drop_unexpected: true, checkpoints: true, ..BASE });
}

#[test]
fn a_checkpoint_without_the_sender_log_is_caught() {
    assert_caught(Settings { sabotage_drop_records: true, checkpoints: true, ..BASE });
}

#[test]
fn a_driver_that_replays_to_another_incarnation_than_it_met_is_caught() {
    assert_caught(Settings { sabotage_mix_connections: true, ..BASE });
}
