use counterfoil_ack_piggyback::WireHeader;
use counterfoil_log_core::{Epoch, Incarnation, Rank};

use super::super::line::{SentInEpoch, SentTo};
use super::super::{Config, SendDeterministic};
use super::*;
use crate::api::{Effect, Party, Protocol, command_header};

/// Second process of a rank.
const REPLACED: u32 = 1 << 16;

fn table(incarnation: u32) -> RankTable {
    RankTable { incarnation, epoch: 1, ..RankTable::default() }
}

fn report_table(process: &mut RecoveryProcess, rank: u32, table: RankTable) {
    let (round, phases) = (process.round(), PhaseOrder::default());
    let report = Report::Table { round, table, phase: 1, phases };
    assert_eq!(process.handle_control(Rank(rank), &notice::encode(&report)), Ok(()));
}

fn report_rollback(process: &mut RecoveryProcess, rank: u32, incarnation: u32) {
    assert_eq!(process.handle_control(Rank(rank), &notice::encode(&Report::Rollback { incarnation })), Ok(()));
}

/// Returns the commands since the last call.
fn commands(process: &mut RecoveryProcess) -> Vec<Command> {
    std::iter::from_fn(|| process.poll_message()).filter_map(|(_, body)| notice::decode(&body)).collect()
}

fn lines(process: &mut RecoveryProcess) -> Vec<Line> {
    let commands = commands(process).into_iter();
    commands.filter_map(|command| if let Command::Line(line) = command { Some(line) } else { None }).collect()
}

#[test]
fn a_table_of_a_dead_process_is_not_taken() {
    let mut process = RecoveryProcess::new(2, None);
    report_rollback(&mut process, 1, REPLACED);
    report_table(&mut process, 0, table(0));
    report_table(&mut process, 1, table(0));
    assert_eq!(lines(&mut process), []);
    report_table(&mut process, 1, RankTable { restored: Some(1), ..table(REPLACED) });
    assert_eq!(lines(&mut process).len(), 2);
}

/// Rank 0 has to roll back with rank 1, and hasn't done so when rank 1 dies again.
#[test]
fn a_promised_incarnation_ends_with_its_line() {
    let entry = SentInEpoch { epoch: 1, first: 1, received: Some(1), stale: None };
    let sent = SentTo { peer: 1, sent: 1, epochs: vec![entry] };
    let with_dependency = RankTable { channels: vec![sent], ..table(0) };
    let mut process = RecoveryProcess::new(2, None);
    for incarnation in [REPLACED, 2 * REPLACED] {
        report_rollback(&mut process, 1, incarnation);
        report_table(&mut process, 1, RankTable { restored: Some(1), ..table(incarnation) });
        report_table(&mut process, 0, with_dependency.clone());
        let restores: Vec<_> = lines(&mut process).into_iter().map(|line| line.restore).collect();
        assert_eq!(restores, [Some((1, 1)), Some((1, incarnation))]);
    }
}

#[test]
fn a_recovery_process_uses_no_number_of_another_one() {
    let mut process = RecoveryProcess::replacement(2, None, 3);
    assert_eq!(process.round(), (3 << 32) + 1);
    assert_eq!(
        commands(&mut process),
        [Command::Block { round: (3 << 32) + 1 }, Command::Block { round: (3 << 32) + 1 }]
    );
    (0..2).for_each(|rank| report_table(&mut process, rank, table(0)));
    for rank in 0..2 {
        let report = Report::Orphans { round: process.round(), phases: Vec::new() };
        assert_eq!(process.handle_control(Rank(rank), &notice::encode(&report)), Ok(()));
    }
    let _ = commands(&mut process);
    assert!(process.begin_collection(Floor::ByLine));
    let expected = Command::Collect { number: (3 << 32) + 1, round: process.round() };
    assert_eq!(commands(&mut process), [expected.clone(), expected]);
    // An answer to a collection by its predecessor.
    let report = Report::Collection { number: (2 << 32) + 1, table: table(0) };
    for rank in 0..2 {
        assert_eq!(process.handle_control(Rank(rank), &notice::encode(&report)), Ok(()));
    }
    assert!(process.is_collecting() && commands(&mut process).is_empty());
}

/// The phase order in a checkpoint from an earlier run of the job contains a round number.
#[test]
fn rounds_go_on_after_those_of_an_earlier_job() {
    let mut process = RecoveryProcess::new(2, None);
    report_rollback(&mut process, 1, REPLACED);
    let phases = PhaseOrder::default().with_windows(9, &[], 5);
    let report = Report::Table { round: 1, table: table(0), phase: 1, phases };
    assert_eq!(process.handle_control(Rank(0), &notice::encode(&report)), Ok(()));
    assert_eq!(process.round(), 10);
}

#[test]
fn reports_with_numbers_out_of_range_are_refused() {
    let mut process = RecoveryProcess::replacement(2, None, 1);
    let entry = |epoch, first| SentInEpoch { epoch, first, received: None, stale: None };
    let channel = |peer, sent, epochs| RankTable { channels: vec![SentTo { peer, sent, epochs }], ..table(0) };
    for wrong in [
        RankTable { incarnation: u32::MAX, ..table(0) },
        RankTable { epoch: 0, ..table(0) },
        RankTable { restored: Some(u32::MAX), ..table(0) },
        RankTable { peers: vec![2], ..table(0) },
        channel(2, 1, Vec::new()),
        channel(1, u64::MAX, Vec::new()),
        channel(1, 1, vec![entry(0, 1)]),
        channel(1, 1, vec![entry(1, 0)]),
        channel(1, 1, vec![entry(1, 2)]),
        channel(1, 2, vec![entry(2, 1), entry(1, 2)]),
        channel(1, 2, vec![entry(1, 2), entry(2, 1)]),
        channel(1, 2, vec![entry(1, 1), entry(1, 2)]),
        channel(1, 2, vec![entry(1, 1), entry(2, 1)]),
        RankTable { channels: vec![SentTo { peer: 1, ..SentTo::default() }; 2], ..table(0) },
    ] {
        let report = Report::Table { round: process.round(), table: wrong, phase: 1, phases: PhaseOrder::default() };
        let body = notice::encode(&report);
        let refused = CoordinatorError::Malformed { from: Rank(0), len: body.len() };
        assert_eq!(process.handle_control(Rank(0), &body), Err(refused), "{report:?}");
    }
    report_table(&mut process, 0, channel(1, 2, vec![entry(1, 1), entry(2, 2)]));
    report_table(&mut process, 1, table(0));
    assert_eq!(lines(&mut process).len(), 2);
}

/// The phase order may be known to checkpoints only: all ranks die at once.
#[test]
fn a_restored_rank_reports_the_order_of_phases_of_its_checkpoint() {
    let phases = PhaseOrder::default().with_windows(1, &[Window { first: 10, before: 3 }], 15);
    let mut rank = SendDeterministic::new(Config::new(Rank(0), 2)).unwrap();
    rank.phases = phases.clone();
    let tables = rank.handle_checkpoint().unwrap().tables;
    let mut again = SendDeterministic::new(Config { incarnation: Incarnation(1), ..Config::new(Rank(0), 2) }).unwrap();
    again.restore(&tables, Epoch::FIRST).unwrap();
    let body = notice::encode(&Command::Block { round: 2 });
    let header: WireHeader = command_header(Rank(0), &body);
    again.handle_control(Party::Coordinator, &header, &body).unwrap();
    let reports = std::iter::from_fn(|| again.poll_effect()).filter_map(|effect| match effect {
        Effect::Transmit { to: Party::Coordinator, body, .. } => Report::decode(&body, 2),
        _ => None,
    });
    let reported =
        reports.filter_map(|report| if let Report::Table { phases, .. } = report { Some(phases) } else { None });
    assert_eq!(reported.collect::<Vec<_>>(), [phases]);
}

fn handle(process: &mut RecoveryProcess, rank: u32, report: &Report) {
    assert_eq!(process.handle_control(Rank(rank), &notice::encode(report)), Ok(()));
}

#[test]
fn a_second_replacement_joins_the_round_and_a_successor_begins_the_next() {
    let mut process = RecoveryProcess::new(2, None);
    report_rollback(&mut process, 1, REPLACED);
    assert_eq!((process.round(), commands(&mut process).len()), (1, 2));
    report_rollback(&mut process, 0, REPLACED);
    assert_eq!(process.round(), 1);
    assert_eq!(process.poll_message().map(|(to, _)| to), Some(Rank(0)));
    assert_eq!(process.poll_message(), None);
    // The table from the replaced process is there already.
    report_table(&mut process, 0, RankTable { restored: Some(1), ..table(REPLACED) });
    report_rollback(&mut process, 0, 2 * REPLACED);
    assert_eq!((process.round(), commands(&mut process).len()), (2, 2));
}

/// Rank 1 sent in phases 1 and 3 what ranks 0 and 1 have received, and begins again.
#[test]
fn phases_are_released_in_order_when_no_rank_has_orphans_in_them() {
    let mut process = RecoveryProcess::new(2, None);
    assert!(!process.is_recovering() && process.line().is_none());
    report_rollback(&mut process, 1, REPLACED);
    assert!(process.is_recovering());
    let earlier = process.round();
    report_rollback(&mut process, 1, 2 * REPLACED);
    report_table(&mut process, 1, RankTable { restored: Some(1), ..table(2 * REPLACED) });
    report_rollback(&mut process, 1, 3 * REPLACED);
    let round = process.round();
    assert!(round > earlier);
    // Reports from an earlier round don't count.
    for rank in 0..2 {
        let phases = PhaseOrder::default();
        handle(&mut process, rank, &Report::Table { round: earlier, table: table(0), phase: 1, phases });
    }
    assert_eq!(lines(&mut process), []);
    report_table(&mut process, 1, RankTable { restored: Some(1), ..table(3 * REPLACED) });
    assert_eq!(lines(&mut process), []);
    report_table(&mut process, 0, table(0));
    assert_eq!(lines(&mut process).len(), 2);
    assert_eq!(process.line(), Some((round, &[None, Some(1)][..])));

    (0..2).for_each(|rank| handle(&mut process, rank, &Report::Orphans { round: earlier, phases: vec![9] }));
    assert_eq!(commands(&mut process), []);
    (0..2).for_each(|rank| handle(&mut process, rank, &Report::Orphans { round, phases: vec![1, 3] }));
    let ready = |open, next_phase| Command::Ready { round, open, next_phase };
    assert_eq!(commands(&mut process), [ready(1, 2), ready(1, 2)]);
    let resent = |round, phase| Report::NoOrphanPhase { round, phase, resent_phase: 5 };
    (0..2).for_each(|rank| handle(&mut process, rank, &resent(earlier, 1)));
    handle(&mut process, 0, &resent(round, 1));
    assert_eq!(commands(&mut process), [], "rank 1 has orphans in phase 1");
    handle(&mut process, 1, &resent(round, 1));
    assert_eq!(commands(&mut process), [ready(3, 6), ready(3, 6)]);
    (0..2).for_each(|rank| handle(&mut process, rank, &resent(round, 3)));
    assert!(matches!(commands(&mut process)[..], [Command::Finished { .. }, Command::Finished { .. }]));
    assert!(!process.is_recovering());
}

#[test]
fn a_collection_waits_for_the_tables_of_all_ranks() {
    for (floor, floors) in [(Floor::ByLine, [2, 3]), (Floor::BySmallestEpoch, [2, 2])] {
        let mut process = RecoveryProcess::new(2, None);
        assert!(!process.is_collecting());
        assert!(process.begin_collection(floor) && process.is_collecting());
        assert_eq!(commands(&mut process), vec![Command::Collect { number: 1, round: 0 }; 2]);
        let answer = |epoch| Report::Collection { number: 1, table: RankTable { epoch, ..table(0) } };
        // A repeated answer replaces the first one.
        for epoch in [1, 2] {
            handle(&mut process, 0, &answer(epoch));
            assert!(process.is_collecting() && commands(&mut process).is_empty());
        }
        handle(&mut process, 1, &answer(3));
        assert!(!process.is_collecting());
        let expected = floors.map(|epoch| Command::Floor { round: 0, epoch, ceiling: u32::MAX });
        assert_eq!(commands(&mut process), expected);
    }
}
