//! Recordings of runs, and their diagrams.

use std::collections::BTreeSet;

use counterfoil_campaign::scaled;
use counterfoil_protocols::sender_based;
use counterfoil_simulator::diagram;
use counterfoil_simulator::{
    self as simulator, Activity, Canary, Config, Dropped, Outcome, Recorded, Schedule, Summary,
};

/// Returns a failing schedule with a canary.
fn failing(canary: Canary) -> Schedule {
    let config = Config { canary: Some(canary), ..Config::default() };
    let mut schedules = (0..1_000).map(|seed| config.schedule(seed, false));
    let found = schedules.find(|schedule| simulator::run(&sender_based::RULE, schedule).violation.is_some());
    found.unwrap_or_else(|| panic!("{canary:?} is not found"))
}

fn count(recording: &[Recorded], is_it: impl Fn(Activity) -> bool) -> u64 {
    recording.iter().filter(|recorded| is_it(recorded.activity)).count() as u64
}

#[test]
fn a_recording_agrees_with_the_counters_of_the_run() {
    let config = Config::default();
    for seed in 0..scaled(300) {
        let schedule = config.schedule(seed, false);
        let (outcome, recording) = simulator::record(&sender_based::RULE, &schedule);
        assert_eq!(outcome, simulator::run(&sender_based::RULE, &schedule), "seed {seed}");
        let met = &outcome.coverage;
        let dropped = |reason| count(&recording, |what| matches!(what, Activity::Dropped { why, .. } if why == reason));
        assert_eq!(count(&recording, |what| matches!(what, Activity::Killed { .. })), met.faults, "seed {seed}");
        assert_eq!(count(&recording, |what| matches!(what, Activity::Sent { .. })), met.sends, "seed {seed}");
        assert_eq!(count(&recording, |what| matches!(what, Activity::Durable { .. })), met.checkpoints, "seed {seed}");
        assert_eq!(dropped(Dropped::Duplicate), met.duplicates, "seed {seed}");
        assert_eq!(dropped(Dropped::DeadIncarnation), met.dead_messages, "seed {seed}");
        let restarts = met.restarts_from_checkpoint + met.restarts_from_start;
        assert_eq!(count(&recording, |what| matches!(what, Activity::Started { again: true, .. })), restarts);
        assert!(recording.is_sorted_by_key(|recorded| recorded.event), "seed {seed}");
    }
}

/// Every arriving message was transmitted, and arrives once, even in failing runs.
#[test]
fn messages_that_arrive_were_transmitted_before() {
    for canary in [None, Some(Canary::DeliverDuplicate), Some(Canary::DeliverDead), Some(Canary::ForgetLog)] {
        for seed in 0..scaled(200) {
            let schedule = Config { canary, ..Config::default() }.schedule(seed, false);
            let mut under_way = BTreeSet::new();
            for Recorded { event, activity } in simulator::record(&sender_based::RULE, &schedule).1 {
                match activity {
                    Activity::Transmitted { from, to, number, .. } => {
                        assert!(under_way.insert((event, from, to, number)), "{schedule}");
                    }
                    Activity::Received { rank, from, number, transmitted }
                    | Activity::Dropped { rank, from, number, transmitted, .. } => {
                        assert!(under_way.remove(&(transmitted, from, rank, number)), "event {event}: {schedule}");
                    }
                    _ => {}
                }
            }
        }
    }
}

fn picture(schedule: &Schedule) -> (Outcome, String) {
    let (outcome, recording) = simulator::record(&sender_based::RULE, schedule);
    let svg = diagram::svg(schedule, &outcome, &recording, 0..=u64::MAX);
    (outcome, svg)
}

#[test]
fn a_picture_shows_every_rank_kill_and_checkpoint_once() {
    for seed in 0..50 {
        let schedule = Config::default().schedule(seed, false);
        let (outcome, recording) = simulator::record(&sender_based::RULE, &schedule);
        let svg = diagram::svg(&schedule, &outcome, &recording, 0..=u64::MAX);
        for rank in 0..schedule.shape.ranks {
            assert_eq!(svg.matches(&format!("id=\"rank-{rank}\"")).count(), 1, "seed {seed}");
        }
        assert!(!svg.contains(&format!("id=\"rank-{}\"", schedule.shape.ranks)) && !svg.contains("coordinator"));
        // Two strokes each, and two in the legend.
        let crosses = svg.matches("<line class=\"cross\"").count() as u64;
        assert_eq!(crosses, 2 * (outcome.coverage.faults + 1), "seed {seed}");
        let taken = count(&recording, |what| matches!(what, Activity::Taken { .. }));
        assert_eq!(svg.matches("<circle class=\"hollow mark\"").count() as u64, taken + 1, "seed {seed}");
        assert!(svg.contains("No violation in"), "seed {seed}");
    }
}

#[test]
fn a_picture_of_a_failure_says_what_failed_and_with_which_schedule() {
    let schedule = failing(Canary::DropRecord);
    let (outcome, svg) = picture(&schedule);
    let violation = outcome.violation.expect("a failing schedule").to_string();
    assert!(
        svg.contains(&violation) && svg.contains(&schedule.to_string()) && svg.contains("class=\"limit\""),
        "{svg}"
    );
    assert!(svg.contains("the planted mistake DropRecord"));
}

#[test]
fn a_part_of_a_run_has_only_its_own_events() {
    let schedule = Config { ranks: (4, 4), rounds: (4, 4), ..Config::default() }.schedule(5, false);
    let (outcome, recording) = simulator::record(&sender_based::RULE, &schedule);
    let all = diagram::steps(&schedule, &recording, 0..=u64::MAX);
    let part = diagram::steps(&schedule, &recording, 30..=60);
    assert!((1..=40).contains(&part) && all > 2 * part, "{part} of {all}");
    let svg = diagram::svg(&schedule, &outcome, &recording, 30..=60);
    assert!(svg.len() < diagram::svg(&schedule, &outcome, &recording, 0..=u64::MAX).len());
    let scale = svg.split("id=\"events\"").nth(1).and_then(|rest| rest.split("</g>").next()).expect("a scale");
    let texts = scale.split('>').filter_map(|piece| piece.strip_suffix("</text"));
    let events: Vec<u64> = texts.filter_map(|text| text.parse().ok()).collect();
    assert!(!events.is_empty() && events.iter().all(|event| (30..=60).contains(event)), "{events:?}");
    assert_eq!(diagram::steps(&schedule, &recording, u64::MAX..=u64::MAX), 0);
}

#[test]
fn two_halves_of_a_campaign_are_the_whole() {
    let config = Config { canary: Some(Canary::DropRecord), ..Config::default() };
    let run = |seeds| simulator::campaign(&sender_based::RULE, seeds, &config, |_| {});
    let (first, second) = (run(0..16), run(16..40));
    let mut sum = Summary::default();
    sum.add(&first);
    sum.add(&second);
    assert_eq!((sum.schedules, sum.failed), (40, first.failed + second.failed));
    assert_eq!(sum.failures, run(0..40).failures);
    assert_eq!(sum.coverage, run(0..40).coverage);
    let mut other = Summary::default();
    other.add(&second);
    other.add(&first);
    assert_ne!(sum.fingerprint, other.fingerprint);
}
