//! The send-deterministic rule under the simulator: rollbacks of several ranks, recovery lines, released logs, a dying
//! recovery process; and the rule's planted mistakes.
//!
//! To rerun one schedule:
//! `SIM_SCHEDULE='sim1 ...' cargo test -p counterfoil-simulator send_deterministic::a_schedule_of_the -- --nocapture`.

use counterfoil_campaign::scaled;
use counterfoil_canaries::Canary as Mistake;
use counterfoil_protocols::send_deterministic;
use counterfoil_simulator::{self as simulator, Canary, Config, Coverage, Schedule, Summary};

/// Programs of this rule are send-deterministic.
fn config() -> Config {
    Config { ordered: false, faults: (1, 4), ..Config::default() }
}

/// Enables all features of the rule.
fn all() -> Config {
    Config { collections: (0, 3), clusters: (0, 3), ..config() }
}

/// Runs these seeds; none may fail.
fn campaign(seeds: std::ops::Range<u64>, config: &Config) -> Coverage {
    let Summary { schedules, failed, failures, coverage, .. } =
        simulator::campaign(&send_deterministic::RULE, seeds, config, |_| {});
    let lines: Vec<String> =
        failures.iter().map(|f| format!("seed {}: {}\n  {}", f.seed, f.violation, f.schedule)).collect();
    assert!(failed == 0, "{failed} of {schedules}:\n{}", lines.join("\n"));
    coverage
}

/// Schedules with a wrong end in the past.
#[test]
fn schedules_that_once_failed_pass() {
    for line in [
        // A dead process's Hello was believed when a later round voided the line that had ended the process.
        "sim1 pattern=master-worker ranks=3 rounds=1 program=0 checkpoints=0 ordered=0 tier=crash-safe mode=list:0x47,\
         3x5,0,1x2,3x2,2x2,1x2,3,5,6,2x2,4,3x2,0,4,3,2,1x2,3,2,1x2,2,3x2,1,3,1,2x2,3,0,3,2x2,0,2x4,0,3,2x2,7,\
         5,4x2,5,4,5,4,3x2,4,3x2,2x2,1x2,2,1 seed=0 faults=87:3:0,64:0:0 late=1",
        // A covered message was sent again, and no notice repeated its cover.
        "sim1 pattern=graph ranks=2 rounds=3 program=2891839746315564879 checkpoints=2 ordered=0 tier=volatile mode=list: seed=0 faults=235:1:0 collections=2",
        // An acknowledgement overtook one on a message held back.
        "sim1 pattern=graph ranks=4 rounds=3 program=2891839746315564879 checkpoints=2 ordered=0 tier=volatile mode=list:18,\
         19x2,3,16,7,12x2,10,12,6,5,4,1,4x2,7,3x5,6x4,4,7x7,5,1x2,6,7,3,2x4,7,2,6,2,5x2,2,5,4x2,1,2,4x2,1,2,\
         1x2,2,3x5,4x2,1,3,1,2,3,2x2,1x9,0,1,4,1,5,1x2,2,3,1x9,2,0,3,4,5,1x3,3,1,2,1,2,0,1x5,2x2,\
         1x2 seed=0 faults=127:2:0,104:4:0 collections=2",
        // A replacement had forgotten its floor.
        "sim1 pattern=graph ranks=2 rounds=4 program=0 checkpoints=1 ordered=0 tier=crash-safe mode=list: seed=0 faults=303:0:0,\
         302:1:0 collections=1 clusters=3",
        // A peer's receipts before the epoch of its rollback were forgotten, and the line fell below a floor.
        "sim1 pattern=graph ranks=3 rounds=4 program=12066062005791408296 checkpoints=1 ordered=0 tier=crash-safe mode=list:0x12,\
         5,1,4,3,0x48,6,2,3,1,0,2,0x18,1,0x2,1x2,0x3,1,0x3,2,1x4,3x2,1,3,4,3,1,2,1,3,4,3,1,2,1,2x2,0x2,3,1x2,\
         2x3,3,6,0x2,4,2,4,0x3,2,1,3,4,1,3,1,3 seed=0 faults=97:0:0,131:1:0 collections=1 clusters=2",
        // An acknowledgement overtook one on a message queued after a held one.
        "sim1 pattern=backlog ranks=3 rounds=6 program=12258467925077954053 checkpoints=2 ordered=0 \
         tier=volatile mode=list:10x2,7x5,1x2,2,4x2,2,0x3,6x4,0x6,1,7,6,3,6,7x2,2,3,7,3x2,4,3,5x2,0,2x2,4x6,\
         3,5x2,4,5,4,5,4,5x4,4,3,1,3,4,1,2,4,5,2,1x2,4,1x2,4,1x2,2,1x2,5,7,1,6x2,2,5,7,1,2x2,1x2,4,1x2,2,1x4,\
         2,1x4,2,1x2,3x2,1,3x3,4,5x2,3,1,5,1,4x2,2,1x2,3,1,3,0x3,6,0x68,2,0x3,2x2,3,0,2,0x21,1x2,2x3,3x4,4x3,\
         2,0,4,0,3x3,1,0x4,3x2,0x4,1x2,0x3,1x2,2 seed=0 faults=134:1:1 collections=1",
        // A sender with a replay beginning at a released record waited with its receipt, and was rolled back for
        // nothing.
        "sim1 pattern=stencil ranks=4 rounds=4 program=8577806140615497869 checkpoints=1 ordered=0 tier=crash-safe mode=priorities:5 \
         seed=14849852754506830151 faults=198:0:7277366117289029086:0,230:0:13388052085155118333,102:2:18139558669467281689 \
         collections=2 clusters=2 background=1",
        // The floor was an epoch with an abandoned checkpoint, and its messages were kept.
        "sim1 pattern=master-worker ranks=2 rounds=8 program=17039018869746530428 checkpoints=2 ordered=0 tier=volatile \
         mode=list:6,5,0x62,1,2,0,3,1,2,0,1,0x33,1,0x21,3,0x28,2,0,3,1,2,0,2x2,0x42,1,2 seed=0 faults=74:0:0,92:2:0,113:2:0 \
         collections=6 clusters=1 background=1",
        // New messages after repeated ones, sent before any receipt was reported, were never acknowledged.
        "sim1 pattern=graph ranks=4 rounds=4 program=7748419202157755770 checkpoints=1 ordered=0 tier=crash-safe \
         mode=uniform seed=9769107702221741799 faults=108:1:9256144136116335388 collections=1 clusters=3",
        // A message from an earlier connection arrived late; its sender had marked it when it sent it again, and so
        // knew more than receipts reported.
        "sim1 pattern=backlog ranks=5 rounds=2 program=5860073775323440670 checkpoints=2 ordered=0 tier=crash-safe \
         mode=uniform seed=1801501536342485859 faults=86:5:14918277110770466730,57:5:11438019089679529871,\
         78:1:2150526218592553539 collections=2 clusters=3 late=1",
        // A new recovery process took a table answering a round of its predecessor with the same number; the
        // incarnations in the following line were taken for living ones in the next round.
        "sim1 pattern=backlog ranks=2 rounds=5 program=1583974814502266909 checkpoints=0 ordered=0 tier=volatile \
         mode=priorities:5 seed=11235488870137006109 faults=69:2:12634649962496210424,86:0:5982306621438176124,\
         100:0:15918718940807580194,116:2:1901638606295085970,119:0:4611783367263704505",
        "sim1 pattern=master-worker ranks=3 rounds=4 program=2898926200954283148 checkpoints=1 ordered=0 tier=crash-safe \
         mode=stalls:4 seed=16577680644950755465 faults=50:3:18120977624883573864,91:3:15783002610441805148,\
         69:1:2806996969254530751,69:2:7267057584457874027,78:0:14074614412688455337,78:0:14501901531499502542 collections=3",
        "sim1 pattern=ring ranks=2 rounds=5 program=11345107685558444783 checkpoints=1 ordered=0 tier=crash-safe \
         mode=priorities:5 seed=5590583847960510817 faults=114:0:17287274488514429147,97:0:4836729017308383234,\
         121:2:7436234538376215908,10:2:3017793723554628473,10:0:13198640527610750892,88:2:1537645782924955899 collections=1",
        // A rank considered the receipts of a peer about to roll back possibly undone, and reported its table before
        // the peer's new incarnation had reported them again: the line fell below a floor.
        "sim1 pattern=tree ranks=4 rounds=10 program=14160604299681215564 checkpoints=1 ordered=0 tier=crash-safe \
         mode=priorities:6 seed=3805073949304212689 faults=206:3:17452129579457654795:0,206:1:2211383174886553076:0,\
         132:0:5769873479114240201:2 collections=1 clusters=1 background=1",
        // The receipt of a message sent again as the last on its channel had no effect, and no collection applied it.
        "sim1 pattern=backlog ranks=3 rounds=1 program=6893475712913606443 checkpoints=1 ordered=0 tier=volatile \
         mode=list:0,6,0,9,8,13,6,4,11,0,2,9,0,7,6,2,3,4,3x3,6x3,0,6x2,1,3,5x2,6,7,4,5,0,2,0,7,5,6,5,6,0x3,5,0,5,0,5,0,4,\
         3,0x4,3,0,3,5x2,0x5,1x2,2,1,3x3,0,3x2,0x8,1x4,3,5x2,0x2,4,3,5,0x2,3,5x2,0x2,4,3,5,0,3,0,3,5x2,0x2,4,3,5,0x6,1,2,\
         0x6,2,0x7,2,1x2,3x2,0x2,2,1,3x2,0x5,2,1,3x3,0,3,0x3,1x4,2,4,0x5,1,3,4,6,4,5,1,4,2,0,5,4x4,0x4,3,2,4x2,0x2,3,2,\
         4x3,0,4,0x2,2 seed=0 faults=1:0:6,31:2:2,31:2:0:6,31:2:0:3 collections=6 late=1 revoked=1 background=1",
    ] {
        let schedule: Schedule = line.parse().unwrap();
        assert_eq!(simulator::run(&send_deterministic::RULE, &schedule).violation, None, "{line}");
    }
}

/// An orphan waited for itself, because a message had a higher phase when it was sent again, and phases were compared
/// as numbers.
#[test]
fn recoveries_that_once_deadlocked_terminate() {
    for line in [
        // Rank 1 sends to 2, then receives from 0; when it executes this again, it receives first.
        "sim1 pattern=graph ranks=3 rounds=1 program=6520154249881710414 checkpoints=0 ordered=0 tier=crash-safe mode=list:0,\
         5,7,5,0,2,0,2 seed=0 faults=160:1:0,188:2:0 collections=3 clusters=3",
        "sim1 pattern=graph ranks=3 rounds=8 program=14565609436210445066 checkpoints=0 ordered=0 tier=crash-safe mode=list:0x53,\
         1x3,0x22,1x3,2x2,0,2x3,0x2,1x2,2x3,0,1x2,0x2,3,0x6,2x2,0x2,2x2,0x10,1x6,0x93,3,0x3,5,4x3,3x2,0,3,5,3,\
         4,0x2,3,5,0x104,1 seed=0 faults=536:1:0,581:2:0 collections=1 clusters=6",
        "sim1 pattern=stencil ranks=5 rounds=3 program=10529511316017027038 checkpoints=0 ordered=0 tier=crash-safe mode=list:22,\
         31,16,30,6,0,5,20,4x5,0,3x2,21x4,15,13,5,3,15,11,16,11,14,7,14,0,2,15,11,2x2,11,8,9x2,10,8,2,8,10,\
         12x2,8,5,6x3,8,5,9,6x3,7,8,9,7,8,3,6,0,2,3,5,1,4,5,0,1,4,0,4,2,3,1,0,1,3,4,0x3,1,2x2,3,1,2,1x2,0x2,\
         1,0,1x2,2,5,7,1,5,6,4,1,4,3,4x3,3,0,5,0x4,5,0,3x2,0,1,3,0x17,3,5,17x2,0x2,11,9,3,2,10,8,5,0,6,7x2,2,\
         0,5,3,2x2,0,1x2,6,4,6x2,7,3,8,2,5,6,7,8,6,2,5,6,3,6,7,6,1x2,0,1,0,1,0,1x3,4,0,5,0x2,4,0,3,4,5,6,7,\
         8x2,7,3,5,6,0,4x2,0x5,1,0x2,1,0x4,1,4,0,3,0,2,0x3,1,0,1x2,2,3,4,2,0,4x2,0,10,1,7,3,6,7x2,0x2,5,0x3,\
         9,7,0x2,1,6 seed=0 faults=257:0:0,103:0:0 clusters=2",
    ] {
        let outcome = simulator::run(&send_deterministic::RULE, &line.parse().unwrap());
        assert_eq!(outcome.violation, None, "{line}");
        assert!(outcome.coverage.faults == 2 && outcome.coverage.orphans > 0, "{line}");
    }
}

/// Many clusters make many phases, and without checkpoints none is ever finished.
#[test]
fn recoveries_of_many_clusters_without_checkpoints_terminate() {
    let config = Config { ranks: (3, 4), clusters: (3, 4), rounds: (2, 6), checkpoints: false, ..all() };
    let met = campaign(0..scaled(3_000), &Config { faults: (2, 2), ..config.clone() });
    assert!(met.orphans > scaled(5_000), "{met:?}");
    campaign(0..scaled(2_000), &Config { faults: (2, 4), ..config });
}

#[test]
fn without_failures_no_rank_rolls_back_and_every_send_is_that_of_the_program_alone() {
    let met = campaign(0..scaled(1_000), &Config { faults: (0, 0), ..all() });
    assert_eq!((met.rollbacks, met.orphans, met.duplicates, met.lines_of_several), (0, 0, 0, 0));
    assert!(met.released > scaled(10_000) && met.freed > scaled(2_000) && met.collections > scaled(1_000), "{met:?}");
}

#[test]
fn the_failure_of_one_rank_is_recovered() {
    let met = campaign(0..scaled(3_000), &Config { faults: (1, 1), coordinator_faults: false, ..config() });
    assert!(
        met.rollbacks > scaled(3_000) && met.lines_of_several > scaled(1_500) && met.faults_during_recovery == 0,
        "{met:?}"
    );
    assert!(met.orphans > scaled(1_000) && met.duplicates > scaled(1_000), "{met:?}");
}

#[test]
fn failures_in_a_row_and_at_once_are_recovered() {
    let met = campaign(0..scaled(3_000), &Config { coordinator_faults: false, ..config() });
    assert_eq!(met.coordinator_faults, 0);
    assert!(met.faults_during_recovery > scaled(1_000) && met.faults_after_recovery > scaled(150), "{met:?}");
}

#[test]
fn the_recovery_process_dies_checkpoints_and_logs_are_collected_and_clusters_kept_apart() {
    let met = campaign(0..scaled(8_000), &all());
    assert!(
        met.coordinator_faults > scaled(1_000) && met.faults_at_once > scaled(500) && met.faults_again > scaled(1_000),
        "{met:?}"
    );
    assert!(met.faults_during_recovery > scaled(1_000) && met.faults_after_recovery > scaled(200), "{met:?}");
    assert!(met.in_flight_lost > scaled(1_000) && met.in_flight_kept > scaled(300), "{met:?}");
    assert!(met.faults_within_events > scaled(4_000) && met.checkpoints_abandoned > scaled(600), "{met:?}");
    assert!(
        met.lines_of_several > scaled(2_000) && met.orphans > scaled(1_000) && met.other_receive_epochs > scaled(200),
        "{met:?}"
    );
    assert!(
        met.logged_replays > scaled(1_000) && met.collections > scaled(6_000) && met.checkpoints_refused > scaled(500),
        "{met:?}"
    );
}

/// Behaviour of a transport that doesn't close an older connection before a newer one is made.
#[test]
fn frames_of_older_connections_may_still_arrive() {
    let met = campaign(0..scaled(3_000), &Config { late: true, ..config() });
    eprintln!("{met:#?}");
    assert!(met.dead_messages > scaled(100) && met.dead_hellos > 0, "{met:?}");
}

#[test]
fn many_ranks_are_recovered() {
    campaign(0..scaled(150), &Config { ranks: (9, 16), ..config() });
    campaign(0..scaled(3_000), &Config { ranks: (2, 3), rounds: (4, 8), ..config() });
}

#[test]
fn a_schedule_repeats_exactly_also_when_it_is_read_back() {
    for seed in 0..scaled(100) {
        let schedule = all().schedule(seed, true);
        let again: Schedule = schedule.to_string().parse().expect("a schedule");
        assert_eq!(again, schedule);
        assert_eq!(
            simulator::run(&send_deterministic::RULE, &schedule),
            simulator::run(&send_deterministic::RULE, &again),
            "seed {seed}"
        );
    }
}

/// Few ranks and many rounds: many epochs, and recoveries dependent on earlier ones.
fn deep() -> Config {
    Config { ranks: (2, 3), rounds: (4, 12), faults: (2, 5), collections: (0, 1), clusters: (0, 0), ..all() }
}

/// Clusters, which have ceilings, and phases released one after the other.
fn clusters() -> Config {
    Config { ranks: (2, 4), rounds: (2, 10), faults: (2, 6), ..all() }
}

/// Returns a campaign's first schedule broken by a canary, the number of schedules up to it, and the violation's name.
fn find(canary: Canary, schedules: u64, config: Config) -> Option<(Schedule, u64, &'static str)> {
    let config = Config { canary: Some(canary), ..config };
    (0..schedules).find_map(|seed| {
        let schedule = config.schedule(seed, true);
        let violation = simulator::run(&send_deterministic::RULE, &schedule).violation?;
        Some((schedule, seed + 1, violation.kind.name()))
    })
}

/// Plants every mistake: the rule's own, and mistakes in the log, checkpoints and driver. Prints the table in
/// `docs/lab/simulations.md`.
#[test]
fn every_mistake_is_found_within_ten_thousand_schedules() {
    let mut missed = Vec::new();
    for canary in Canary::every().filter(|&canary| canary.applies_to(&send_deterministic::RULE)) {
        let of_clusters = [Mistake::CeilingIgnored, Mistake::CeilingKept, Mistake::PhaseBelowWindow];
        let config = if of_clusters.map(Canary::Rule).contains(&canary) { clusters() } else { deep() };
        let Some((schedule, after, name)) = find(canary, 10_000, config) else {
            missed.push(canary);
            continue;
        };
        eprintln!("| `{}` | {after} | `{name}` |", canary.name());
        // The line names it, and without it the schedule passes.
        let line = schedule.to_string();
        let again: Schedule = line.parse().expect("a schedule");
        assert_eq!(again.canary, Some(canary), "{line}");
        assert_eq!(
            simulator::run(&send_deterministic::RULE, &again).violation.map(|violation| violation.kind.name()),
            Some(name)
        );
        assert_eq!(
            simulator::run(&send_deterministic::RULE, &Schedule { canary: None, ..again }).violation,
            None,
            "{line}"
        );
    }
    assert_eq!(missed, []);
}

/// Planted mistakes counted as harmless for a rule have no effect.
#[test]
fn mistakes_without_effect_on_a_rule_change_nothing() {
    let others: Vec<Canary> =
        Canary::ALL.into_iter().filter(|&canary| !canary.applies_to(&send_deterministic::RULE)).collect();
    assert_eq!(others, [Canary::ForgetChoices, Canary::DeliverDead]);
    for canary in others {
        let [with, without] = [Some(canary), None].map(|canary| Config { canary, ..deep() });
        let fingerprint =
            |config| simulator::campaign(&send_deterministic::RULE, 0..scaled(500), &config, |_| {}).fingerprint;
        assert_eq!(fingerprint(with), fingerprint(without), "{canary:?}");
    }
}

#[test]
fn a_recovery_line_over_a_log_that_lost_a_record_is_found_to_be_too_high() {
    let (_, _, name) = find(Canary::ForgetLog, 1_000, all()).expect("it is found");
    assert_eq!(name, "LineTooHigh");
}

/// Runs a schedule from the environment, if there is one, to look into a failure.
#[test]
fn a_schedule_of_the_environment_does_not_fail() {
    let line = std::env::var("SIM_SCHEDULE").unwrap_or_else(|_| all().schedule(3, true).to_string());
    let (outcome, story) = simulator::transcript(&send_deterministic::RULE, &line.parse().expect("a schedule"));
    if outcome.violation.is_some() {
        eprintln!("{}", story.join("\n"));
    }
    assert_eq!(outcome.violation, None, "{:#?}", outcome.coverage);
}

#[test]
fn connections_between_survivors_may_break_and_be_made_again() {
    let met = campaign(0..scaled(3_000), &Config { faults: (1, 4), ranks: (3, 8), revoked: true, ..all() });
    assert!(met.reconnections > scaled(10_000) && met.lines_of_several > scaled(500), "{met:?}");
}
