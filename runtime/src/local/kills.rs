//! Planned kills.

use std::fmt;
use std::str::FromStr;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::transport::CallKind;

/// A planned kill: `RANK@ITERATION`, `RANK@ITERATION:CALL`, `RANK@event:N`, `RANK@repair:OTHER`, or
/// `RANK@recovery:OTHER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kill {
    /// Rank to kill.
    pub rank: u32,
    /// Time of the kill.
    pub at: KillPoint,
}

/// Time of a planned kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KillPoint {
    /// During this iteration, counted from 1.
    Iteration(u64),
    /// In the midst of the first call of this kind from this iteration on, counted from 1.
    Call(u64, CallKind),
    /// At this event in its process, counted from 1: a send, a receive, a collective's message, or a checkpoint.
    Event(u64),
    /// Soon after this rank's death was noticed, while its place is vacant.
    RepairOf(u32),
    /// During this rank's recovery (possibly the killed one's) from an earlier kill: it has a process again.
    RecoveryOf(u32),
    /// During this iteration, counted from 1, together with all other ranks: a power cut.
    PowerCut(u64),
}

impl fmt::Display for Kill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            KillPoint::Iteration(n) => write!(f, "{}@{n}", self.rank),
            KillPoint::Call(n, call) => write!(f, "{}@{n}:{call}", self.rank),
            KillPoint::Event(n) => write!(f, "{}@event:{n}", self.rank),
            KillPoint::RepairOf(other) => write!(f, "{}@repair:{other}", self.rank),
            KillPoint::RecoveryOf(other) => write!(f, "{}@recovery:{other}", self.rank),
            KillPoint::PowerCut(n) => write!(f, "all@{n}"),
        }
    }
}

/// Reason why a text is not a valid kill.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseKillError {
    /// The text lacks the form `RANK@...`.
    #[error(
        "expected RANK@ITERATION, RANK@ITERATION:CALL, RANK@event:N, RANK@repair:OTHER or RANK@recovery:OTHER, as in 2@7 or \
         0@recovery:2"
    )]
    Form,
    /// The text names no kind of call.
    #[error("{text:?} is no call to be killed in; use send, receive, collective or checkpoint")]
    NoSuchCall {
        /// The invalid text.
        text: String,
    },
    /// A part is not a number.
    #[error("{text:?} is not a {what}")]
    Number {
        /// Expected meaning of the number.
        what: &'static str,
        /// The invalid text.
        text: String,
    },
    /// Iteration or event 0, but they are counted from 1.
    #[error("iterations and events are counted from 1")]
    Zero,
}

impl FromStr for Kill {
    type Err = ParseKillError;

    fn from_str(text: &str) -> Result<Kill, ParseKillError> {
        let (rank, at) = text.split_once('@').ok_or(ParseKillError::Form)?;
        let rank = number(rank, "rank")?;
        let at = match at.split_once(':') {
            Some(("event", n)) => KillPoint::Event(from_one(n, "event")?),
            Some(("repair", other)) => KillPoint::RepairOf(number(other, "rank")?),
            Some(("recovery", other)) => KillPoint::RecoveryOf(number(other, "rank")?),
            Some((n, call)) if n.starts_with(|first: char| first.is_ascii_digit()) => {
                KillPoint::Call(from_one(n, "iteration")?, kind_of_call(call)?)
            }
            Some(_) => return Err(ParseKillError::Form),
            None => KillPoint::Iteration(from_one(at, "iteration")?),
        };
        Ok(Kill { rank, at })
    }
}

fn from_one(text: &str, what: &'static str) -> Result<u64, ParseKillError> {
    match number(text, what)? {
        0 => Err(ParseKillError::Zero),
        n => Ok(n),
    }
}

fn kind_of_call(text: &str) -> Result<CallKind, ParseKillError> {
    let found = CallKind::ALL.into_iter().find(|kind| kind.to_string() == text);
    found.ok_or_else(|| ParseKillError::NoSuchCall { text: text.to_owned() })
}

fn number<T: FromStr>(text: &str, what: &'static str) -> Result<T, ParseKillError> {
    // `parse` would accept a plus sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = if digits { text.parse().ok() } else { None };
    parsed.ok_or_else(|| ParseKillError::Number { what, text: text.to_owned() })
}

/// Planned kills of one process, for which it has to wait.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RankKills {
    /// Iterations that it must not leave alive.
    pub(super) iterations: Vec<u64>,
    /// Calls in which it stops: the first of this kind from this iteration on.
    pub(super) calls: Vec<(u64, CallKind)>,
    /// Events at which it stops, counted from 1.
    pub(super) events: Vec<u64>,
    /// A process is killed during its recovery, which must not end before
    /// [`Event::Resume`](crate::transport::Event::Resume).
    pub(super) in_recovery: bool,
}

/// Kills that have not happened yet.
#[derive(Clone, Debug)]
pub(super) struct KillPlan {
    pending: Vec<Kill>,
    /// SplitMix64 (Steele, Lea and Flood 2014), so that a seed gives the same delays in every release.
    random: SplitMix64,
}

impl KillPlan {
    pub(super) fn new(kills: &[Kill], power_cuts: &[u64], seed: u64) -> KillPlan {
        // A power cut depends on rank 0's iteration.
        let cuts = power_cuts.iter().map(|&n| Kill { rank: 0, at: KillPoint::PowerCut(n) });
        KillPlan { pending: kills.iter().copied().chain(cuts).collect(), random: SplitMix64::seed_from_u64(seed) }
    }

    /// Returns the kills that have not happened.
    pub(super) fn pending(&self) -> &[Kill] {
        &self.pending
    }

    /// Returns the iterations and calls in which `rank` will be killed.
    pub(super) fn kills_of(&self, rank: u32) -> RankKills {
        let mut kills = RankKills::default();
        for kill in self.pending.iter().filter(|kill| kill.rank == rank) {
            match kill.at {
                KillPoint::Iteration(n) | KillPoint::PowerCut(n) => kills.iterations.push(n),
                KillPoint::Call(from, call) => kills.calls.push((from, call)),
                KillPoint::Event(n) => kills.events.push(n),
                KillPoint::RepairOf(_) | KillPoint::RecoveryOf(_) => {}
            }
        }
        kills
    }

    /// Returns the kill of `rank` in a call of this kind in iteration `n`, at this event.
    pub(super) fn kill_in_call(&self, rank: u32, (n, call, event): (u64, CallKind, u64)) -> Option<Kill> {
        let mut of_rank = self.pending.iter().copied().filter(|kill| kill.rank == rank);
        of_rank.find(|kill| match kill.at {
            KillPoint::Call(from, kind) => from <= n && kind == call,
            KillPoint::Event(number) => number == event,
            _ => false,
        })
    }

    /// Returns the kill of `rank` in iteration `n`.
    pub(super) fn kill_in(&self, rank: u32, n: u64) -> Option<Kill> {
        let in_it = [KillPoint::Iteration(n), KillPoint::PowerCut(n)].map(|at| Kill { rank, at });
        self.pending.iter().copied().find(|kill| in_it.contains(kill))
    }

    /// Returns the kills planned for this time.
    pub(super) fn kills_at(&self, at: KillPoint) -> Vec<Kill> {
        let mut kills = self.pending.clone();
        kills.retain(|kill| kill.at == at);
        kills
    }

    /// Removes a kill that happens now.
    pub(super) fn take(&mut self, kill: Kill) {
        if let Some(position) = self.pending.iter().position(|pending| *pending == kill) {
            self.pending.remove(position);
        }
    }

    /// Draws a number below `below` from the seed; 0 if `below` is 0.
    pub(super) fn draw(&mut self, below: u64) -> u64 {
        self.random.next_u64() % below.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_parsed_from_their_own_output() {
        for text in
            ["2@7", "0@1", "3@recovery:0", "1@recovery:1", "0@repair:2", "2@7:send", "0@1:checkpoint", "1@event:9"]
        {
            assert_eq!(text.parse::<Kill>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn malformed_kills_are_refused() {
        for text in
            ["", "2", "@", "2@", "@7", "2@x", "x@7", "2@-1", "2@+7", "2@7@8", "2@recovery", "2@recovery:x", "2@repair"]
        {
            assert!(text.parse::<Kill>().is_err(), "{text}");
        }
        assert_eq!("2@0".parse::<Kill>(), Err(ParseKillError::Zero));
        assert_eq!("2@crash:1".parse::<Kill>(), Err(ParseKillError::Form));
        assert_eq!("2@event:0".parse::<Kill>(), Err(ParseKillError::Zero));
        assert_eq!("2@0:send".parse::<Kill>(), Err(ParseKillError::Zero));
        assert!(matches!("2@7:probe".parse::<Kill>(), Err(ParseKillError::NoSuchCall { .. })));
    }

    #[test]
    fn the_same_kill_twice_happens_twice() {
        let kill: Kill = "2@7".parse().unwrap();
        let mut plan = KillPlan::new(&[kill, kill], &[], 1);
        assert_eq!(plan.kills_of(2).iterations, [7, 7]);
        plan.take(kill);
        assert_eq!(plan.kill_in(2, 7), Some(kill));
        plan.take(kill);
        assert_eq!((plan.kill_in(2, 7), plan.pending().len()), (None, 0));
    }

    #[test]
    fn a_seed_gives_the_same_delays() {
        let draw = |seed| {
            let mut plan = KillPlan::new(&[], &[], seed);
            [plan.draw(1000), plan.draw(1000), plan.draw(0)]
        };
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
        assert_eq!(draw(5)[2], 0);
    }
}
