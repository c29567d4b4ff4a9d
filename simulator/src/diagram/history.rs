//! Visible parts of a recording, with their steps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

use crate::recording::{Activity, Dropped, Recorded};

/// Fate of a message.
///
/// The order is the legend's; later ones are drawn above earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    First,
    Replay,
    /// Under way, or held, when the run ended.
    Unfinished,
    Duplicate,
    Dead,
    Orphan,
    Lost,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Arrow {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) number: u64,
    pub(super) sent: usize,
    /// Step of its delivery or drop, if any.
    pub(super) ended: Option<usize>,
    pub(super) fate: Fate,
}

/// Segment of a node's line: one execution of one process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) node: u32,
    pub(super) from: usize,
    pub(super) to: usize,
    /// Number of earlier restarts and rollbacks of the node.
    pub(super) execution: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Send,
    Take,
    Call {
        number: u64,
        /// `true` if it ran here; otherwise it was skipped, or its result came from the local log.
        natively: bool,
    },
    Checkpoint {
        epoch: u32,
        /// `true` if it was restorable at some time.
        durable: bool,
    },
    Kill,
    Restart {
        epoch: u32,
    },
    Rollback {
        epoch: u32,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) node: u32,
    pub(super) at: usize,
    pub(super) kind: Kind,
}

/// Arc from a restart or rollback back to the checkpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Jump {
    pub(super) node: u32,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Everything drawable.
///
/// Times are steps: indices in `events`.
#[derive(Debug)]
pub(super) struct History {
    pub(super) ranks: u32,
    /// Number of ranks, plus the coordinator if there is one.
    pub(super) nodes: u32,
    /// Event number of each step; a kill has its own step before its event.
    pub(super) events: Vec<u64>,
    pub(super) segments: Vec<Segment>,
    pub(super) arrows: Vec<Arrow>,
    pub(super) marks: Vec<Mark>,
    pub(super) jumps: Vec<Jump>,
}

impl History {
    pub(super) fn new(ranks: u32, recording: &[Recorded]) -> History {
        let has_coordinator =
            |recorded: &Recorded| matches!(recorded.activity, Activity::Started { node, .. } if node >= ranks);
        let nodes = ranks + u32::from(recording.iter().any(has_coordinator));
        let mut reader = HistoryBuilder {
            history: History {
                ranks,
                nodes,
                events: Vec::new(),
                segments: Vec::new(),
                arrows: Vec::new(),
                marks: Vec::new(),
                jumps: Vec::new(),
            },
            lives: (0..nodes).map(|_| Life::default()).collect(),
            on_wire: BTreeMap::new(),
            transmitted: BTreeSet::new(),
            checkpoints: BTreeMap::new(),
        };
        let mut was_kill = false;
        for recorded in recording {
            if let Activity::Durable { rank, epoch } = recorded.activity {
                reader.durable(rank, epoch);
                continue;
            }
            let is_kill = matches!(recorded.activity, Activity::Killed { .. });
            let events = &mut reader.history.events;
            if events.last() != Some(&recorded.event) || is_kill != was_kill {
                events.push(recorded.event);
            }
            was_kill = is_kill;
            reader.read(*recorded);
        }
        reader.finish()
    }

    /// Returns the steps of these events.
    pub(super) fn steps(&self, events: &RangeInclusive<u64>) -> Range<usize> {
        let first = self.events.partition_point(|event| event < events.start());
        let end = self.events.partition_point(|event| event <= events.end());
        first..end.max(first)
    }
}

#[derive(Debug, Default)]
struct Life {
    /// Step at the beginning of the current execution.
    since: Option<usize>,
    execution: u32,
    /// Steps of the node's deaths.
    deaths: Vec<usize>,
}

struct HistoryBuilder {
    history: History,
    lives: Vec<Life>,
    /// Arrows by their event of transmission, of which there is one per event.
    on_wire: BTreeMap<u64, usize>,
    /// Sender, receiver and SSN of all messages ever transmitted: a repetition is a replay, whatever its mark.
    transmitted: BTreeSet<(u32, u32, u64)>,
    /// Mark of a rank's newest checkpoint beginning an epoch.
    checkpoints: BTreeMap<(u32, u32), usize>,
}

impl HistoryBuilder {
    fn read(&mut self, recorded: Recorded) {
        let at = self.history.events.len().saturating_sub(1);
        match recorded.activity {
            Activity::Started { node, epoch, again } => {
                self.live(node, at);
                if again {
                    self.roll_back(node, epoch, at, Kind::Restart { epoch });
                }
            }
            Activity::Killed { node } => {
                self.end(node, at);
                let life = &mut self.lives[node as usize];
                life.execution += 1;
                life.deaths.push(at);
                self.mark(node, at, Kind::Kill);
            }
            Activity::RolledBack { rank, epoch } => {
                self.end(rank, at);
                self.lives[rank as usize].execution += 1;
                self.live(rank, at);
                self.roll_back(rank, epoch, at, Kind::Rollback { epoch });
            }
            Activity::Checkpointed { rank, epoch } => {
                self.checkpoints.insert((rank, epoch), self.history.marks.len());
                self.mark(rank, at, Kind::Checkpoint { epoch, durable: false });
            }
            Activity::Sent { rank, .. } => self.mark(rank, at, Kind::Send),
            Activity::Taken { rank, .. } => self.mark(rank, at, Kind::Take),
            Activity::Completed { rank, number, natively } => self.mark(rank, at, Kind::Call { number, natively }),
            Activity::Transmitted { from, to, number, .. } => {
                let again = !self.transmitted.insert((from, to, number));
                self.on_wire.insert(recorded.event, self.history.arrows.len());
                let fate = if again { Fate::Replay } else { Fate::First };
                self.history.arrows.push(Arrow { from, to, number, sent: at, ended: None, fate });
            }
            Activity::Received { transmitted, .. } => self.arrive(transmitted, at, None),
            Activity::Dropped { transmitted, why, .. } => {
                let fate = match why {
                    Dropped::Duplicate => Fate::Duplicate,
                    Dropped::DeadIncarnation => Fate::Dead,
                    Dropped::Orphan => Fate::Orphan,
                };
                self.arrive(transmitted, at, Some(fate));
            }
            Activity::Durable { .. } => {}
        }
    }

    fn mark(&mut self, node: u32, at: usize, kind: Kind) {
        self.history.marks.push(Mark { node, at, kind });
    }

    fn durable(&mut self, rank: u32, epoch: u32) {
        let place = self.checkpoints.get(&(rank, epoch));
        if let Some(mark) = place.and_then(|&place| self.history.marks.get_mut(place)) {
            mark.kind = Kind::Checkpoint { epoch, durable: true };
        }
    }

    fn live(&mut self, node: u32, at: usize) {
        self.lives[node as usize].since = Some(at);
    }

    fn end(&mut self, node: u32, at: usize) {
        let life = &mut self.lives[node as usize];
        if let Some(from) = life.since.take() {
            self.history.segments.push(Segment { node, from, to: at, execution: life.execution });
        }
    }

    fn roll_back(&mut self, node: u32, epoch: u32, at: usize, kind: Kind) {
        if let Some(&place) = self.checkpoints.get(&(node, epoch)) {
            let to = self.history.marks[place].at;
            self.history.jumps.push(Jump { node, from: at, to });
        }
        self.mark(node, at, kind);
    }

    /// Ends the arrow of a delivered message, or of one dropped for this reason.
    fn arrive(&mut self, transmitted: u64, at: usize, dropped: Option<Fate>) {
        let place = self.on_wire.get(&transmitted);
        if let Some(arrow) = place.and_then(|&place| self.history.arrows.get_mut(place)) {
            arrow.ended = Some(at);
            arrow.fate = dropped.unwrap_or(arrow.fate);
        }
    }

    fn finish(mut self) -> History {
        let last = self.history.events.len().saturating_sub(1);
        for node in 0..self.history.nodes {
            self.end(node, last);
        }
        let lives = &self.lives;
        let cut = |arrow: &Arrow| {
            let dead = |node: u32| {
                let segments = self.history.segments.iter().filter(|segment| segment.node == node);
                segments.clone().all(|segment| !(segment.from..=segment.to).contains(&arrow.sent))
                    || lives[node as usize].deaths.iter().any(|&death| death > arrow.sent)
            };
            arrow.ended.is_none() && (dead(arrow.from) || dead(arrow.to))
        };
        let fates: Vec<Option<Fate>> =
            self.history.arrows.iter().map(|arrow| cut(arrow).then_some(Fate::Lost)).collect();
        for (arrow, lost) in self.history.arrows.iter_mut().zip(fates) {
            arrow.fate = match (arrow.ended, lost) {
                (Some(_), _) => arrow.fate,
                (None, Some(lost)) => lost,
                (None, None) => Fate::Unfinished,
            };
        }
        self.history.arrows.sort_by_key(|arrow| arrow.fate);
        self.history
    }
}
