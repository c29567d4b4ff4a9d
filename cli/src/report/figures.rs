//! What the report shows, summed up: what one rank knows and what all know together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use counterfoil_profile::{Channel, DelayCounts, Ended, Job, RankProfile, Sizes};
use indicatif::BinaryBytes;
use serde_json::{Value, json};

use super::job::{JobProfile, Source};

/// Shares of the messages whose delay is told.
pub(super) const SHARES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 1.0];

/// Messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

impl Traffic {
    fn add(&mut self, channel: &Channel) {
        self.messages = self.messages.saturating_add(channel.messages);
        self.bytes = self.bytes.saturating_add(channel.bytes);
    }
}

/// A collective operation, by all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) calls: u64,
    pub(super) kept_bytes: u64,
}

/// A job's figures.
#[derive(Debug)]
pub(super) struct Figures {
    profile: JobProfile,
    /// What was logged on each channel (sender, receiver) that was used.
    matrix: BTreeMap<(u32, u32), Traffic>,
    /// Of these, where the sender has no profile, those of which the receiver knows more than the sender's log.
    told: BTreeSet<(u32, u32)>,
    pub(super) sizes: Sizes,
    pub(super) delays: DelayCounts,
    pub(super) collectives: BTreeMap<String, Kind>,
}

impl Figures {
    pub(super) fn of(profile: JobProfile) -> Figures {
        let mut figures = Figures {
            profile,
            matrix: BTreeMap::new(),
            told: BTreeSet::new(),
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
                figures.matrix.entry((rank, channel.peer)).or_default().add(channel);
            }
        }
        figures.ask_receivers();
        figures
    }

    /// Of ranks without a profile, those that have one know what they received.
    fn ask_receivers(&mut self) {
        for source in &self.profile.ranks {
            let Source::Profile(receiver) = source else { continue };
            for channel in &receiver.received {
                if matches!(self.profile.ranks.get(channel.peer as usize), Some(Source::Profile(_))) {
                    continue;
                }
                let at = (channel.peer, receiver.rank);
                let known = self.matrix.entry(at).or_default();
                if channel.messages > known.messages {
                    *known = Traffic { messages: channel.messages, bytes: channel.bytes };
                    self.told.insert(at);
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

    /// The program's name, or the directory's.
    pub(super) fn name(&self) -> String {
        match self.job().and_then(|job| job.program.first()) {
            Some(program) => program.rsplit('/').next().unwrap_or(program).to_owned(),
            None => self.dir().display().to_string(),
        }
    }

    /// How many ranks there are. A log alone may name a rank of which nothing else is known.
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

    /// Channels that were used: sender, receiver, what was logged.
    pub(super) fn channels(&self) -> impl Iterator<Item = (u32, u32, Traffic)> + '_ {
        self.matrix.iter().map(|(&(from, to), &traffic)| (from, to, traffic))
    }

    /// Everything that a rank logged, as far as that is known, and whether it is others that say so of a part.
    pub(super) fn logged_by(&self, rank: u32) -> (Traffic, bool) {
        let row = (rank, 0)..=(rank, u32::MAX);
        let logged = self.matrix.range(row.clone()).fold(Traffic::default(), |sum, (_, one)| Traffic {
            messages: sum.messages.saturating_add(one.messages),
            bytes: sum.bytes.saturating_add(one.bytes),
        });
        (logged, self.told.range(row).next().is_some())
    }

    /// Everything that was logged.
    pub(super) fn logged(&self) -> Traffic {
        let add = |sum: Traffic, (_, _, one): (u32, u32, Traffic)| Traffic {
            messages: sum.messages.saturating_add(one.messages),
            bytes: sum.bytes.saturating_add(one.bytes),
        };
        self.channels().fold(Traffic::default(), add)
    }

    /// What was kept of collective operations, where something was: as it stands behind what was logged.
    pub(super) fn given(&self) -> String {
        match self.collectives.values().fold(0, |sum: u64, one| sum.saturating_add(one.kept_bytes)) {
            0 => String::new(),
            bytes => format!(", and {} that ranks gave to collective operations", BinaryBytes(bytes)),
        }
    }

    /// What somebody who looks at the figures should know.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        match self.job() {
            None => notes.push("nothing says what was run, and how: there is no job.json in the directory".to_owned()),
            Some(job) if job.exit_code.is_none() => {
                notes.push("the job had not ended when this was made, or nobody saw its end".to_owned());
            }
            Some(job) if job.interrupted => notes.push("the job was interrupted".to_owned()),
            Some(job) if job.exit_code != Some(0) => {
                notes.push(format!("the job ended with exit code {}", job.exit_code.unwrap_or_default()));
            }
            Some(_) => {}
        }
        // What is so of several ranks is said once, with the numbers of the first.
        let mut said: BTreeMap<String, (String, Vec<u32>)> = BTreeMap::new();
        for (rank, source) in self.sources() {
            for what in concerning(source, self.job().is_some()) {
                said.entry(without_numbers(&what)).or_insert_with(|| (what, Vec::new())).1.push(rank);
            }
        }
        notes.extend(said.into_values().map(|(what, ranks)| format!("{}: {what}", named(&ranks))));
        let mut told: Vec<u32> = self.told.iter().map(|(from, _)| *from).collect();
        told.dedup();
        if !told.is_empty() {
            notes.push(format!(
                "{}: what others received from there stands for what was logged, without what was still under way and how long the messages \
                 were",
                named(&told)
            ));
        }
        let lost = self.not_received();
        if lost > 0 {
            notes.push(format!(
                "{lost} messages more were logged than their receivers took, between ranks that both have a profile: sends that were cancelled, or \
                 messages that nobody received"
            ));
        }
        notes
    }

    /// How many more messages were logged than received, on channels of which both ends are known.
    fn not_received(&self) -> u64 {
        let profiles: BTreeMap<u32, &RankProfile> = self.profiles().collect();
        let more = |(from, to, logged): (u32, u32, Traffic)| {
            profiles.get(&from)?;
            let received = profiles.get(&to)?.received.iter().find(|channel| channel.peer == from);
            Some(logged.messages.saturating_sub(received.map_or(0, |channel| channel.messages)))
        };
        self.channels().filter_map(more).fold(0, u64::saturating_add)
    }

    /// The figures for a program.
    pub(super) fn to_json(&self, files: &[PathBuf]) -> Value {
        let ranks = self.sources().map(|(rank, source)| match source {
            Source::Profile(profile) => {
                let mut figures = json!({
                    "rank": rank, "source": "profile", "ended": profile.ended, "wall_ms": profile.wall_ms,
                    "determinants": profile.determinants, "memory_peak_bytes": profile.memory_peak_bytes,
                    "spilled_bytes": profile.spilled_bytes, "waited_ms": profile.waited_ms,
                    "logging_stopped": profile.logging_stopped, "gave_up": profile.gave_up,
                    "not_kept": profile.not_kept,
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
            if self.told.contains(&(from, to)) {
                row["by"] = "receiver".into();
            }
            row
        });
        let sizes =
            self.sizes.classes().map(|(from, to, messages)| json!({ "from": from, "to": to, "messages": messages }));
        let quantiles = SHARES.map(|share| json!({ "share": share, "delay_ns": self.delays.quantile_ns(share) }));
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

/// What is to be said of a rank.
fn concerning(source: &Source, is_mpi: bool) -> Vec<String> {
    let profile = match source {
        Source::Profile(profile) => profile,
        Source::Log(part) if is_mpi => {
            let what = match (part.is_taken_over, part.has_checkpoint) {
                (true, _) => "here is its log as it was in shared memory, and",
                (false, true) => "no profile: here is what its log has, and",
                (false, false) => "what it had in memory is missing: here is what had been moved to disk, and",
            };
            let ended = if part.has_checkpoint && !part.is_taken_over { "" } else { "ended without MPI_Finalize; " };
            return vec![format!("{ended}{what} nothing of time, acknowledgements and collective operations")];
        }
        Source::Log(_) => {
            return vec![
                "no profile (it was killed, or didn't run under `counterfoil run`); there is what the log still has, and nothing of time, \
                 acknowledgements and collective operations"
                    .to_owned(),
            ];
        }
        Source::Missing(why) => return vec![format!("this part is missing: {why}")],
    };
    let mut said = Vec::new();
    if profile.ended == Ended::Aborted {
        said.push("called MPI_Abort; the figures are as they were then".to_owned());
    }
    if profile.logging_stopped {
        said.push("the log was full, and nothing was logged from there on (stop-logging)".to_owned());
    }
    said.extend(
        profile.not_kept.as_ref().map(|why| format!("the log could not be kept, these are figures only: {why}")),
    );
    said.extend(profile.gave_up.as_ref().map(|why| format!("gave up logging: {why}")));
    said
}

/// What is alike in what several ranks say.
pub(crate) fn without_numbers(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

/// `rank 3`, or `ranks 1, 2, 5-9`.
pub(crate) fn named(ranks: &[u32]) -> String {
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
    use super::named;

    #[test]
    fn ranks_are_named_as_runs() {
        assert_eq!(named(&[3]), "rank 3");
        assert_eq!(named(&[1, 2]), "ranks 1, 2");
        assert_eq!(named(&[1, 2, 4, 5, 6, 7, 9]), "ranks 1, 2, 4-7, 9");
    }
}
