//! Text form of the demo's result.

use std::fmt::Write;

use counterfoil_protocols::api::Rule;

use super::{Collectives, DemoReport, PowerCut, RecoveryMs, Restart, Stall, rank_count};

impl DemoReport {
    /// Names the protocol and its clusters.
    fn protocol_text(&self) -> String {
        match self.clusters {
            None => self.protocol.to_owned(),
            Some(1) => format!("{}, 1 cluster", self.protocol),
            Some(clusters) => format!("{}, {clusters} clusters", self.protocol),
        }
    }

    pub(in crate::demo) fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string doesn't fail.
        let _ = self.write_text(&mut text);
        text.trim_end().to_owned()
    }

    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        let yes = |good: bool| if good { "yes" } else { "NO" };
        writeln!(
            text,
            "{} of class {} on {}, {} log, {}",
            self.workload,
            self.class,
            rank_count(self.ranks),
            self.tier,
            self.protocol_text()
        )?;
        writeln!(text, "seed {}", self.seed)?;
        if let Some(mpi) = &self.mpi {
            writeln!(text, "over {mpi}; compared with a run on local processes")?;
        }
        writeln!(text)?;
        for kill in &self.kills {
            let by = if kill.planned.is_some() { "" } else { " by another process" };
            let RecoveryMs { detect, repair, start, replay, catch_up } = kill.recovery_ms;
            let phase = |name: &str, time: Option<f64>| time.map(|time| format!("{name} {time:.1} ms"));
            let phases = [
                phase("noticed", detect),
                phase("repaired", repair),
                phase("restarted", start),
                phase("replayed", replay),
                phase("caught up", catch_up),
            ];
            let phases: Vec<String> = phases.into_iter().flatten().collect();
            let phases = phases.join(", ");
            let phases = if phases.is_empty() { phases } else { format!(":\n    {phases}") };
            writeln!(text, "  rank {} killed{by} in iteration {}{phases}", kill.rank, kill.iteration)?;
        }
        for restart in self.restarts.iter().flatten() {
            write_restart(text, restart)?;
        }
        for PowerCut { iteration, restored } in &self.power_cuts {
            let origin = |epoch: &Option<u32>| epoch.map_or("the start".to_owned(), |epoch| format!("epoch {epoch}"));
            let origins: Vec<String> = restored.iter().map(origin).collect();
            writeln!(text, "  power cut in iteration {iteration}: ranks continued from {}", origins.join(", "))?;
        }
        let verified = self.verified.map_or("unknown", yes);
        writeln!(text, "  answer          {} (verified: {verified})", self.value)?;
        if let Some(same) = self.digest_equal {
            let (same, digest) = (yes(same), &self.digest);
            writeln!(text, "  same result     {same} (digest {digest}, compared with the run without kills)")?;
        }
        if let Some(same) = self.same_events {
            writeln!(
                text,
                "  same events     {} (every send and delivery, compared with the run without kills)",
                yes(same)
            )?;
        }
        let survivors = match (self.survivors, self.survivors_undisturbed) {
            (0, _) if self.restarts.is_some() => {
                "none: all exited when a rank was lost, and were started again".to_owned()
            }
            (0, _) if self.rolled_back.iter().any(|&times| times > 0) => {
                "none: every rank was killed or rolled back".to_owned()
            }
            (0, _) => "none: every rank was killed".to_owned(),
            (_, false) => "DISTURBED".to_owned(),
            (survivors, true) => format!("{} undisturbed", rank_count(survivors)),
        };
        writeln!(text, "  survivors       {survivors}")?;
        for Stall { rank, at_ms, .. } in &self.stalls {
            let what = rank.map_or("all processes waited for each other".to_owned(), |rank| {
                format!("rank {rank} had no process for too long")
            });
            writeln!(text, "  stalled         after {:.1} s: {what}, and all were started again", at_ms / 1e3)?;
        }
        if self.initiators_lost > 0 {
            writeln!(text, "  initiator       lost and replaced {}", times(self.initiators_lost))?;
        }
        if let Some(lines) = self.lines.as_deref().filter(|lines| !lines.is_empty()) {
            let lines: Vec<String> = lines.iter().map(|&line| line_name(line)).collect();
            writeln!(text, "  went back       the whole job, to {}", lines.join(", then to "))?;
        }
        if self.clusters.is_some() {
            let back: Vec<String> =
                (0..).zip(&self.rolled_back).filter(|(_, times)| **times > 0).map(rolled_back).collect();
            match back.as_slice() {
                [] => writeln!(text, "  rolled back     no other rank")?,
                back => {
                    let back = back.join(", ");
                    writeln!(text, "  rolled back     rank {back}: sent messages that were not kept")?;
                }
            }
            let acknowledged = self.messages_kept + self.messages_released;
            writeln!(
                text,
                "  kept            {} of {acknowledged} acknowledged messages ({:.1} %): those from past to future",
                self.messages_kept,
                100.0 * self.messages_kept as f64 / acknowledged.max(1) as f64
            )?;
        }
        if self.restarts.is_none() {
            writeln!(
                text,
                "  delivered       {} of {} messages: {} lost, {} duplicated, {} reordered, {} altered",
                self.messages_delivered, self.messages_sent, self.lost, self.duplicated, self.reordered, self.altered
            )?;
        }
        writeln!(
            text,
            "  log             {} messages ({:.1} MB), {} replayed, {} duplicates, {} repeats verified",
            self.messages_logged,
            self.bytes_logged as f64 / 1e6,
            self.messages_replayed,
            self.duplicates_dropped,
            self.sends_repeated
        )?;
        if self.checkpoints + self.choices_logged > 0 {
            writeln!(
                text,
                "  recorded        {} checkpoints{}, {} non-deterministic outcomes",
                self.checkpoints,
                self.checkpoint_ms.map(|ms| format!(" of {ms:.1} ms")).unwrap_or_default(),
                self.choices_logged
            )?;
        }
        if self.determinants.count > 0 {
            writeln!(
                text,
                "  receive order   {} deliveries recorded ({} bytes)",
                self.determinants.count, self.determinants.bytes
            )?;
        }
        if self.collectives.completed > 0 {
            let Collectives { completed, recorded, failed, results_sent } = self.collectives;
            writeln!(
                text,
                "  collectives     {completed} outside the log: {recorded} from kept results, {failed} interrupted; {results_sent} results sent"
            )?;
        }
        if self.logging_stopped > 0 {
            writeln!(
                text,
                "  WARNING         {} ranks ran out of log memory and stopped logging: not recoverable after that",
                self.logging_stopped
            )?;
        }
        writeln!(text, "  time            {:.1} ms; {:.1} ms without kills", self.wall_ms, self.reference_wall_ms)?;
        if let (Some(plain), Some(overhead)) = (self.plain_wall_ms, self.overhead) {
            writeln!(
                text,
                "  overhead        {overhead:.2} times the {plain:.1} ms under {}, both without kills",
                Rule::default().name
            )?;
        }
        if let Some(files) = &self.files {
            let path = files.display();
            writeln!(text, "  files           kept in {path}; inspect with `counterfoil log inspect {path}`")?;
        }
        Ok(())
    }
}

/// Writes the losses and step durations of a restart.
fn write_restart(text: &mut String, restart: &Restart) -> std::fmt::Result {
    let Restart { lost, from_saved, at_ms, bytes, save_ms, end_ms, start_ms, rebuild_ms, .. } = restart;
    let lost: Vec<String> = lost.iter().map(u32::to_string).collect();
    let lost = match lost.as_slice() {
        [] => "no state was".to_owned(),
        [rank] => format!("the state of rank {rank} was"),
        ranks => format!("the states of ranks {} were", ranks.join(", ")),
    };
    writeln!(text, "  started again after {:.1} s: {lost} lost", at_ms / 1e3)?;
    let step = |name: &str, time: &Option<f64>| time.map_or(String::new(), |time| format!(", {name} {time:.1} ms"));
    let saved = match (from_saved, bytes) {
        (false, _) => "no state was left".to_owned(),
        (true, 0) => "saved nothing".to_owned(),
        (true, bytes) => format!("saved {:.1} MB", *bytes as f64 / 1e6),
    };
    writeln!(
        text,
        "    {saved} {save_ms:.1} ms, ended {end_ms:.1} ms{}{}",
        step("started", start_ms),
        step("rebuilt", rebuild_ms)
    )
}

/// Formats a rank, with its number of rollbacks if more than one.
fn rolled_back((rank, times): (u32, &u32)) -> String {
    if *times == 1 { rank.to_string() } else { format!("{rank} ({times} times)") }
}

/// Names a committed line by the epoch beginning there.
fn line_name(epoch: u32) -> String {
    if epoch == 1 { "the start".to_owned() } else { format!("the line of epoch {epoch}") }
}

fn times(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}
