//! Mistakes in the send-deterministic rule.

#[path = "../../../protocols/tests/protocols/send_deterministic/figures.rs"]
mod figures;
#[path = "../../../protocols/tests/protocols/send_deterministic/node.rs"]
mod node;
#[path = "../../../protocols/tests/protocols/send_deterministic/program.rs"]
mod program;
#[path = "../../../protocols/tests/protocols/send_deterministic/world.rs"]
mod world;

use std::ops::Range;

use counterfoil_canaries::Canary;

pub(super) use figures::explicit_acks;
use figures::{checkpoints_after_rollback, figure_2, replay_of_a_logged_message};
use world::{BASE, Settings, job};

/// Settings for jobs broken by planted mistakes.
const DEEP: Settings = Settings { failures: 2, collections: true, ..BASE };

/// Returns `true` if a job with one of these seeds ends wrong with a mistake.
fn is_found(canary: Canary, mut seeds: Range<u64>) -> bool {
    let _planted = canary.plant();
    seeds.any(|seed| job(seed, DEEP).is_err())
}

#[test]
fn mistakes_are_found_by_random_jobs() {
    let canaries = [
        Canary::DuplicateByPhase,
        Canary::RestoreOnlyBelow,
        Canary::SaveBeforeIncrement,
        Canary::UnacknowledgedLost,
        Canary::DuplicateUnacknowledged,
        Canary::DeliverWhileBlocked,
        Canary::ReplayByEpoch,
        Canary::IncarnationsIgnored,
        Canary::PhaseNotRaised,
    ];
    let missed: Vec<Canary> = canaries.into_iter().filter(|&canary| !is_found(canary, 0..400)).collect();
    assert_eq!(missed, []);
}

#[test]
fn without_a_mistake_the_jobs_are_right() {
    for seed in 0..400 {
        let tally = job(seed, DEEP);
        assert!(tally.is_ok(), "seed {seed}: {tally:?}");
    }
}

#[test]
fn a_logged_message_is_delivered_before_the_orphan_that_it_depends_on() {
    let _planted = Canary::DeliverWhileBlocked.plant();
    assert!(figure_2().finish().is_err());
}

#[test]
fn the_first_logged_message_of_an_epoch_is_not_acknowledged_at_once() {
    let _planted = Canary::FirstLoggedAckMissing.plant();
    assert_eq!(explicit_acks(), 0);
}

#[test]
fn the_replay_of_a_logged_message_is_not_marked() {
    let _planted = Canary::ReplayUnmarked.plant();
    assert_eq!(replay_of_a_logged_message(), (false, 1));
}

#[test]
fn checkpoints_beyond_the_line_are_kept() {
    let _planted = Canary::BeyondLineKept.plant();
    assert_eq!(checkpoints_after_rollback(), [1, 2]);
}
