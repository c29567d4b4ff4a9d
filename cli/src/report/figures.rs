//! Report figures: per rank and in total.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use counterfoil_profile::{Channel, DelayCounts, Ended, Job, RankProfile, Sizes, Traffic};
use indicatif::BinaryBytes;
use serde_json::{Value, json};

use super::job::{JobProfile, Source};

/// Acknowledgement delay quantiles to show.
pub(super) const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 1.0];

/// Totals for a collective operation over all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CollectiveTotals {
    pub(super) calls: u64,
    pub(super) kept_bytes: u64,
}

/// Figures for a job.
#[derive(Debug)]
pub(super) struct Figures {
    profile: JobProfile,
    /// Messages logged per channel (sender, receiver).
    matrix: BTreeMap<(u32, u32), Traffic>,
    /// Channels with a sender without a profile, where the receiver counted more messages than the sender's log
    /// contains.
    from_receiver: BTreeSet<(u32, u32)>,
    pub(super) sizes: Sizes,
    pub(super) delays: DelayCounts,
    pub(super) collectives: BTreeMap<String, CollectiveTotals>,
}

impl Figures {
    pub(super) fn of(profile: JobProfile) -> Figures {
        let mut figures = Figures {
            profile,
            matrix: BTreeMap::new(),
            from_receiver: BTreeSet::new(),
            sizes: Sizes::default(),
            delays: DelayCounts::default(),
            collectives: BTreeMap::new(),
        };
        for (rank, source) in (0..).zip(&figures.profile.ranks) {
            let logged = match source {
                Source::Profile(one) => {
                    figures.sizes.merge(&one.sizes);
                    figures.delays.merge(&one.delays);
                    for collective in &one.collectives {
                        let kind = figures.collectives.entry(collective.kind.clone()).or_default();
                        kind.calls = kind.calls.saturating_add(collective.calls);
                        kind.kept_bytes = kind.kept_bytes.saturating_add(collective.kept_bytes);
                    }
                    &one.logged
                }
                Source::Log(part) => {
                    figures.sizes.merge(&part.sizes);
                    &part.logged
                }
                Source::Missing(_) => continue,
            };
            for channel in logged {
                let known = figures.matrix.entry((rank, channel.peer)).or_default();
                *known = Traffic::sum([*known, channel.traffic()]);
            }
        }
        figures.add_received();
        figures
    }

    /// For ranks without a profile, adds the messages received from them by ranks with one.
    fn add_received(&mut self) {
        for source in &self.profile.ranks {
            let Source::Profile(receiver) = source else { continue };
            for channel in &receiver.received {
                if matches!(self.profile.ranks.get(channel.peer as usize), Some(Source::Profile(_))) {
                    continue;
                }
                let at = (channel.peer, receiver.rank);
                let known = self.matrix.entry(at).or_default();
                if channel.messages > known.messages {
                    *known = channel.traffic();
                    self.from_receiver.insert(at);
                }
            }
        }
    }

    pub(super) fn dir(&self) -> &std::path::Path {
        &self.profile.dir
    }

    pub(super) fn job(&self) -> Option<&Job> {
        self.profile.job.as_ref()
    }

    /// Name of the program, or else the directory.
    pub(super) fn name(&self) -> String {
        match self.job().and_then(|job| job.program.first()) {
            Some(program) => program.rsplit('/').next().unwrap_or(program).to_owned(),
            None => self.dir().display().to_string(),
        }
    }

    /// Number of ranks, including ranks that only appear as a peer in a log.
    pub(super) fn ranks(&self) -> u32 {
        let known = u32::try_from(self.profile.ranks.len()).unwrap_or(u32::MAX);
        self.matrix.keys().map(|(from, to)| from.max(to) + 1).fold(known, u32::max)
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = (u32, &Source)> {
        (0..).zip(&self.profile.ranks)
    }

    pub(super) fn profiles(&self) -> impl Iterator<Item = (u32, &RankProfile)> {
        self.sources().filter_map(|(rank, source)| match source {
            Source::Profile(profile) => Some((rank, &**profile)),
            _ => None,
        })
    }

    /// Returns the used channels: sender, receiver, traffic.
    pub(super) fn channels(&self) -> impl Iterator<Item = (u32, u32, Traffic)> + '_ {
        self.matrix.iter().map(|(&(from, to), &traffic)| (from, to, traffic))
    }

    /// Returns the known traffic logged by a rank, and whether receivers reported part of it.
    pub(super) fn logged_by(&self, rank: u32) -> (Traffic, bool) {
        let row = (rank, 0)..=(rank, u32::MAX);
        let logged = Traffic::sum(self.matrix.range(row.clone()).map(|(_, one)| *one));
        (logged, self.from_receiver.range(row).next().is_some())
    }

    /// Returns the total traffic.
    pub(super) fn logged(&self) -> Traffic {
        Traffic::sum(self.matrix.values().copied())
    }

    /// Formats the bytes contributed to collective operations, to follow the logged traffic; empty if there are none.
    pub(super) fn contributions_text(&self) -> String {
        match self.collectives.values().fold(0, |sum: u64, one| sum.saturating_add(one.kept_bytes)) {
            0 => String::new(),
            bytes => format!(", and {} contributed to collective operations", BinaryBytes(bytes)),
        }
    }

    /// Returns remarks on the job and on the figures' completeness.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        match self.job() {
            None => notes.push("no job.json in the directory: the program and its settings are unknown".to_owned()),
            Some(job) if job.exit_code.is_none() => {
                notes.push("the job had not ended when this report was made, or its end was not recorded".to_owned());
            }
            Some(job) if job.interrupted => notes.push("the job was interrupted".to_owned()),
            Some(job) if job.exit_code != Some(0) => {
                notes.push(format!("the job ended with exit code {}", job.exit_code.unwrap_or_default()));
            }
            Some(_) => {}
        }
        // Notes from several ranks that differ only in numbers are merged, with the first rank's numbers.
        let mut merged: BTreeMap<String, (String, Vec<u32>)> = BTreeMap::new();
        for (rank, source) in self.sources() {
            for note in rank_notes(source, self.job().is_some()) {
                merged.entry(strip_digits(&note)).or_insert_with(|| (note, Vec::new())).1.push(rank);
            }
        }
        notes.extend(merged.into_values().map(|(note, ranks)| format!("{}: {note}", rank_list(&ranks))));
        let mut reported: Vec<u32> = self.from_receiver.iter().map(|(from, _)| *from).collect();
        reported.dedup();
        if !reported.is_empty() {
            notes.push(format!(
                "{}: messages are counted by their receivers, without those in transit and without sizes",
                rank_list(&reported)
            ));
        }
        let lost = self.not_received();
        if lost > 0 {
            notes.push(format!(
                "{lost} more messages were logged than received, between ranks that both have a profile: cancelled sends, or \
                 messages that were never received"
            ));
        }
        notes
    }

    /// Counts the messages logged but not received, on channels with a profile at both ends.
    fn not_received(&self) -> u64 {
        let profiles: BTreeMap<u32, &RankProfile> = self.profiles().collect();
        let more = |(from, to, logged): (u32, u32, Traffic)| {
            profiles.get(&from)?;
            let received = profiles.get(&to)?.received.iter().find(|channel| channel.peer == from);
            Some(logged.messages.saturating_sub(received.map_or(0, |channel| channel.messages)))
        };
        self.channels().filter_map(more).fold(0, u64::saturating_add)
    }

    /// Returns the figures as JSON.
    pub(super) fn to_json(&self, files: &[PathBuf]) -> Value {
        let ranks = self.sources().map(|(rank, source)| match source {
            Source::Profile(profile) => {
                let mut figures = json!({
                    "rank": rank, "source": "profile", "ended": profile.ended, "wall_ms": profile.wall_ms,
                    "determinants": profile.determinants, "memory_peak_bytes": profile.memory_peak_bytes,
                    "spilled_bytes": profile.spilled_bytes, "waited_ms": profile.waited_ms,
                    "logging_stopped": profile.logging_stopped, "gave_up": profile.gave_up,
                    "not_kept": profile.not_kept, "gaps": profile.gaps,
                });
                figures["received"] = channels(profile.received.iter());
                figures
            }
            Source::Log(part) => json!({
                "rank": rank, "source": "log", "contributions": part.contributions,
                "has_checkpoint": part.has_checkpoint, "taken_over": part.is_taken_over,
            }),
            Source::Missing(why) => json!({ "rank": rank, "source": "missing", "why": why }),
        });
        let matrix = self.channels().map(|(from, to, traffic)| {
            let mut row = json!({ "from": from, "to": to, "messages": traffic.messages, "bytes": traffic.bytes });
            if self.from_receiver.contains(&(from, to)) {
                row["by"] = "receiver".into();
            }
            row
        });
        let sizes =
            self.sizes.classes().map(|(from, to, messages)| json!({ "from": from, "to": to, "messages": messages }));
        let quantiles = QUANTILES.map(|share| json!({ "share": share, "delay_ns": self.delays.quantile_ns(share) }));
        let collectives = self
            .collectives
            .iter()
            .map(|(kind, one)| json!({ "kind": kind, "calls": one.calls, "kept_bytes": one.kept_bytes }));
        json!({
            "dir": self.dir(),
            "job": self.job(),
            "ranks": ranks.collect::<Vec<_>>(),
            "matrix": matrix.collect::<Vec<_>>(),
            "sizes": sizes.collect::<Vec<_>>(),
            "delays": {
                "samples": self.delays.samples(), "left_out": self.delays.left_out,
                "unanswered": self.delays.unanswered, "quantiles": quantiles,
            },
            "collectives": collectives.collect::<Vec<_>>(),
            "notes": self.notes(),
            "files": files,
        })
    }
}

/// Returns the notes on a rank.
fn rank_notes(source: &Source, is_mpi: bool) -> Vec<String> {
    let profile = match source {
        Source::Profile(profile) => profile,
        Source::Log(part) if is_mpi => {
            let shown = match (part.is_taken_over, part.has_checkpoint) {
                _ if part.is_in_use => "still running; shown is what its log has on disk so far",
                (true, _) => "ended without MPI_Finalize; shown is its log from shared memory",
                (false, true) => "no profile; shown is its log",
                (false, false) => {
                    "ended without MPI_Finalize; records in memory are lost, shown are those spilled to disk"
                }
            };
            return vec![format!("{shown}, without times, acknowledgements and collective operations")];
        }
        Source::Log(_) => {
            return vec![
                "no profile (killed, or not run under `counterfoil run`); shown is what its log still contains, without times, \
                 acknowledgements and collective operations"
                    .to_owned(),
            ];
        }
        Source::Missing(why) => return vec![format!("no data: {why}")],
    };
    let mut notes = Vec::new();
    if profile.ended == Ended::Aborted {
        notes.push("called MPI_Abort; figures up to that call".to_owned());
    }
    if profile.logging_stopped {
        notes.push("the log was full, and logging stopped (stop-logging)".to_owned());
    }
    notes.extend(profile.not_kept.as_ref().map(|why| format!("the log could not be kept, only its figures: {why}")));
    notes.extend(profile.gaps.iter().map(|why| format!("records are missing from the log: {why}")));
    notes.extend(profile.gave_up.as_ref().map(|why| format!("gave up logging: {why}")));
    notes
}

/// Removes the digits, to make texts equal that differ only in numbers.
pub(crate) fn strip_digits(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

/// Formats ranks as `rank 3` or `ranks 1, 2, 5-9`.
pub(crate) fn rank_list(ranks: &[u32]) -> String {
    let runs = ranks.chunk_by(|one, next| one + 1 == *next).map(|run| match run {
        [first, .., last] if run.len() > 2 => format!("{first}-{last}"),
        run => run.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
    });
    let list = runs.collect::<Vec<_>>().join(", ");
    if ranks.len() == 1 { format!("rank {list}") } else { format!("ranks {list}") }
}

fn channels<'a>(of: impl Iterator<Item = &'a Channel>) -> Value {
    of.map(|one| json!({ "peer": one.peer, "messages": one.messages, "bytes": one.bytes })).collect()
}

#[cfg(test)]
mod tests {
    use super::rank_list;

    #[test]
    fn consecutive_ranks_are_listed_as_ranges() {
        assert_eq!(rank_list(&[3]), "rank 3");
        assert_eq!(rank_list(&[1, 2]), "ranks 1, 2");
        assert_eq!(rank_list(&[1, 2, 4, 5, 6, 7, 9]), "ranks 1, 2, 4-7, 9");
    }
}
