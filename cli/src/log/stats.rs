//! `counterfoil log stats`: prints a store's space usage.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use counterfoil::Rank;
use counterfoil_log_io::{BlockBuffer, CheckpointImage, LOCAL, Report, StoreView};
use indicatif::BinaryBytes;
use serde_json::{Value, json};

use super::StoreArguments;
use super::lanes::{Lane, State};
use super::stores::{OpenedStore, Outcome, for_each, merge, progress_bar};
use crate::Failure;
use crate::table::Table;

/// Show the space used by peer, epoch and record state, the record sizes, and the effect of compression.
///
/// Uses the newest readable checkpoint. Blocks not referenced by it, because they are newer or dead, are
/// `unreferenced`; so are all intact blocks if there is no valid manifest slot. The exit code is 1 if something can't
/// be read.
#[derive(Debug, Args)]
pub(super) struct StatsArguments {
    #[command(flatten)]
    pub(super) store: StoreArguments,
}

pub(super) fn run(arguments: &StatsArguments) -> Result<ExitCode, Failure> {
    for_each(&arguments.store, stats)
}

/// Record count and body bytes.
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

/// Statistics for one store.
#[derive(Debug, Default)]
struct Stats {
    /// Tally by lane, state name and epoch.
    by: BTreeMap<(Rank, &'static str, Option<u32>), Tally>,
    /// Local log entries in the checkpoint.
    local: Tally,
    /// Number of records by the bit length of their body size.
    sizes: BTreeMap<u32, u64>,
    needed: Tally,
    /// True if there is a valid manifest, and so a valid checkpoint is known.
    is_known: bool,
    /// Uncompressed bytes of the checkpoint's blocks.
    raw_bytes: u64,
    /// Bytes of the same blocks on disk.
    disk_bytes: u64,
    errors: Vec<String>,
}

fn stats(path: &Path) -> Result<Outcome, Failure> {
    let mut store = OpenedStore::new(path)?;
    let report = store.scan()?;
    let mut stats = Stats { is_known: report.manifest.is_some(), ..Stats::default() };
    if report.manifest.is_none() {
        // Without a manifest only the blocks can be counted, all as unreferenced.
        stats.errors.extend(store.without_manifest().map(|error| error.to_string()));
    }
    let view = match report.manifest {
        Some(_) => StoreView::new(&mut *store.backend),
        None => Ok(StoreView::of_blocks(&mut *store.backend)),
    };
    let epoch = match view {
        Ok(mut view) => {
            let image = newest_checkpoint(&mut view, &mut stats.errors);
            stats.count(&mut view, &image, &report, path);
            Some(image.epoch.0).filter(|epoch| *epoch > 0)
        }
        Err(error) => return Err(store.failure(&error)),
    };
    let checkpoint = match epoch {
        Some(epoch) => format!("  checkpoint at the start of epoch {epoch}"),
        None => "  no checkpoint".to_owned(),
    };
    let mut text = format!("{}\n{checkpoint}\n{}", store.heading(&report), stats.as_text());
    for error in &stats.errors {
        text += &format!("\n  not counted: {error}");
    }
    let json = merge(merge(store.json_of(&report), json!({ "epoch": epoch })), stats.as_json());
    Ok(Outcome { json, text, is_sound: stats.errors.is_empty() })
}

/// Returns the newest readable checkpoint, or an empty one.
fn newest_checkpoint(view: &mut StoreView<'_>, errors: &mut Vec<String>) -> CheckpointImage {
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
            self.errors.push(format!("{} unreferenced blocks", report.blocks_left_out));
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
            table.row([lane, state.to_owned(), epoch, tally.records.to_string(), BinaryBytes(tally.bytes).to_string()]);
        }
        if self.local.records > 0 {
            let (records, size) = (self.local.records.to_string(), BinaryBytes(self.local.bytes).to_string());
            table.row(["(local log)".to_owned(), "checkpoint".to_owned(), "-".to_owned(), records, size]);
        }
        let mut lines = vec![table.to_string()];
        lines.push(match self.is_known {
            true => format!("  needed       {} records, {}", self.needed.records, BinaryBytes(self.needed.bytes)),
            false => "  needed       unknown: no valid manifest slot".to_owned(),
        });
        if self.disk_bytes > 0 {
            let (raw, disk) = (BinaryBytes(self.raw_bytes), BinaryBytes(self.disk_bytes));
            lines.push(format!("  compression  {raw} of records in {disk} on disk (ratio {:.2})", self.ratio()));
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

/// Returns the range of sizes with this bit length.
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
    fn every_size_is_in_the_bucket_of_its_bit_length() {
        for bytes in [0, 1, 2, 3, 4, 1023, 1024, u64::MAX] {
            let (from, to) = bucket(u64::BITS - bytes.leading_zeros());
            assert!((from..=to).contains(&bytes), "{bytes} is not in {from}-{to}");
        }
    }
}
