//! `counterfoil log dump`: prints a store's records.

mod arguments;
mod local;
mod row;

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use counterfoil::Ssn;
use counterfoil_log_io::{Block, BlockBuffer, CheckpointImage, LOCAL, LocalImage, StoreError, StoreView};
use serde_json::json;

use super::lanes::{Lane, State};
use super::output::{DumpError, Output};
use super::stores::{OpenedStore, find, merge, owner};
use crate::Failure;

pub(super) use arguments::DumpArguments;

pub(super) fn run(arguments: &DumpArguments) -> Result<ExitCode, Failure> {
    let found = find(&arguments.store.dir)?;
    let mut dump =
        Dump { arguments, output: Output::new(), left: arguments.limit.unwrap_or(u64::MAX), errors: Vec::new() };
    match dump.stores(&found.dirs, found.is_job) {
        Ok(is_whole) => Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(1) }),
        Err(DumpError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(DumpError::Output(error)) => Err(Failure::failed(format!("standard output: {error}"))),
        Err(DumpError::Failed(failure)) => Err(failure),
    }
}

/// A dump in progress.
struct Dump<'a> {
    arguments: &'a DumpArguments,
    output: Output,
    /// Remaining number of records to print.
    left: u64,
    /// Read errors in the current store.
    errors: Vec<String>,
}

/// A block to print and, if a checkpoint refers to it, its lane and block indices there.
struct Planned {
    block: Block,
    place: Option<(usize, usize)>,
}

impl Dump<'_> {
    /// Prints every store; returns `true` if all requested records could be read.
    fn stores(&mut self, dirs: &[impl AsRef<Path>], is_job: bool) -> Result<bool, DumpError> {
        let json = self.arguments.store.json;
        let mut is_whole = true;
        if json && is_job {
            self.output.text("[")?;
        }
        for (index, dir) in dirs.iter().enumerate() {
            if json && index > 0 {
                self.output.text(",")?;
            }
            match self.store(dir.as_ref()) {
                Err(DumpError::Failed(failure)) if is_job => {
                    is_whole = false;
                    self.output.flush()?;
                    eprintln!("error: {failure}");
                    if json {
                        self.output.json(&json!({ "dir": dir.as_ref(), "error": failure.to_string() }))?;
                    }
                }
                store => store?,
            }
            is_whole &= self.errors.is_empty();
            self.errors.clear();
        }
        if json {
            self.output.line(if is_job { "]" } else { "" })?;
        }
        self.output.flush()?;
        Ok(is_whole)
    }

    fn store(&mut self, dir: &Path) -> Result<(), DumpError> {
        let mut store = OpenedStore::new(dir)?;
        let unreferenced = if self.arguments.all { Some(store.scan()?) } else { None };
        // Without a valid manifest no checkpoint is known to be valid; the blocks alone can be printed, with `--all`.
        let is_blocks = unreferenced.as_ref().is_some_and(|report| report.manifest.is_none());
        if let Some(error) = store.without_manifest() {
            if !is_blocks || self.arguments.epoch().is_some() {
                return Err(store.failure(&error).into());
            }
            self.errors.push(error.to_string());
        }
        let mut view = if is_blocks {
            StoreView::of_blocks(&mut *store.backend)
        } else {
            match StoreView::new(&mut *store.backend) {
                Ok(view) => view,
                Err(error) => return Err(store.failure(&error).into()),
            }
        };
        let manifest = view.manifest();
        if let (Some(manifest), Some(peer)) = (&manifest, self.arguments.peer)
            && peer >= manifest.ranks
        {
            let (rank, ranks, path) = (manifest.rank, manifest.ranks, dir.display());
            let advice = if peer == LOCAL.0 { "; --local shows the local log" } else { "" };
            let what = format!(
                "{path}: {rank} of {ranks} has no lane to rank {peer}: lanes go to ranks 0 to {}{advice}",
                ranks - 1
            );
            return Err(Failure::failed(what).into());
        }
        let checkpoints = view.checkpoints();
        let epoch = self.arguments.epoch().or(checkpoints.last().copied());
        let image = match epoch.map(|epoch| view.image(epoch)).transpose() {
            Ok(image) => image.unwrap_or_default(),
            Err(error @ StoreError::NoCheckpoint { .. }) => {
                let kept: Vec<String> = checkpoints.iter().map(|epoch| epoch.0.to_string()).collect();
                let kept = if kept.is_empty() { "none".to_owned() } else { kept.join(", ") };
                return Err(Failure::failed(format!("{}: {error}; kept: {kept}", dir.display())).into());
            }
            Err(error) if unreferenced.is_some() => {
                self.errors.push(error.to_string());
                CheckpointImage::default()
            }
            Err(error) => {
                let advice = "--epoch shows another checkpoint, --all the records that no checkpoint refers to";
                return Err(Failure::failed(format!("{}: {error}; {advice}", dir.display())).into());
            }
        };
        drop(view);
        let lanes: Vec<Lane<'_>> = image.lanes.iter().map(Lane::new).collect();
        let mut plan = self.plan(&lanes);
        if let Some(report) = unreferenced {
            let known: HashSet<Block> = plan.iter().map(|planned| planned.block).collect();
            let blocks = report.segments.iter().flat_map(|segment| &segment.blocks).map(|of| of.block);
            let others = blocks.filter(|block| !known.contains(block) && self.arguments.wants(block));
            let known: HashSet<Block> = image.lanes.iter().flat_map(|lane| lane.blocks.iter().copied()).collect();
            plan.extend(others.filter(|block| !known.contains(block)).map(|block| Planned { block, place: None }));
            // Each lane's blocks come first, in order.
            plan.sort_by_key(|planned| (planned.block.lane, planned.place.is_none()));
            if report.blocks_left_out > 0 {
                self.errors.push(format!("{} unreferenced blocks are not shown", report.blocks_left_out));
            }
        }
        let manifest_ref = manifest.as_ref();
        let json = merge(
            store.json(manifest_ref.map(|manifest| manifest.rank.0), manifest_ref.map(|manifest| manifest.ranks)),
            json!({ "epoch": epoch.map(|epoch| epoch.0), "checkpoints": checkpoints.iter().map(|epoch| epoch.0).collect::<Vec<_>>() }),
        );
        let heading = store.heading_of(&owner(manifest_ref));
        let checkpoint = match epoch {
            Some(epoch) => format!("  checkpoint at the start of {epoch}"),
            None if self.arguments.all => "  no checkpoint".to_owned(),
            None => "  no checkpoint; --all shows unreferenced records".to_owned(),
        };
        self.begin(&json, &format!("{heading}\n{checkpoint}"))?;
        self.records(&mut store, &lanes, &plan)?;
        if self.arguments.wants_local() {
            let is_newest = epoch == checkpoints.last().copied();
            let mut entries = image.local;
            if let Some(manifest) = &manifest {
                let problem;
                (entries, problem) = local::entries(&store, manifest, entries, is_newest);
                self.errors.extend(problem);
            }
            self.local(&entries)?;
        }
        self.end()
    }

    /// Returns the requested blocks referenced by the checkpoint.
    fn plan(&self, lanes: &[Lane<'_>]) -> Vec<Planned> {
        let mut plan = Vec::new();
        for (number, lane) in lanes.iter().enumerate() {
            let wanted = lane.blocks().filter(|(_, block)| self.arguments.wants(block));
            plan.extend(wanted.map(|(index, block)| Planned { block: *block, place: Some((number, index)) }));
        }
        plan
    }

    fn begin(&mut self, json: &serde_json::Value, heading: &str) -> Result<(), DumpError> {
        if !self.arguments.store.json {
            return self.output.line(heading);
        }
        let text = json.to_string();
        self.output.text(text.strip_suffix('}').unwrap_or(&text))?;
        self.output.text(",\"records\":[")
    }

    fn records(&mut self, store: &mut OpenedStore, lanes: &[Lane<'_>], plan: &[Planned]) -> Result<(), DumpError> {
        let (mut shown_lane, mut is_first) = (None, true);
        let mut buffer = BlockBuffer::default();
        let mut view = StoreView::of_blocks(&mut *store.backend);
        if let (true, Some(peer), false) = (plan.is_empty(), self.arguments.peer, self.arguments.store.json) {
            self.output.line(&format!("  lane to rank {peer}: no matching records"))?;
        }
        for Planned { block, place } in plan {
            if self.left == 0 {
                break;
            }
            if shown_lane != Some(block.lane) && !self.arguments.store.json {
                shown_lane = Some(block.lane);
                let lane = lanes.iter().find(|lane| lane.image.peer == block.lane);
                self.output.line(&row::lane_heading(block.lane, lane))?;
            }
            if let Err(error) = view.read(block, &mut buffer) {
                let (first, last) = (block.first.0, block.last.0);
                let lane = row::lane_name(block.lane);
                self.errors.push(format!("SSN {first} to {last} of {lane} can't be read: {error}"));
                continue;
            }
            for record in buffer.records().filter(|record| self.arguments.wants_ssn(record.ssn())) {
                let lane = place.and_then(|(number, index)| lanes.get(number).map(|lane| (lane, index)));
                let state = lane.map_or(State::Unreferenced, |(lane, index)| lane.state(index, record.ssn()));
                if state == State::Superseded && !self.arguments.all {
                    continue;
                }
                if self.left == 0 {
                    break;
                }
                self.left -= 1;
                if self.arguments.store.json {
                    self.output.text(if is_first { "" } else { "," })?;
                    self.output.json(&row::as_json(block.lane, state, &record, self.arguments))?;
                } else {
                    self.output.line(&row::as_text(state, &record, self.arguments))?;
                }
                is_first = false;
            }
        }
        Ok(())
    }

    fn local(&mut self, entries: &[LocalImage]) -> Result<(), DumpError> {
        let json = self.arguments.store.json;
        if json {
            self.output.text("],\"local\":[")?;
        } else if !entries.is_empty() {
            self.output.line(&row::lane_heading(LOCAL, None))?;
        }
        let wanted = entries.iter().filter(|entry| self.arguments.wants_ssn(entry.ssn));
        for (index, entry) in wanted.enumerate() {
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            if json {
                self.output.text(if index == 0 { "" } else { "," })?;
                self.output.json(&row::entry_as_json(entry, self.arguments))?;
            } else {
                self.output.line(&row::entry_as_text(entry, self.arguments))?;
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), DumpError> {
        if self.arguments.store.json {
            let errors = json!(self.errors).to_string();
            return self.output.text(&format!("],\"limit_reached\":{},\"errors\":{errors}}}", self.left == 0));
        }
        if self.left == 0 {
            self.output.line("  ... --limit reached")?;
        }
        self.output.flush()?;
        for error in &self.errors {
            eprintln!("error: {error}");
        }
        Ok(())
    }
}

impl DumpArguments {
    fn wants(&self, block: &Block) -> bool {
        let (from, to) = self.ssns();
        let is_lane = self.peer.is_none_or(|peer| peer == block.lane.0) && (!self.local || block.lane == LOCAL);
        is_lane && block.first <= to && block.last >= from
    }

    fn wants_ssn(&self, ssn: Ssn) -> bool {
        let (from, to) = self.ssns();
        (from..=to).contains(&ssn)
    }

    fn wants_local(&self) -> bool {
        self.peer.is_none()
    }
}
