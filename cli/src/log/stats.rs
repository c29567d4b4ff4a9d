//! `counterfoil log stats`: what takes how much room.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use counterfoil::Rank;
use counterfoil::store::{BlockBuffer, CheckpointImage, LOCAL, Report, StoreView};
use serde_json::{Value, json};

use super::Place;
use super::lanes::{Lane, State};
use super::stores::{Opened, Outcome, bytes, for_each, progress_bar, with};
use crate::Failure;
use crate::table::Table;

/// Show how many bytes are kept for which peer, in which of its epochs they arrived, and whether they are still needed; how
/// large the records are, and what compression saves.
///
/// As the newest checkpoint has it that can be read; where the manifest has no whole slot, nothing says which one counts, and
/// every whole block is `unreferenced`. `unreferenced` is what it doesn't refer to: blocks that were written
/// since, and dead ones. Exit code 1 where something can't be read.
#[derive(Debug, Args)]
pub(super) struct StatsArguments {
    #[command(flatten)]
    pub(super) place: Place,
}

pub(super) fn run(arguments: &StatsArguments) -> Result<ExitCode, Failure> {
    for_each(&arguments.place, stats)
}

/// Records, and bytes of their bodies.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    records: u64,
    bytes: u64,
}

impl Tally {
    fn add(&mut self, records: u64, bytes: u64) {
        self.records += records;
        self.bytes += bytes;
    }
}

/// What was counted in a store.
#[derive(Debug, Default)]
struct Stats {
    /// By lane and state, without the phase.
    by: BTreeMap<(Rank, &'static str, Option<u32>), Tally>,
    /// Entries of the local log that the checkpoint has.
    local: Tally,
    /// Records by the number of bits that the length of their body has.
    sizes: BTreeMap<u32, u64>,
    needed: Tally,
    /// Whether anything says which checkpoint counts.
    is_known: bool,
    /// Of blocks that the checkpoint refers to.
    raw_bytes: u64,
    disk_bytes: u64,
    errors: Vec<String>,
}

fn stats(path: &Path) -> Result<Outcome, Failure> {
    let mut store = Opened::new(path)?;
    let report = store.scan()?;
    let mut stats = Stats { is_known: report.manifest.is_some(), ..Stats::default() };
    if report.manifest.is_none() {
        // The blocks alone are counted: nobody can say who refers to them.
        stats.errors.extend(store.without_manifest().map(|error| error.to_string()));
    }
    let view = match report.manifest {
        Some(_) => StoreView::new(&mut *store.backend),
        None => Ok(StoreView::of_blocks(&mut *store.backend)),
    };
    let epoch = match view {
        Ok(mut view) => {
            let image = newest(&mut view, &mut stats.errors);
            stats.count(&mut view, &image, &report, path);
            Some(image.epoch.0).filter(|epoch| *epoch > 0)
        }
        Err(error) => return Err(store.failure(&error)),
    };
    let of = match epoch {
        Some(epoch) => format!("  checkpoint that begins epoch {epoch}"),
        None => "  no checkpoint".to_owned(),
    };
    let mut text = format!("{}\n{of}\n{}", store.heading(&report), stats.as_text());
    for error in &stats.errors {
        text += &format!("\n  not counted: {error}");
    }
    let json = with(with(store.json_of(&report), json!({ "epoch": epoch })), stats.as_json());
    Ok(Outcome { json, text, is_sound: stats.errors.is_empty() })
}

/// The newest checkpoint that can be read; one without lanes where there is none.
fn newest(view: &mut StoreView<'_>, errors: &mut Vec<String>) -> CheckpointImage {
    for epoch in view.checkpoints().into_iter().rev() {
        match view.image(epoch) {
            Ok(image) => return image,
            Err(error) => errors.push(error.to_string()),
        }
    }
    CheckpointImage::default()
}

impl Stats {
    fn count(&mut self, view: &mut StoreView<'_>, image: &CheckpointImage, report: &Report, path: &Path) {
        let bar = progress_bar(path);
        bar.set_length(image.lanes.iter().flat_map(|lane| &lane.blocks).map(|block| block.disk_bytes).sum());
        let mut buffer = BlockBuffer::default();
        let mut known = std::collections::HashSet::new();
        for lane in image.lanes.iter().map(Lane::new) {
            for (index, block) in lane.blocks() {
                known.insert(*block);
                bar.inc(block.disk_bytes);
                if let Err(error) = view.read(block, &mut buffer) {
                    self.errors.push(error.to_string());
                    continue;
                }
                self.raw_bytes += block.raw_bytes;
                self.disk_bytes += block.disk_bytes;
                for record in buffer.records() {
                    self.record(block.lane, lane.state(index, record.ssn()), record.wire().len() as u64);
                }
            }
        }
        bar.finish_and_clear();
        for entry in &image.local {
            self.local.add(1, entry.bytes.len() as u64);
        }
        for of in report.segments.iter().flat_map(|segment| &segment.blocks).filter(|of| !known.contains(&of.block)) {
            let tally = self.by.entry((of.block.lane, State::Unreferenced.name(), None)).or_default();
            tally.add(of.block.records.into(), of.block.raw_bytes);
        }
        if report.blocks_left_out > 0 {
            self.errors.push(format!("{} blocks that no checkpoint refers to", report.blocks_left_out));
        }
    }

    fn record(&mut self, lane: Rank, state: State, bytes: u64) {
        let epoch = state.epoch_and_phase().map(|(epoch, _)| epoch.0);
        self.by.entry((lane, state.name(), epoch)).or_default().add(1, bytes);
        if state.is_needed() {
            self.needed.add(1, bytes);
        }
        *self.sizes.entry(u64::BITS - bytes.leading_zeros()).or_default() += 1;
    }

    fn as_text(&self) -> String {
        let mut table = Table::new(&["<lane to", "<state", "epoch", "records", "bytes"]);
        for (&(lane, state, epoch), tally) in &self.by {
            let lane = if lane == LOCAL { "(local log)".to_owned() } else { lane.to_string() };
            let epoch = epoch.map_or_else(|| "-".to_owned(), |epoch| epoch.to_string());
            table.row([lane, state.to_owned(), epoch, tally.records.to_string(), bytes(tally.bytes)]);
        }
        if self.local.records > 0 {
            let (records, size) = (self.local.records.to_string(), bytes(self.local.bytes));
            table.row(["(local log)".to_owned(), "checkpoint".to_owned(), "-".to_owned(), records, size]);
        }
        let mut lines = vec![table.to_string()];
        lines.push(match self.is_known {
            true => format!("  needed       {} records, {}", self.needed.records, bytes(self.needed.bytes)),
            false => "  needed       not known: nothing says which checkpoint counts".to_owned(),
        });
        if self.disk_bytes > 0 {
            let (raw, disk) = (bytes(self.raw_bytes), bytes(self.disk_bytes));
            lines.push(format!("  compression  {raw} of records in {disk} on disk: {:.2} to 1", self.ratio()));
        }
        if let Some(most) = self.sizes.values().max() {
            lines.push("  sizes (prefix and payload)".to_owned());
            let mut sizes = Table::new(&["bytes", "records", "<"]);
            for (&bits, &records) in &self.sizes {
                let (from, to) = bucket(bits);
                let bar = "#".repeat(((records * 40).div_ceil(*most)) as usize);
                sizes.row([format!("{from}-{to}"), records.to_string(), bar]);
            }
            lines.push(sizes.to_string());
        }
        lines.join("\n")
    }

    fn ratio(&self) -> f64 {
        self.raw_bytes as f64 / self.disk_bytes as f64
    }

    fn as_json(&self) -> Value {
        let by = self.by.iter().map(|(&(lane, state, epoch), tally)| {
            let lane = if lane == LOCAL { json!("local") } else { json!(lane.0) };
            json!({ "lane": lane, "state": state, "epoch": epoch, "records": tally.records, "bytes": tally.bytes })
        });
        let sizes = self.sizes.iter().map(|(&bits, records)| {
            let (from, to) = bucket(bits);
            json!({ "from": from, "to": to, "records": records })
        });
        let needed = self.is_known.then(|| json!({ "records": self.needed.records, "bytes": self.needed.bytes }));
        let ratio = if self.disk_bytes > 0 { Some(self.ratio()) } else { None };
        json!({
            "by": by.collect::<Vec<_>>(),
            "local": { "entries": self.local.records, "bytes": self.local.bytes },
            "needed": needed,
            "raw_bytes": self.raw_bytes, "disk_bytes": self.disk_bytes, "compression": ratio,
            "sizes": sizes.collect::<Vec<_>>(),
            "errors": self.errors,
        })
    }
}

/// The lengths with this number of bits.
fn bucket(bits: u32) -> (u64, u64) {
    match bits {
        0 => (0, 0),
        bits => (1 << (bits - 1), u64::MAX >> (u64::BITS - bits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_in_the_bucket_of_its_bits() {
        for bytes in [0, 1, 2, 3, 4, 1023, 1024, u64::MAX] {
            let (from, to) = bucket(u64::BITS - bytes.leading_zeros());
            assert!((from..=to).contains(&bytes), "{bytes} is not in {from}-{to}");
        }
    }
}
