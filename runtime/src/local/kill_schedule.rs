//! Schedule of planned kills.

use std::time::{Duration, Instant};

use super::kills::{Kill, KillPlan, KillPoint, RankKills};
use crate::transport::CallKind;

/// Assumed length of a recovery, and of an iteration before one was measured: the first iteration is short in most
/// programs, and a replacement recovers in a few milliseconds.
const LENGTH_GUESS: Duration = Duration::from_millis(3);

/// Kill that is due after a random delay.
#[derive(Clone, Copy, Debug)]
struct Armed {
    kill: Kill,
    due: Instant,
}

/// Planned kills, and the armed ones.
#[derive(Debug)]
pub(super) struct KillSchedule {
    plan: KillPlan,
    armed: Vec<Armed>,
}

impl KillSchedule {
    pub(super) fn new(plan: KillPlan) -> KillSchedule {
        KillSchedule { plan, armed: Vec::new() }
    }

    /// Returns the kills that haven't happened.
    pub(super) fn pending(&self) -> &[Kill] {
        self.plan.pending()
    }

    /// Returns the kills for which a process becoming `rank` has to wait, except during its recovery.
    pub(super) fn kills_of(&self, rank: u32) -> RankKills {
        self.plan.kills_of(rank)
    }

    /// Makes the kill of `rank` due at its current place: iteration, call of this kind, and event number.
    pub(super) fn handle_call(&mut self, rank: u32, stands: (u64, CallKind, u64), now: Instant) {
        if let Some(kill) = self.plan.kill_in_call(rank, stands) {
            self.arm(kill, now, Duration::ZERO);
        }
    }

    /// Arms the kill of `rank` in iteration `n`, which begins now, if one is planned.
    ///
    /// `took`: length of the previous iteration, within which the delay is drawn.
    pub(super) fn handle_iteration(&mut self, rank: u32, n: u64, now: Instant, took: Duration) {
        if let Some(kill) = self.plan.kill_in(rank, n) {
            self.arm(kill, now, if took.is_zero() { LENGTH_GUESS } else { took });
        }
    }

    /// Arms the kills planned during the recovery of `rank`, which begins now.
    ///
    /// Returns `true` if there are any: the recovery must not end before them. Makes those planned for the time until
    /// now due.
    pub(super) fn handle_recovery(&mut self, rank: u32, now: Instant) -> bool {
        for armed in self.armed.iter_mut().filter(|armed| armed.kill.at == KillPoint::RepairOf(rank)) {
            armed.due = armed.due.min(now);
        }
        for kill in self.plan.kills_at(KillPoint::RecoveryOf(rank)) {
            self.arm(kill, now, LENGTH_GUESS);
        }
        self.holds_recovery(rank)
    }

    /// Returns `true` if the recovery of `rank` has to wait for a kill.
    pub(super) fn holds_recovery(&self, rank: u32) -> bool {
        self.armed.iter().any(|armed| armed.kill.at == KillPoint::RecoveryOf(rank))
    }

    /// Returns the time of the next kill.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.armed.iter().map(|armed| armed.due).min()
    }

    /// Returns the kills to carry out now: if any is due, all armed ones, so kills planned for the same time happen at
    /// once.
    pub(super) fn due(&self, now: Instant) -> Vec<Kill> {
        let any = self.armed.iter().any(|armed| armed.due <= now);
        if any { self.armed.iter().map(|armed| armed.kill).collect() } else { Vec::new() }
    }

    /// Records a kill as carried out.
    pub(super) fn note_killed(&mut self, kill: Kill) {
        self.plan.take(kill);
        self.armed.retain(|armed| armed.kill != kill);
    }

    /// Disarms all kills: none can happen any more.
    pub(super) fn disarm(&mut self) {
        self.armed.clear();
    }

    /// Disarms the kills of `rank` in an iteration after its process has ended: they wait for its next one to reach the
    /// iteration.
    pub(super) fn handle_end(&mut self, rank: u32) {
        let depends_on_process = |at| match at {
            KillPoint::Iteration(_) | KillPoint::Call(..) | KillPoint::Event(_) | KillPoint::PowerCut(_) => true,
            KillPoint::RepairOf(_) | KillPoint::RecoveryOf(_) => false,
        };
        self.armed.retain(|armed| armed.kill.rank != rank || !depends_on_process(armed.kill.at));
    }

    /// Arms the kills planned while the place of `rank`, dead now, is vacant.
    ///
    /// `takes`: about how long that is.
    pub(super) fn handle_death(&mut self, rank: u32, now: Instant, takes: Duration) {
        for kill in self.plan.kills_at(KillPoint::RepairOf(rank)) {
            self.arm(kill, now, takes);
        }
    }

    fn arm(&mut self, kill: Kill, now: Instant, within: Duration) {
        if self.armed.iter().any(|armed| armed.kill == kill) {
            return;
        }
        let delay_ns = self.plan.draw(u64::try_from(within.as_nanos()).unwrap_or(u64::MAX));
        self.armed.push(Armed { kill, due: now + Duration::from_nanos(delay_ns) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(kills: &[&str]) -> KillSchedule {
        let kills: Vec<Kill> = kills.iter().map(|kill| kill.parse().unwrap()).collect();
        KillSchedule::new(KillPlan::new(&kills, &[], 7))
    }

    #[test]
    fn a_kill_is_due_within_the_length_of_an_iteration() {
        let now = Instant::now();
        let took = Duration::from_millis(5);
        let mut schedule = schedule(&["2@7"]);
        schedule.handle_iteration(2, 6, now, took);
        schedule.handle_iteration(1, 7, now, took);
        assert_eq!(schedule.next_due(), None);
        schedule.handle_iteration(2, 7, now, took);
        assert!(schedule.next_due().unwrap() < now + took);
        assert_eq!(schedule.due(now + took), ["2@7".parse().unwrap()]);
    }

    #[test]
    fn a_kill_in_a_call_is_due_at_once() {
        let now = Instant::now();
        let mut schedule = schedule(&["2@7:send", "2@9:send"]);
        assert_eq!(schedule.kills_of(2).calls, [(7, CallKind::Send), (9, CallKind::Send)]);
        schedule.handle_call(2, (8, CallKind::Receive, 1), now);
        schedule.handle_call(1, (8, CallKind::Send, 1), now);
        assert_eq!(schedule.next_due(), None);
        schedule.handle_call(2, (8, CallKind::Send, 1), now);
        assert_eq!(schedule.due(now), ["2@7:send".parse().unwrap()]);
    }

    #[test]
    fn a_kill_at_an_event_is_due_at_that_one() {
        let now = Instant::now();
        let mut schedule = schedule(&["2@event:5"]);
        assert_eq!(schedule.kills_of(2).events, [5]);
        schedule.handle_call(2, (1, CallKind::Send, 4), now);
        assert_eq!(schedule.next_due(), None);
        schedule.handle_call(2, (1, CallKind::Receive, 5), now);
        assert_eq!(schedule.due(now), ["2@event:5".parse().unwrap()]);
    }

    #[test]
    fn kills_that_are_armed_together_are_due_together() {
        let now = Instant::now();
        let mut schedule = schedule(&["1@3", "2@3", "3@4"]);
        schedule.handle_iteration(1, 3, now, Duration::from_millis(1));
        schedule.handle_iteration(2, 3, now, Duration::from_secs(1000));
        assert_eq!(schedule.due(now + Duration::from_millis(1)).len(), 2);
    }

    #[test]
    fn the_same_kill_again_waits_for_the_replacement() {
        let now = Instant::now();
        let mut schedule = schedule(&["2@7", "2@7"]);
        schedule.handle_iteration(2, 7, now, LENGTH_GUESS);
        schedule.note_killed("2@7".parse().unwrap());
        schedule.handle_end(2);
        assert_eq!((schedule.next_due(), schedule.kills_of(2).iterations.len()), (None, 1));
        schedule.handle_iteration(2, 7, now, LENGTH_GUESS);
        assert!(schedule.next_due().is_some());
    }

    #[test]
    fn a_kill_during_a_repair_is_due_soon_after_the_death() {
        let now = Instant::now();
        let mut schedule = schedule(&["2@7", "0@repair:2"]);
        schedule.note_killed("2@7".parse().unwrap());
        schedule.handle_end(2);
        assert_eq!(schedule.next_due(), None);
        schedule.handle_death(2, now, Duration::from_millis(20));
        assert_eq!(schedule.due(now + Duration::from_millis(20)), ["0@repair:2".parse().unwrap()]);
    }

    #[test]
    fn a_kill_during_a_repair_is_due_once_the_place_is_taken() {
        let now = Instant::now();
        let mut schedule = schedule(&["2@7", "0@repair:2"]);
        schedule.note_killed("2@7".parse().unwrap());
        schedule.handle_death(2, now, Duration::from_secs(1000));
        schedule.handle_recovery(1, now);
        assert_eq!(schedule.due(now), []);
        schedule.handle_recovery(2, now);
        assert_eq!(schedule.due(now), ["0@repair:2".parse().unwrap()]);
        schedule.disarm();
        assert_eq!((schedule.next_due(), schedule.pending().len()), (None, 1));
    }

    #[test]
    fn a_recovery_is_held_until_its_kills_have_happened() {
        let now = Instant::now();
        let mut schedule = schedule(&["2@7", "0@recovery:2", "2@recovery:2"]);
        assert!(!schedule.handle_recovery(1, now) && schedule.handle_recovery(2, now));
        schedule.note_killed("2@recovery:2".parse().unwrap());
        schedule.handle_end(2);
        assert!(schedule.holds_recovery(2));
        schedule.note_killed("0@recovery:2".parse().unwrap());
        assert!(!schedule.holds_recovery(2));
    }
}
