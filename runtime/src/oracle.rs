//! The oracle: judges a run by its traces alone.
//!
//! A rank's *timeline* has the events that count in the end: a dead incarnation's up to the checkpoint from which its
//! replacement started, followed by the replacement's. From the timelines follows
//! * whether each re-execution repeated the dead incarnation's events as far as it [must](Repeats) (a [`Divergence`] if
//!   not);
//! * for each stream (source, destination, communicator, tag), whether the deliveries equal the sends: messages lost,
//!   duplicated, reordered, altered;
//! * whether two runs of a deterministic program have the same events ([`compare`]).

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::trace::{EVENT_BYTES, Event, EventKind, trace_path};

/// Reason why a run's traces cannot be judged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OracleError {
    /// A trace cannot be read.
    #[error("cannot read the trace {}: {source}", path.display())]
    Io {
        /// The trace file.
        path: PathBuf,
        /// Operating system error.
        source: io::Error,
    },
    /// A trace has bytes that are no event.
    #[error("the trace {} is damaged at byte {offset}", path.display())]
    Damaged {
        /// The trace file.
        path: PathBuf,
        /// Byte offset of the first invalid event.
        offset: usize,
    },
}

/// Events of a dead incarnation to be repeated by its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// All events: every outcome was recorded before it took effect.
    All,
    /// No events: the whole job goes back with it, and nobody has seen its actions.
    Nothing,
    /// Events up to the last send to another rank, or the end of a restored checkpoint.
    ///
    /// Outcomes are made durable before a send leaves, so later ones may be lost, and no other rank depends on them.
    UpToLastSend,
}

/// A difference between a re-execution and the dead incarnation before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// The rank.
    pub rank: u32,
    /// Incarnation that differs from an earlier one.
    pub incarnation: u32,
    /// Index of the first differing event in the rank's timeline.
    pub index: u64,
    /// The earlier incarnation's event; `None` if it has none there (a gap).
    pub before: Option<Event>,
    /// The re-execution's event; `None` if it ended before.
    pub after: Option<Event>,
}

/// Progress of an incarnation at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The incarnation.
    pub incarnation: u32,
    /// Number of the rank's timeline events executed or restored from a checkpoint.
    pub events: u64,
}

/// Final event sequence of one rank.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Sends and deliveries, in order.
    pub events: Vec<Event>,
    /// Progress of each incarnation.
    pub reach: Vec<Reach>,
    /// Differences between re-executions and dead incarnations.
    pub divergences: Vec<Divergence>,
    /// Number of events binding for later incarnations.
    binding: u64,
}

/// Judgement over all streams in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Messages sent.
    pub sent: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Messages sent and never delivered.
    pub lost: u64,
    /// Repeated deliveries of a message.
    pub duplicated: u64,
    /// Messages delivered after a later one in the same stream.
    pub reordered: u64,
    /// Messages delivered with another length or other bytes than sent, or never sent at all.
    pub altered: u64,
    /// Re-executions that diverged from the dead incarnation.
    pub diverged: u64,
}

impl Verdict {
    /// Returns `true` if nothing was lost, duplicated, reordered or altered, and no re-execution diverged.
    pub fn is_clean(&self) -> bool {
        self.lost + self.duplicated + self.reordered + self.altered + self.diverged == 0
    }
}

/// Reads the traces of all incarnations for `ranks` ranks and builds their timelines.
///
/// `repeats` follows from the log's tier: [`RankSettings::repeats`](crate::settings::RankSettings::repeats).
///
/// A torn event at the end of a dead incarnation's trace is ignored.
///
/// # Errors
/// [`OracleError`].
pub fn read_timelines(directory: &Path, ranks: u32, repeats: Repeats) -> Result<Vec<Timeline>, OracleError> {
    (0..ranks).map(|rank| read_timeline(directory, rank, repeats)).collect()
}

fn read_timeline(directory: &Path, rank: u32, repeats: Repeats) -> Result<Timeline, OracleError> {
    let mut incarnations = Vec::new();
    for incarnation in 0.. {
        let path = trace_path(directory, rank, incarnation);
        match fs::read(&path) {
            Ok(bytes) => incarnations.push((incarnation, path, bytes)),
            // A process killed before it opens its trace leaves none, and has no events.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if !later_incarnation_exists(directory, rank, incarnation)? {
                    break;
                }
            }
            Err(source) => return Err(OracleError::Io { path, source }),
        }
    }
    let mut timeline = Timeline::default();
    let last = incarnations.len().saturating_sub(1);
    for (position, (incarnation, path, bytes)) in incarnations.into_iter().enumerate() {
        let events = parse(&path, &bytes, position == last)?;
        timeline.add_incarnation(rank, incarnation, &events, repeats);
    }
    timeline.close(rank);
    Ok(timeline)
}

fn later_incarnation_exists(directory: &Path, rank: u32, after: u32) -> Result<bool, OracleError> {
    let failed = |source| OracleError::Io { path: directory.to_owned(), source };
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let parsed = name.to_str().and_then(|name| name.split_once('.'));
        let parsed = parsed.and_then(|(of, number)| Some((of.parse::<u32>().ok()?, number.parse::<u32>().ok()?)));
        if parsed.is_some_and(|(of, number)| of == rank && number > after) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn parse(path: &Path, bytes: &[u8], complete: bool) -> Result<Vec<Event>, OracleError> {
    let mut events = Vec::with_capacity(bytes.len() / EVENT_BYTES);
    for (number, chunk) in bytes.chunks(EVENT_BYTES).enumerate() {
        match Event::parse(chunk) {
            Some(event) => events.push(event),
            None if chunk.len() < EVENT_BYTES && !complete => break,
            None => return Err(OracleError::Damaged { path: path.to_owned(), offset: number * EVENT_BYTES }),
        }
    }
    Ok(events)
}

impl Timeline {
    /// Adds an incarnation's events.
    ///
    /// `self.events` is the longest sequence so far: a replacement that died earlier than its predecessor doesn't
    /// shorten the sequence to be repeated by the next one. The first differing event that needn't be repeated replaces
    /// all from there on.
    fn add_incarnation(&mut self, rank: u32, incarnation: u32, trace: &[Event], repeats: Repeats) {
        let mut at = 0;
        for event in trace {
            if event.kind == EventKind::Restore {
                at = event.index;
                if at > self.events.len() as u64 {
                    self.diverge(rank, incarnation, at, None, Some(*event));
                }
                self.bind(at, repeats != Repeats::Nothing);
                continue;
            }
            // The trace numbers its events; a gap would be an error in the trace.
            let known = self.events.get(at as usize).copied();
            match known {
                _ if event.index != at => self.diverge(rank, incarnation, at, known, Some(*event)),
                Some(before) if before == *event => {}
                Some(_) if at < self.binding => self.diverge(rank, incarnation, at, known, Some(*event)),
                Some(_) => {
                    self.events.truncate(at as usize);
                    self.events.push(*event);
                }
                None => self.events.push(*event),
            }
            at += 1;
            let is_sent = event.kind == EventKind::Send && event.peer != rank;
            self.bind(at, repeats == Repeats::All || (repeats == Repeats::UpToLastSend && is_sent));
        }
        self.reach.push(Reach { incarnation, events: at });
    }

    /// Makes the events before `at` binding for later incarnations, if `must`.
    fn bind(&mut self, at: u64, must: bool) {
        if must {
            self.binding = self.binding.max(at);
        }
    }

    /// Checks that the last incarnation reached at least as far as it must, and drops earlier ones' events beyond its
    /// end.
    fn close(&mut self, rank: u32) {
        let Some(&Reach { incarnation, events }) = self.reach.last() else { return };
        if events >= self.binding {
            self.events.truncate(events as usize);
        } else {
            let before = self.events.get(events as usize).copied();
            self.diverge(rank, incarnation, events, before, None);
        }
    }

    /// Records a divergence, unless the incarnation has one already: later ones follow from the first.
    fn diverge(&mut self, rank: u32, incarnation: u32, index: u64, before: Option<Event>, after: Option<Event>) {
        if !self.divergences.iter().any(|known| known.incarnation == incarnation) {
            self.divergences.push(Divergence { rank, incarnation, index, before, after });
        }
    }
}

/// Unit of MPI's message order.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Stream {
    source: u32,
    destination: u32,
    comm: u32,
    tag: i32,
}

/// Judges a run by comparing every stream's deliveries with its sends.
pub fn judge(timelines: &[Timeline]) -> Verdict {
    let mut verdict = Verdict::default();
    let mut sends: HashMap<Stream, HashMap<u64, (u64, u64)>> = HashMap::new();
    for (rank, timeline) in (0u32..).zip(timelines) {
        verdict.diverged += timeline.divergences.len() as u64;
        for event in timeline.events.iter().filter(|event| event.kind == EventKind::Send) {
            let stream = Stream { source: rank, destination: event.peer, comm: event.comm, tag: event.tag };
            sends.entry(stream).or_default().insert(event.ssn, (event.len, event.hash));
            verdict.sent += 1;
        }
    }
    let mut delivered: HashMap<Stream, Deliveries> = HashMap::new();
    for (rank, timeline) in (0u32..).zip(timelines) {
        for event in timeline.events.iter().filter(|event| event.kind == EventKind::Deliver) {
            let stream = Stream { source: event.peer, destination: rank, comm: event.comm, tag: event.tag };
            let so_far = delivered.entry(stream).or_default();
            verdict.delivered += 1;
            let sent = sends.get(&stream).and_then(|sent| sent.get(&event.ssn));
            verdict.altered += u64::from(sent != Some(&(event.len, event.hash)));
            if !so_far.seen.insert(event.ssn) {
                verdict.duplicated += 1;
            } else if event.ssn < so_far.highest {
                verdict.reordered += 1;
            }
            so_far.highest = so_far.highest.max(event.ssn);
        }
    }
    for (stream, sent) in &sends {
        let seen = delivered.get(stream).map(|deliveries| &deliveries.seen);
        verdict.lost += sent.keys().filter(|&ssn| !seen.is_some_and(|seen| seen.contains(ssn))).count() as u64;
    }
    verdict
}

#[derive(Default)]
struct Deliveries {
    seen: std::collections::HashSet<u64>,
    highest: u64,
}

/// Returns the first difference between two runs of a deterministic program as (rank, event), or `None`.
pub fn compare(run: &[Timeline], reference: &[Timeline]) -> Option<(u32, u64)> {
    for (rank, (one, other)) in (0u32..).zip(run.iter().zip(reference)) {
        let differs = one.events.iter().zip(&other.events).position(|(a, b)| a != b);
        if let Some(index) = differs {
            return Some((rank, index as u64));
        }
        if one.events.len() != other.events.len() {
            return Some((rank, one.events.len().min(other.events.len()) as u64));
        }
    }
    (run.len() != reference.len()).then_some((run.len().min(reference.len()) as u32, 0))
}

#[cfg(test)]
mod tests;
