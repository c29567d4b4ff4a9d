//! When planned kills strike.

use std::time::{Duration, Instant};

use super::kills::{Kill, KillPlan, KillPoint};

/// Where in an iteration a kill strikes if nothing is known of how long iterations take: the first one is short in
/// most programs. A replacement recovers in a few milliseconds, too.
const GUESS: Duration = Duration::from_millis(3);

/// A kill whose moment has come, save for a delay.
#[derive(Clone, Copy, Debug)]
struct Armed {
    kill: Kill,
    due: Instant,
}

/// The planned kills, and those that are about to strike.
#[derive(Debug)]
pub(super) struct Strikes {
    plan: KillPlan,
    armed: Vec<Armed>,
}

impl Strikes {
    pub(super) fn new(plan: KillPlan) -> Strikes {
        Strikes { plan, armed: Vec::new() }
    }

    /// The kills that haven't happened.
    pub(super) fn pending(&self) -> &[Kill] {
        self.plan.pending()
    }

    /// The iterations that `rank` may not leave alive.
    pub(super) fn fatal_iterations(&self, rank: u32) -> Vec<u64> {
        self.plan.fatal_iterations(rank)
    }

    /// `rank` begins iteration `n`; its last one took `took`. If it is to die in it, it dies somewhere in as long.
    pub(super) fn iteration_begins(&mut self, rank: u32, n: u64, now: Instant, took: Duration) {
        if let Some(kill) = self.plan.strikes_in(rank, n) {
            self.arm(kill, now, if took.is_zero() { GUESS } else { took });
        }
    }

    /// `rank` is being recovered. Says whether somebody is to die meanwhile: then the recovery must not end yet.
    pub(super) fn recovery_begins(&mut self, rank: u32, now: Instant) -> bool {
        for kill in self.plan.strikes_during_recovery_of(rank) {
            self.arm(kill, now, GUESS);
        }
        self.holds(rank)
    }

    /// Whether the recovery of `rank` has to wait for a kill.
    pub(super) fn holds(&self, rank: u32) -> bool {
        self.armed.iter().any(|armed| armed.kill.at == KillPoint::RecoveryOf(rank))
    }

    /// When the next kill is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.armed.iter().map(|armed| armed.due).min()
    }

    /// The kills to carry out now: if any is due, all that are armed, so that kills planned for the same time really
    /// are at once.
    pub(super) fn due(&self, now: Instant) -> Vec<Kill> {
        let any = self.armed.iter().any(|armed| armed.due <= now);
        if any { self.armed.iter().map(|armed| armed.kill).collect() } else { Vec::new() }
    }

    /// A kill was carried out.
    pub(super) fn struck(&mut self, kill: Kill) {
        self.plan.take(kill);
        self.armed.retain(|armed| armed.kill != kill);
    }

    /// `rank` has died: what was to strike it in an iteration waits for its replacement to come there.
    pub(super) fn rank_died(&mut self, rank: u32) {
        self.armed.retain(|armed| armed.kill.rank != rank || matches!(armed.kill.at, KillPoint::RecoveryOf(_)));
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

    fn strikes(kills: &[&str]) -> Strikes {
        let kills: Vec<Kill> = kills.iter().map(|kill| kill.parse().unwrap()).collect();
        Strikes::new(KillPlan::new(&kills, &[], 7))
    }

    #[test]
    fn a_kill_strikes_within_the_length_of_an_iteration() {
        let now = Instant::now();
        let took = Duration::from_millis(5);
        let mut strikes = strikes(&["2@7"]);
        strikes.iteration_begins(2, 6, now, took);
        strikes.iteration_begins(1, 7, now, took);
        assert_eq!(strikes.next_due(), None);
        strikes.iteration_begins(2, 7, now, took);
        assert!(strikes.next_due().unwrap() < now + took);
        assert_eq!(strikes.due(now + took), ["2@7".parse().unwrap()]);
    }

    #[test]
    fn kills_that_are_armed_together_strike_together() {
        let now = Instant::now();
        let mut strikes = strikes(&["1@3", "2@3", "3@4"]);
        strikes.iteration_begins(1, 3, now, Duration::from_millis(1));
        strikes.iteration_begins(2, 3, now, Duration::from_secs(1000));
        assert_eq!(strikes.due(now + Duration::from_millis(1)).len(), 2);
    }

    #[test]
    fn the_same_kill_again_waits_for_the_replacement() {
        let now = Instant::now();
        let mut strikes = strikes(&["2@7", "2@7"]);
        strikes.iteration_begins(2, 7, now, GUESS);
        strikes.struck("2@7".parse().unwrap());
        strikes.rank_died(2);
        assert_eq!((strikes.next_due(), strikes.fatal_iterations(2).len()), (None, 1));
        strikes.iteration_begins(2, 7, now, GUESS);
        assert!(strikes.next_due().is_some());
    }

    #[test]
    fn a_recovery_is_held_until_its_kills_have_struck() {
        let now = Instant::now();
        let mut strikes = strikes(&["2@7", "0@recovery:2", "2@recovery:2"]);
        assert!(!strikes.recovery_begins(1, now) && strikes.recovery_begins(2, now));
        strikes.struck("2@recovery:2".parse().unwrap());
        strikes.rank_died(2);
        assert!(strikes.holds(2));
        strikes.struck("0@recovery:2".parse().unwrap());
        assert!(!strikes.holds(2));
    }
}
