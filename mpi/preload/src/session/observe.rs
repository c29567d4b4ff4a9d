//! What is seen of the log while the program runs: for the account, for the live line, and for the rank's profile.
//!
//! Everything here happens where acknowledgements are looked after, once in so many messages, and never for each.

use std::path::PathBuf;
use std::time::Instant;

use counterfoil::{Log, Rank, Usage};
use counterfoil_mpi::acks::unacknowledged;
use counterfoil_profile::{
    Channel, Collective, Delays, Ended as EndedAs, ProfileError, RankProfile, Sample, Series, VERSION,
};

use super::ledger::{Ledger, Traffic};
use super::{Ended, Session};
use crate::Operation;
use crate::say::say;

/// A look comes earlier by less than so many messages, by turns: a program that sends and receives in a pattern is not always looked at
/// in the same place of it.
const SHIFTS: u32 = 7;

/// What becomes the rank's profile.
#[derive(Debug)]
pub(super) struct Watch {
    /// Where it goes; without, nothing is watched.
    dir: Option<PathBuf>,
    delays: Delays,
    series: Series,
    looks: u32,
}

impl Watch {
    pub(super) fn new(dir: Option<PathBuf>) -> Watch {
        let mut series = Series::default();
        series.add(Sample::default());
        Watch { dir, delays: Delays::default(), series, looks: 0 }
    }

    /// A rank has said how far it has received.
    pub(super) fn heard(&mut self, peer: u32, log: &Log) {
        if self.dir.is_some() {
            self.delays.heard(peer, log.acked(Rank(peer)).0, Instant::now);
        }
    }
}

fn sample(at_ms: u64, ledger: &Ledger, log: &Log) -> Sample {
    let (logged, usage) = (Traffic::sum(ledger.all_logged()), log.usage());
    Sample {
        at_ms,
        messages: logged.messages,
        bytes: logged.bytes,
        used_bytes: usage.used_bytes as u64,
        spilled_bytes: usage.spilled_bytes,
        unacknowledged: unacknowledged(log),
    }
}

impl Session {
    /// Notes how the log is.
    pub(super) fn note(&mut self) -> Option<Usage> {
        let usage = self.log.as_ref().map(Log::usage);
        self.ledger.note(usage);
        usage
    }

    /// Looks at the log. The clock is asked where somebody wants to know the time.
    pub(super) fn observe(&mut self) {
        let usage = self.note();
        if usage.is_some_and(|usage| usage.stopped_logging) {
            self.stop_logging(&"its log is full");
        }
        if self.watch.dir.is_none() {
            return;
        }
        let now = Instant::now();
        let Some(log) = &self.log else { return };
        let watch = &mut self.watch;
        watch.looks = watch.looks.wrapping_add(1);
        self.since_look = watch.looks % SHIFTS;
        let at_ms = milliseconds(now.saturating_duration_since(self.begun));
        if watch.series.is_due(at_ms) {
            watch.series.add(sample(at_ms, &self.ledger, log));
        }
        // The message that led here has just been sent.
        if let Some(peer) = self.ledger.take_latest() {
            let (ssn, acked) = (log.next_ssn(Rank(peer)).0.saturating_sub(1), log.acked(Rank(peer)).0);
            if ssn > acked {
                watch.delays.sent(peer, ssn, now);
            }
        }
    }

    /// Writes the rank's profile, at the end that comes, where logs are kept.
    pub(super) fn write_profile(&mut self, ended: Ended) {
        let Some(dir) = self.watch.dir.clone() else { return };
        let wall_ms = milliseconds(self.wall());
        if let Some(log) = &self.log {
            self.watch.series.finish(sample(wall_ms, &self.ledger, log));
        }
        let written = self.profile(ended, wall_ms).write(&dir);
        if let Err(error @ ProfileError::Write { .. }) = written {
            say(format_args!("its profile is missing: {error}"));
        }
    }

    fn profile(&self, ended: Ended, wall_ms: u64) -> RankProfile {
        let ledger = &self.ledger;
        let channels = |of: &[Traffic]| {
            let all = (0..).zip(of).filter(|(_, traffic)| traffic.messages > 0);
            all.map(|(peer, traffic)| Channel { peer, messages: traffic.messages, bytes: traffic.bytes }).collect()
        };
        let kinds = Operation::ALL.iter().zip(&ledger.collectives).filter(|(_, one)| one.messages > 0);
        let collective = |(operation, one): (&Operation, &Traffic)| Collective {
            kind: operation.name().to_owned(),
            calls: one.messages,
            kept_bytes: one.bytes,
        };
        RankProfile {
            version: VERSION,
            rank: self.rank,
            ranks: self.ranks,
            ended: match ended {
                Ended::Finalized => EndedAs::Finalized,
                Ended::Aborted => EndedAs::Aborted,
            },
            wall_ms,
            logged: channels(&ledger.all_logged()),
            received: channels(&ledger.all_received()),
            sizes: ledger.sizes.clone(),
            collectives: kinds.map(collective).collect(),
            determinants: ledger.determinants,
            memory_peak_bytes: ledger.memory_peak as u64,
            spilled_bytes: ledger.spilled,
            waited_ms: milliseconds(ledger.waited),
            logging_stopped: ledger.has_stopped,
            gave_up: ledger.gave_up.clone(),
            not_kept: self.not_kept.clone(),
            delays: self.watch.delays.counts(),
            series: self.watch.series.clone(),
        }
    }
}

fn milliseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
