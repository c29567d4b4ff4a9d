//! Killing processes by SIGKILL: the ranks end with the same digests as without.

use counterfoil_campaign::scaled;
use counterfoil_protocols::api::Rule;
use counterfoil_protocols::{coordinated, event_logging, message_tagging};
use counterfoil_runtime::local::{JobOptions, JobReport, Kill, KillPoint, Observer, Progress, launch_under};
use counterfoil_runtime::transport::CallKind;
use counterfoil_runtime::{RankSettings, Tally, Tier};
use counterfoil_test_rules::older_line::OlderLine;
use counterfoil_test_rules::program::Program;
use counterfoil_test_rules::{PIGGYBACKED, USER_LEVEL, Work};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

const RANKS: u32 = 4;
const ITERATIONS: u64 = 60;

struct Quiet;

impl Observer for Quiet {
    fn handle_progress(&mut self, _: Progress) {}
}

fn run(rule: Rule, tier: Tier, checkpoint_every: u64, kills: &[Kill]) -> JobReport {
    let per_rank_results = rule == USER_LEVEL;
    // The others take theirs on request.
    let offered_by = [event_logging::RULE, message_tagging::RULE].contains(&rule).then_some(0);
    let program = Program { iterations: ITERATIONS, checkpoint_every, per_rank_results, offered_by };
    run_work(rule, tier, RANKS, &Work::Calls(program), kills)
}

fn run_work(rule: Rule, tier: Tier, ranks: u32, work: &Work, kills: &[Kill]) -> JobReport {
    let root = tempfile::Builder::new().prefix("cfr").tempdir_in("/tmp").unwrap();
    let rank = env!("CARGO_BIN_EXE_counterfoil-test-rank");
    let mut options = JobOptions::new(vec![rank.into(), format!("{rule:?}").into()], ranks);
    options.settings = RankSettings { tier, log_bytes_max: 16 << 20, ..RankSettings::new(ranks) };
    options.program = postcard::to_stdvec(work).unwrap();
    options.shm_root = root.path().to_owned();
    options.checkpoint_root = root.path().to_owned();
    options.kills = kills.to_vec();
    options.wall_max = Some(std::time::Duration::from_secs(60));
    launch_under(&rule, &options, None, &mut Quiet)
        .unwrap_or_else(|error| panic!("{rule:?} {tier:?} {work:?} {kills:?}: {error}"))
}

/// Runs jobs with random kills, and compares their outcomes with an undisturbed job's.
///
/// Returns the summed counters.
fn campaign(rule: Rule, jobs: u64) -> Tally {
    let mut random = SplitMix64::seed_from_u64(20);
    let mut below = move |bound: u64| random.next_u64() % bound;
    let expected = run(rule, Tier::Volatile, 0, &[]).outcomes;
    let mut sum = Tally::default();
    for _ in 0..jobs {
        let tier = [Tier::Volatile, Tier::ProcessCrashSafe][below(2) as usize];
        let checkpoint_every = [0, 3, 7][below(3) as usize];
        let kills: Vec<Kill> = (0..1 + below(3))
            .map(|_| {
                let iteration = 1 + below(ITERATIONS);
                let at = match below(3) {
                    0 => KillPoint::Iteration(iteration),
                    1 => KillPoint::Call(iteration, CallKind::Collective),
                    _ => KillPoint::Call(iteration, CallKind::Send),
                };
                Kill { rank: below(u64::from(RANKS)) as u32, at }
            })
            .collect();
        let report = run(rule, tier, checkpoint_every, &kills);
        assert_eq!(report.outcomes, expected, "{rule:?} {tier:?} {checkpoint_every} {kills:?}");
        sum += report.tally;
    }
    eprintln!("{rule:?}: {sum:#?}");
    sum
}

#[test]
fn results_of_collectives_come_from_survivors() {
    // A collective fails midway in two of three jobs.
    let sum = campaign(USER_LEVEL, scaled(20).max(12));
    assert!(sum.collectives_recorded > 0 && sum.entries_sent > 0 && sum.collectives_failed > 0, "{sum:?}");
}

/// All ranks lose their memory, with the results not yet synced.
#[test]
fn collectives_survive_a_power_cut() {
    let expected = run(USER_LEVEL, Tier::Volatile, 0, &[]).outcomes;
    for (cut, checkpoint_every) in [(9, 0), (20, 3), (33, 7)] {
        let in_call = Kill { rank: 2, at: KillPoint::Call(cut + 10, CallKind::Collective) };
        let kills = [Kill { rank: 0, at: KillPoint::PowerCut(cut) }, in_call];
        let report = run(USER_LEVEL, Tier::NodeLocal, checkpoint_every, &kills);
        assert_eq!(report.outcomes, expected, "{cut} {checkpoint_every}");
        assert_eq!((report.power_cuts.len(), report.missed), (1, Vec::new()));
    }
}

#[test]
fn all_ranks_go_back_to_the_line() {
    let mut sum = campaign(coordinated::RULE, scaled(12));
    sum += campaign(PIGGYBACKED, scaled(12));
    assert!(sum.checkpoints_asked > 0 && sum.collectives > 0 && sum.collectives_failed > 0, "{sum:?}");
    // Early messages are suppressed at their senders.
    assert_eq!(sum.duplicates_dropped, 0);
}

/// Collectives run natively, and a receive may be open when another rank's request forces a checkpoint.
#[test]
fn all_ranks_go_back_to_the_line_of_event_logging_and_message_tagging() {
    for rule in [event_logging::RULE, message_tagging::RULE] {
        let sum = campaign(rule, scaled(12));
        assert!(sum.checkpoints_asked > 0 && sum.choices_logged > 0 && sum.collectives_failed > 0, "{rule:?} {sum:?}");
    }
}

/// Rank 1 is killed while writing its checkpoint of a line, after rank 0's is durable: rank 0 restores the one before.
#[test]
fn a_rank_goes_back_to_a_line_that_is_older_than_its_newest_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    for (number, tier) in [Tier::Volatile, Tier::ProcessCrashSafe, Tier::NodeLocal].into_iter().enumerate() {
        for rule in [coordinated::RULE, PIGGYBACKED] {
            let run = |name: &str, kills: &[Kill]| {
                let notes = folder.path().join(format!("{name}-{number}-{}", rule.options.bits.name()));
                let work = Work::OlderLine(OlderLine { iterations: 60, notes: notes.clone() });
                (run_work(rule, tier, 2, &work, kills), std::fs::read_to_string(notes).unwrap_or_default())
            };
            let (expected, without) = run("plain", &[]);
            assert!(without.contains("durable") && !without.contains("restored"), "{without}");
            let kill = Kill { rank: 1, at: KillPoint::Call(30, CallKind::Checkpoint) };
            let (report, notes) = run("killed", &[kill]);
            assert_eq!((report.outcomes, report.missed), (expected.outcomes, Vec::new()), "{notes}");
            let iteration = |line: &str, what| Some(line.strip_prefix(what)?.parse::<u64>().unwrap());
            let restored: Vec<u64> = notes.lines().filter_map(|line| iteration(line, "restored ")).collect();
            let before = notes.lines().take_while(|line| !line.starts_with("restored"));
            let durable: Vec<u64> = before.filter_map(|line| iteration(line, "durable ")).collect();
            // The newest one belongs to the line that the kill kept from being committed.
            assert_eq!(restored, durable[durable.len() - 2..][..1], "{notes}");
        }
    }
}
