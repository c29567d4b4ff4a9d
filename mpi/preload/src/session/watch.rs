//! Observations of the log while the program runs: for the summary, the live line, and the rank's profile.
//!
//! Made once in many messages.

use std::path::PathBuf;
use std::time::Instant;

use counterfoil::{Log, Rank, Usage};
use counterfoil_mpi_logger::unacknowledged;
use counterfoil_profile::{
    Channel, Collective, Delays, Ended, ProfileError, RankProfile, Sample, Series, Traffic, VERSION,
};

use super::Session;
use super::ledger::Ledger;
use crate::Operation;
use crate::say::say;

/// Exclusive bound on the shifts between observations, in messages, which take turns.
///
/// So a program with a regular pattern isn't always observed at the same point.
const SHIFTS: u32 = 7;

/// Data for the rank's profile.
#[derive(Debug)]
pub(super) struct Watch {
    /// Profile directory, without which nothing is gathered.
    dir: Option<PathBuf>,
    delays: Delays,
    series: Series,
    observations: u32,
}

impl Watch {
    pub(super) fn new(dir: Option<PathBuf>) -> Watch {
        let mut series = Series::default();
        series.add(Sample::default());
        Watch { dir, delays: Delays::default(), series, observations: 0 }
    }

    /// Notes a rank's acknowledgements.
    pub(super) fn released(&mut self, peer: u32, log: &Log) {
        if self.dir.is_some() {
            self.delays.acknowledged(peer, log.acked(Rank(peer)).0, Instant::now);
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
    /// Notes the log's usage in the summary.
    pub(super) fn note_usage(&mut self) -> Option<Usage> {
        let usage = self.logger.log().map(Log::usage);
        self.ledger.note(usage);
        usage
    }

    /// Observes the log.
    ///
    /// Reads the clock only for a profile.
    pub(super) fn observe(&mut self) {
        let usage = self.note_usage();
        if usage.is_some_and(|usage| usage.stopped_logging) {
            self.stop_logging(&"its log is full");
        }
        if self.watch.dir.is_none() {
            return;
        }
        let now = Instant::now();
        let Some(log) = self.logger.log() else { return };
        let watch = &mut self.watch;
        watch.observations = watch.observations.wrapping_add(1);
        self.since_progress = watch.observations % SHIFTS;
        let at_ms = milliseconds(now.saturating_duration_since(self.begun));
        if watch.series.is_due(at_ms) {
            watch.series.add(sample(at_ms, &self.ledger, log));
        }
        // It has just been sent.
        if let Some(peer) = self.ledger.take_latest() {
            let (ssn, acked) = (log.next_ssn(Rank(peer)).0.saturating_sub(1), log.acked(Rank(peer)).0);
            if ssn > acked {
                watch.delays.sent(peer, ssn, now);
            }
        }
    }

    /// Writes the rank's profile, where logs are kept.
    pub(super) fn write_profile(&mut self, ended: Ended) {
        let Some(dir) = self.watch.dir.clone() else { return };
        let wall_ms = milliseconds(self.wall());
        if let Some(log) = self.logger.log() {
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
            rank: self.logger.rank(),
            ranks: self.logger.ranks(),
            ended,
            wall_ms,
            logged: channels(&ledger.all_logged()),
            received: channels(&ledger.all_received()),
            sizes: ledger.sizes.clone(),
            collectives: kinds.map(collective).collect(),
            determinants: self.logger.determinants(),
            memory_peak_bytes: ledger.memory_peak as u64,
            spilled_bytes: ledger.spilled,
            waited_ms: milliseconds(ledger.waited),
            logging_stopped: ledger.has_stopped,
            gave_up: ledger.gave_up.clone(),
            not_kept: self.not_kept.clone(),
            gaps: ledger.gaps().map(|gap| gap.to_string()).collect(),
            delays: self.watch.delays.counts(),
            series: self.watch.series.clone(),
        }
    }
}

fn milliseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
