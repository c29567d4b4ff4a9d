//! Planted faults, each to be detected by the oracle.

use super::*;
use crate::trace::{Trace, TraceCounters};

/// Two ranks: rank 0 sends ten messages to rank 1, with two tags; rank 1 receives them in order.
struct Run {
    directory: tempfile::TempDir,
}

const MESSAGES: u64 = 10;

fn payload(number: u64) -> Vec<u8> {
    vec![number as u8; number as usize]
}

fn tag(number: u64) -> i32 {
    (number % 2) as i32
}

impl Run {
    fn new() -> Run {
        Run { directory: tempfile::tempdir().unwrap() }
    }

    fn trace(&self, rank: u32, incarnation: u32) -> Trace {
        Trace::create(&trace_path(self.directory.path(), rank, incarnation), 2).unwrap()
    }

    fn sends(self) -> Run {
        let mut trace = self.trace(0, 0);
        (1..=MESSAGES).for_each(|number| trace.send(1, tag(number), 0, &payload(number)).unwrap());
        self
    }

    /// Rank 1 receives these messages, given as (number, payload).
    fn delivers(self, messages: &[(u64, Vec<u8>)]) -> Run {
        let mut trace = self.trace(1, 0);
        messages.iter().for_each(|(number, payload)| trace.deliver(0, tag(*number), 0, *number, payload).unwrap());
        self
    }

    fn judge(&self) -> Verdict {
        judge(&self.timelines())
    }

    fn timelines(&self) -> Vec<Timeline> {
        self.timelines_if(Repeats::All)
    }

    fn timelines_if(&self, repeats: Repeats) -> Vec<Timeline> {
        read_timelines(self.directory.path(), 2, repeats).unwrap()
    }
}

fn all() -> Vec<(u64, Vec<u8>)> {
    (1..=MESSAGES).map(|number| (number, payload(number))).collect()
}

#[test]
fn a_good_run_is_clean() {
    let verdict = Run::new().sends().delivers(&all()).judge();
    assert_eq!(verdict, Verdict { sent: MESSAGES, delivered: MESSAGES, ..Verdict::default() });
    assert!(verdict.is_clean());
}

#[test]
fn a_loss_is_seen() {
    for lost in 0..all().len() {
        let mut messages = all();
        messages.remove(lost);
        assert_eq!(Run::new().sends().delivers(&messages).judge().lost, 1);
    }
}

#[test]
fn a_duplicate_is_seen() {
    let mut messages = all();
    messages.push(messages[4].clone());
    let verdict = Run::new().sends().delivers(&messages).judge();
    assert_eq!((verdict.duplicated, verdict.lost, verdict.reordered), (1, 0, 0));
}

#[test]
fn a_swap_within_a_stream_is_seen_and_one_between_streams_is_allowed() {
    let mut messages = all();
    messages.swap(3, 5); // the same tag
    assert_eq!(Run::new().sends().delivers(&messages).judge().reordered, 2 - 1);
    let mut messages = all();
    messages.swap(3, 4); // different tags: MPI lets these overtake
    assert!(Run::new().sends().delivers(&messages).judge().is_clean());
}

#[test]
fn a_changed_byte_and_an_invented_message_are_seen() {
    let mut messages = all();
    messages[6].1[2] ^= 1;
    assert_eq!(Run::new().sends().delivers(&messages).judge().altered, 1);
    let mut messages = all();
    messages.push((MESSAGES + 2, payload(3)));
    assert_eq!(Run::new().sends().delivers(&messages).judge().altered, 1);
}

#[test]
fn a_faithful_re_execution_from_the_start_is_one_timeline() {
    let run = Run::new().sends().delivers(&all()[..7]);
    let mut again = run.trace(1, 1);
    all().iter().for_each(|(number, payload)| again.deliver(0, tag(*number), 0, *number, payload).unwrap());
    assert!(run.judge().is_clean());
    let reach = |incarnation, events| Reach { incarnation, events };
    assert_eq!(run.timelines()[1].reach, [reach(0, 7), reach(1, 10)]);
}

#[test]
fn a_faithful_re_execution_from_a_checkpoint_is_one_timeline() {
    let run = Run::new().sends().delivers(&all()[..7]);
    let mut again = run.trace(1, 1);
    again.restore(TraceCounters { events: 4, sent: vec![0, 0] }).unwrap();
    all()[4..].iter().for_each(|(number, payload)| again.deliver(0, tag(*number), 0, *number, payload).unwrap());
    let verdict = run.judge();
    assert!(verdict.is_clean(), "{verdict:?}");
    assert_eq!(verdict.delivered, MESSAGES);
}

#[test]
fn a_re_execution_in_another_order_is_a_divergence() {
    let run = Run::new().sends().delivers(&all()[..7]);
    let mut again = run.trace(1, 1);
    let mut messages = all();
    messages.swap(3, 4); // valid in a first execution, but not the order of the dead incarnation
    messages.iter().for_each(|(number, payload)| again.deliver(0, tag(*number), 0, *number, payload).unwrap());
    assert_eq!(run.judge().diverged, 1);
    assert_eq!(run.timelines()[1].divergences[0].index, 3);
}

#[test]
fn a_re_execution_that_ends_early_is_a_divergence() {
    let run = Run::new().sends().delivers(&all());
    let mut again = run.trace(1, 1);
    all()[..8].iter().for_each(|(number, payload)| again.deliver(0, tag(*number), 0, *number, payload).unwrap());
    let divergences = run.timelines().remove(1).divergences;
    assert_eq!((divergences[0].index, divergences[0].after), (8, None));
}

#[test]
fn a_replacement_that_dies_early_does_not_shorten_the_timeline() {
    let run = Run::new().sends().delivers(&all()[..7]);
    let mut second = run.trace(1, 1);
    all()[..3].iter().for_each(|(number, payload)| second.deliver(0, tag(*number), 0, *number, payload).unwrap());
    // Incarnation 2 was killed before it opened its trace.
    let mut fourth = run.trace(1, 3);
    let mut messages = all();
    messages[5].1[0] ^= 1;
    messages.iter().for_each(|(number, payload)| fourth.deliver(0, tag(*number), 0, *number, payload).unwrap());
    let timeline = run.timelines().remove(1);
    assert_eq!(timeline.divergences.len(), 1);
    assert_eq!((timeline.divergences[0].incarnation, timeline.divergences[0].index), (3, 5));
}

#[test]
fn a_torn_event_is_ignored_in_a_dead_incarnation_only() {
    use std::io::Write;
    let run = Run::new().sends().delivers(&all()[..7]);
    let path = trace_path(run.directory.path(), 1, 0);
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(&[1, 2, 3]).unwrap();
    assert!(matches!(read_timelines(run.directory.path(), 2, Repeats::All), Err(OracleError::Damaged { .. })));
    let mut again = run.trace(1, 1);
    all().iter().for_each(|(number, payload)| again.deliver(0, tag(*number), 0, *number, payload).unwrap());
    assert!(run.judge().is_clean());
}

#[test]
fn runs_are_compared_event_by_event() {
    let reference = Run::new().sends().delivers(&all()).timelines();
    assert_eq!(compare(&Run::new().sends().delivers(&all()).timelines(), &reference), None);
    assert_eq!(compare(&Run::new().sends().delivers(&all()[..9]).timelines(), &reference), Some((1, 9)));
    let mut messages = all();
    messages.swap(3, 4);
    assert_eq!(compare(&Run::new().sends().delivers(&messages).timelines(), &reference), Some((1, 3)));
}

/// Makes rank 1 receive messages 1 and 2 in this order, send one, and receive two more in another order than its
/// replacement.
fn answers(run: &Run, incarnation: u32, deliveries: [u64; 2], answer: &[u8], rest: &[u64]) {
    let mut trace = run.trace(1, incarnation);
    let deliver = |number: u64, trace: &mut Trace| trace.deliver(0, tag(number), 0, number, &payload(number)).unwrap();
    deliveries.iter().for_each(|number| deliver(*number, &mut trace));
    trace.send(0, 0, 0, answer).unwrap();
    rest.iter().for_each(|number| deliver(*number, &mut trace));
}

fn received_answer(run: &Run, answer: &[u8]) {
    let mut trace = run.trace(0, 0);
    (1..=4).for_each(|number| trace.send(1, tag(number), 0, &payload(number)).unwrap());
    trace.deliver(1, 0, 0, 1, answer).unwrap();
}

#[test]
fn an_outcome_on_which_no_send_depends_may_change() {
    let run = Run::new();
    received_answer(&run, b"a");
    answers(&run, 0, [1, 2], b"a", &[3, 4]);
    answers(&run, 1, [1, 2], b"a", &[4]);
    answers(&run, 2, [1, 2], b"a", &[4, 3]);
    let timelines = run.timelines_if(Repeats::UpToLastSend);
    assert!(judge(&timelines).is_clean(), "{timelines:?}");
    assert_eq!(judge(&run.timelines()).diverged, 2);
}

#[test]
fn an_outcome_on_which_a_send_depends_must_be_repeated() {
    let run = Run::new();
    received_answer(&run, b"a");
    answers(&run, 0, [1, 2], b"a", &[]);
    answers(&run, 1, [2, 1], b"a", &[3, 4]);
    assert_eq!(judge(&run.timelines_if(Repeats::UpToLastSend)).diverged, 1);
}

#[test]
fn a_re_execution_that_ends_before_the_last_send_of_its_predecessor_has_diverged() {
    let run = Run::new();
    received_answer(&run, b"a");
    answers(&run, 0, [1, 2], b"a", &[3, 4]);
    let mut again = run.trace(1, 1);
    (1..=2).for_each(|number| again.deliver(0, tag(number), 0, number, &payload(number)).unwrap());
    let timelines = run.timelines_if(Repeats::UpToLastSend);
    assert_eq!(judge(&timelines).diverged, 1);
    assert_eq!(timelines[1].events.len(), 5);
}

#[test]
fn what_a_checkpoint_covers_must_be_repeated() {
    let run = Run::new();
    received_answer(&run, b"a");
    answers(&run, 0, [1, 2], b"a", &[3, 4]);
    let mut again = run.trace(1, 1);
    again.restore(TraceCounters { events: 5, sent: vec![1, 0] }).unwrap();
    answers(&run, 2, [1, 2], b"a", &[4, 3]);
    assert_eq!(judge(&run.timelines_if(Repeats::UpToLastSend)).diverged, 1);
}
