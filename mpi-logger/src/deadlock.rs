//! Deadlock detection: after a long wait for space, a rank asks all others for their programs' activity, in rounds.
//!
//! A computing rank doesn't reply, and a progressing rank has another number in the next round. If two rounds, one
//! beginning after the other has ended, bring the same numbers from all ranks, each rank spent the time between them in
//! a single MPI call, or waited for space. Messages in flight then can still arrive; if none has for ten seconds, none
//! will. With MPI_THREAD_MULTIPLE a computing thread doesn't show, so the limit is a minute.

use std::time::{Duration, Instant};

use counterfoil_profile::RecordTag;

/// Default time without any activity after which a wait is given up.
pub const DEADLOCK_AFTER: Duration = Duration::from_secs(10);
/// Factor on that time where a rank has MPI_THREAD_MULTIPLE: while one thread waits in a call, another may compute.
const MULTITHREADED_FACTOR: u32 = 6;
/// Flag of a reply: this rank waits for space.
const WAITS: i32 = 1;
/// Flag of a reply: this rank has MPI_THREAD_MULTIPLE.
const MULTITHREADED: i32 = 2;
/// Time between two rounds.
const PAUSE: Duration = Duration::from_millis(250);

/// A round's question about a rank's activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressRequest {
    round: u32,
}

impl ProgressRequest {
    /// Encodes the request as an entry of a control message.
    pub fn encode(self) -> [u8; RecordTag::LEN] {
        RecordTag { comm: self.round, tag: 0, number: 0 }.encode()
    }

    /// Decodes a request; `None` if too short.
    pub fn decode(bytes: &[u8]) -> Option<ProgressRequest> {
        RecordTag::decode(bytes).map(|entry| ProgressRequest { round: entry.comm })
    }

    /// Encodes the reply of a rank in this state.
    pub fn reply(self, state: ProgressReply) -> [u8; RecordTag::LEN] {
        let waits = if state.waits { WAITS } else { 0 };
        let multithreaded = if state.is_multithreaded { MULTITHREADED } else { 0 };
        RecordTag { comm: self.round, tag: waits | multithreaded, number: state.activity }.encode()
    }
}

/// A rank's state, sent in reply to a [`ProgressRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressReply {
    /// Number changed by everything MPI does for the program.
    pub activity: u64,
    /// True while the rank waits for space in its log.
    pub waits: bool,
    /// True if its threads call MPI at any time (MPI_THREAD_MULTIPLE).
    pub is_multithreaded: bool,
}

/// Next step of a rank after a long wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlockStep {
    /// Waits on.
    Wait,
    /// Sends this request to all others.
    Request(ProgressRequest),
    /// Gives up: no rank was active for this long, and it is this rank's turn.
    GiveUp(Duration),
}

/// Rounds of requests.
///
/// A rank replies before it gets the next request.
#[derive(Debug)]
pub struct DeadlockDetector {
    rank: u32,
    /// Time without activity after which the wait is given up, before [`MULTITHREADED_FACTOR`].
    after: Duration,
    round: u32,
    /// By rank: true while its reply in this round is missing.
    is_awaited: Vec<bool>,
    missing: u32,
    /// By rank: true once it has left the job or failed.
    ///
    /// It waits for nothing and has no activity.
    has_left: Vec<bool>,
    /// Activity replied by each rank; for this rank, as of the round's begin.
    activity: Vec<u64>,
    /// Activity in the previous round; empty if it belonged to another wait.
    before: Vec<u64>,
    /// True if a lower rank waits for space, too: it gives up first.
    lower_rank_waits: bool,
    is_multithreaded: bool,
    /// End of the last round.
    completed: Option<Instant>,
    /// Start of the time without activity.
    still_since: Option<Instant>,
}

impl DeadlockDetector {
    /// Returns the detector of `rank` in a job of `ranks` ranks.
    ///
    /// It gives up after this time without activity, usually [`DEADLOCK_AFTER`].
    pub fn new(rank: u32, ranks: u32, after: Duration) -> DeadlockDetector {
        DeadlockDetector {
            rank,
            after,
            round: 0,
            is_awaited: vec![false; ranks as usize],
            missing: 0,
            has_left: vec![false; ranks as usize],
            activity: vec![0; ranks as usize],
            before: Vec::new(),
            lower_rank_waits: false,
            is_multithreaded: false,
            completed: None,
            still_since: None,
        }
    }

    /// Returns `true` if the wait isn't given up at once.
    pub fn may_wait(&self) -> bool {
        !self.after.is_zero()
    }

    /// Sets the time without activity after which the wait is given up.
    pub fn set_after(&mut self, after: Duration) {
        self.after = after;
    }

    /// Begins another wait: earlier rounds don't count.
    pub fn begin(&mut self) {
        self.before.clear();
        self.still_since = None;
        // The current round's activity is compared when it ends, so it has to be the first of two.
        self.completed = None;
    }

    /// Returns the next step of a rank in state `own` after a long wait.
    pub fn step(&mut self, now: Instant, own: ProgressReply) -> DeadlockStep {
        let is_recent = self.completed.is_some_and(|last| now.saturating_duration_since(last) < PAUSE);
        if self.missing > 0 || is_recent {
            return DeadlockStep::Wait;
        }
        let after = self.after.saturating_mul(if self.is_multithreaded { MULTITHREADED_FACTOR } else { 1 });
        let is_over = self.still_since.is_some_and(|since| now.saturating_duration_since(since) >= after);
        if !self.lower_rank_waits && is_over {
            return DeadlockStep::GiveUp(after);
        }
        self.round = self.round.wrapping_add(1);
        for (rank, is_awaited) in self.is_awaited.iter_mut().enumerate() {
            *is_awaited = rank != self.rank as usize && !self.has_left[rank];
        }
        self.missing = self.is_awaited.iter().map(|is_awaited| u32::from(*is_awaited)).sum();
        (self.lower_rank_waits, self.is_multithreaded) = (false, own.is_multithreaded);
        self.activity[self.rank as usize] = own.activity;
        if self.missing == 0 {
            self.end_round(now);
        }
        DeadlockStep::Request(ProgressRequest { round: self.round })
    }

    /// Handles a rank's reply.
    pub fn handle_reply(&mut self, from: u32, reply: &[u8], now: Instant) {
        let Some(reply) = RecordTag::decode(reply) else { return };
        if reply.comm != self.round || !self.take_awaited(from) {
            return;
        }
        self.activity[from as usize] = reply.number;
        self.lower_rank_waits |= reply.tag & WAITS != 0 && from < self.rank;
        self.is_multithreaded |= reply.tag & MULTITHREADED != 0;
        if self.missing == 0 {
            self.end_round(now);
        }
    }

    /// Notes a rank that has left the job or failed, and replies no more.
    pub fn handle_left(&mut self, rank: u32, now: Instant) {
        if let Some(has_left) = self.has_left.get_mut(rank as usize) {
            *has_left = true;
        }
        if self.take_awaited(rank) && self.missing == 0 {
            self.end_round(now);
        }
    }

    /// Returns `true` if this rank's reply was missing; from now on it isn't.
    fn take_awaited(&mut self, from: u32) -> bool {
        let is_awaited = self.is_awaited.get_mut(from as usize).is_some_and(std::mem::take);
        self.missing -= u32::from(is_awaited);
        is_awaited
    }

    /// Returns the departed or failed ranks.
    pub fn left(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.has_left).filter(|(_, has_left)| **has_left).map(|(rank, _)| rank)
    }

    fn end_round(&mut self, now: Instant) {
        if self.before != self.activity || self.completed.is_none() {
            self.still_since = None;
        } else if self.still_since.is_none() {
            self.still_since = self.completed;
        }
        self.before.clone_from(&self.activity);
        self.completed = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITING: ProgressReply = ProgressReply { activity: 5, waits: true, is_multithreaded: false };

    #[test]
    fn nothing_has_happened_since_the_first_of_two_equal_rounds_of_one_wait() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut detector = DeadlockDetector::new(0, 2, DEADLOCK_AFTER);
        let mut round = |activity: [u64; 2], seconds| {
            detector.activity = activity.to_vec();
            detector.end_round(at(seconds));
            detector.still_since
        };
        assert_eq!(round([1, 2], 1), None);
        assert_eq!(round([1, 2], 3), Some(at(1)));
        assert_eq!(round([1, 2], 4), Some(at(1)));
        assert_eq!(round([1, 3], 5), None);
        assert_eq!(round([1, 3], 6), Some(at(5)));
        detector.begin();
        detector.end_round(at(7));
        assert_eq!(detector.still_since, None);
        detector.end_round(at(8));
        assert_eq!(detector.still_since, Some(at(7)));
    }

    /// Lets ranks in these states step once a second.
    ///
    /// Returns the first rank to give up, the second, and its limit.
    fn first_to_give_up(
        states: [impl Fn(u64) -> Option<ProgressReply>; 3],
        after: Duration,
    ) -> Option<(usize, u64, Duration)> {
        let begun = Instant::now();
        let mut all = [0, 1, 2].map(|rank| DeadlockDetector::new(rank, 3, after));
        for second in 0..1000 {
            let now = begun + Duration::from_secs(second);
            for (rank, state) in states.iter().enumerate() {
                let Some(own) = state(second).filter(|own| own.waits) else { continue };
                let request = match all[rank].step(now, own) {
                    DeadlockStep::Wait => continue,
                    DeadlockStep::GiveUp(after) => return Some((rank, second, after)),
                    DeadlockStep::Request(request) => ProgressRequest::decode(&request.encode()).unwrap(),
                };
                for (other, state) in states.iter().enumerate().filter(|(other, _)| *other != rank) {
                    if let Some(reply) = state(second).map(|state| request.reply(state)) {
                        all[rank].handle_reply(other as u32, &reply, now);
                    }
                }
            }
        }
        None
    }

    #[test]
    fn the_lowest_rank_that_waits_for_space_gives_up() {
        let still = |waits| move |_| Some(ProgressReply { waits, ..WAITING });
        let states = || [still(false), still(true), still(true)];
        assert_eq!(first_to_give_up(states(), DEADLOCK_AFTER), Some((1, 10, DEADLOCK_AFTER)));
        let after = Duration::from_secs(100);
        assert_eq!(first_to_give_up(states(), after), Some((1, 100, after)));
    }

    #[test]
    fn no_rank_gives_up_while_something_happens_or_a_rank_computes() {
        let states = |other: fn(u64) -> Option<ProgressReply>| [|_| Some(WAITING), |_| Some(WAITING), other];
        let moves = |second| Some(ProgressReply { activity: second / 9, ..WAITING });
        assert_eq!(first_to_give_up(states(moves), DEADLOCK_AFTER), None);
        assert_eq!(first_to_give_up(states(|_| None), DEADLOCK_AFTER), None);
        // Still, then one event, then still again.
        let once = |second| Some(ProgressReply { activity: u64::from(second >= 8), ..WAITING });
        assert_eq!(first_to_give_up(states(once), DEADLOCK_AFTER), Some((0, 18, DEADLOCK_AFTER)));
    }

    #[test]
    fn the_limit_is_longer_with_several_threads() {
        let still = |is_multithreaded| move |_| Some(ProgressReply { is_multithreaded, ..WAITING });
        let states = [still(false), still(false), still(true)];
        assert_eq!(first_to_give_up(states, DEADLOCK_AFTER), Some((0, 60, DEADLOCK_AFTER * 6)));
    }

    #[test]
    fn a_rank_that_has_left_is_not_waited_for() {
        let begun = Instant::now();
        let mut detector = DeadlockDetector::new(1, 3, DEADLOCK_AFTER);
        let mut given_up = None;
        for second in 0..20 {
            let now = begun + Duration::from_secs(second);
            match detector.step(now, WAITING) {
                // Rank 0 replies once, and waits for space, too; rank 2 never does.
                DeadlockStep::Request(request) if second == 0 => detector.handle_reply(0, &request.reply(WAITING), now),
                DeadlockStep::Request(_) | DeadlockStep::Wait => {}
                DeadlockStep::GiveUp(_) => given_up = given_up.or(Some(second)),
            }
            if second == 5 {
                detector.handle_left(2, now);
                detector.handle_left(0, now);
                assert_eq!(detector.left().collect::<Vec<_>>(), [0, 2]);
            }
        }
        assert_eq!(given_up, Some(15));
    }

    #[test]
    fn a_reply_of_another_round_is_ignored() {
        let now = Instant::now();
        let mut detector = DeadlockDetector::new(0, 2, DEADLOCK_AFTER);
        let DeadlockStep::Request(request) = detector.step(now, WAITING) else { panic!("a round is due") };
        detector.handle_reply(1, &ProgressRequest { round: 7 }.reply(WAITING), now);
        assert_eq!(detector.missing, 1);
        detector.handle_reply(1, &request.reply(WAITING), now);
        assert_eq!((detector.missing, detector.step(now, WAITING)), (0, DeadlockStep::Wait));
    }
}
