//! `counterfoil log dump`: the records of a store, one by one.

mod arguments;
mod local;
mod row;

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use counterfoil::Ssn;
use counterfoil::store::{Block, BlockBuffer, CheckpointImage, LOCAL, StoreError, StoreView};
use serde_json::json;

use super::lanes::{Lane, State};
use super::out::{Out, Stop};
use super::stores::{Opened, find, whose, with};
use crate::Failure;

pub(super) use arguments::DumpArguments;

pub(super) fn run(arguments: &DumpArguments) -> Result<ExitCode, Failure> {
    let found = find(&arguments.place.dir)?;
    let mut dump = Dump { arguments, out: Out::new(), left: arguments.limit.unwrap_or(u64::MAX), errors: Vec::new() };
    match dump.stores(&found.dirs, found.is_job) {
        Ok(is_whole) => Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(1) }),
        Err(Stop::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(Stop::Output(error)) => Err(Failure::failed(format!("standard output: {error}"))),
        Err(Stop::Failed(failure)) => Err(failure),
    }
}

/// A dump on its way to standard output.
struct Dump<'a> {
    arguments: &'a DumpArguments,
    out: Out,
    /// Records that may still be shown.
    left: u64,
    /// What couldn't be read in the store at hand.
    errors: Vec<String>,
}

/// A block to be shown: its lane's and its own place in the checkpoint, where it has one.
struct Planned {
    block: Block,
    place: Option<(usize, usize)>,
}

impl Dump<'_> {
    /// Shows each store; says whether all that was asked for could be read.
    fn stores(&mut self, dirs: &[impl AsRef<Path>], is_job: bool) -> Result<bool, Stop> {
        let json = self.arguments.place.json;
        let mut is_whole = true;
        if json && is_job {
            self.out.text("[")?;
        }
        for (index, dir) in dirs.iter().enumerate() {
            if json && index > 0 {
                self.out.text(",")?;
            }
            match self.store(dir.as_ref()) {
                Err(Stop::Failed(failure)) if is_job => {
                    is_whole = false;
                    self.out.flush()?;
                    eprintln!("error: {failure}");
                    if json {
                        self.out.json(&json!({ "dir": dir.as_ref(), "error": failure.to_string() }))?;
                    }
                }
                store => store?,
            }
            is_whole &= self.errors.is_empty();
            self.errors.clear();
        }
        if json {
            self.out.line(if is_job { "]" } else { "" })?;
        }
        self.out.flush()?;
        Ok(is_whole)
    }

    fn store(&mut self, dir: &Path) -> Result<(), Stop> {
        let mut store = Opened::new(dir)?;
        let unreferenced = if self.arguments.all { Some(store.scan()?) } else { None };
        // Where nothing says which checkpoint counts, the blocks alone can be shown, if they are asked for.
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
        let kept = view.checkpoints();
        let epoch = self.arguments.epoch().or(kept.last().copied());
        let image = match epoch.map(|epoch| view.image(epoch)).transpose() {
            Ok(image) => image.unwrap_or_default(),
            Err(error @ StoreError::NoCheckpoint { .. }) => {
                let kept: Vec<String> = kept.iter().map(|epoch| epoch.0.to_string()).collect();
                let kept = if kept.is_empty() { "none".to_owned() } else { kept.join(", ") };
                return Err(Failure::failed(format!("{}: {error}; kept: {kept}", dir.display())).into());
            }
            Err(error) if unreferenced.is_some() => {
                self.errors.push(error.to_string());
                CheckpointImage::default()
            }
            Err(error) => {
                let advice = "--epoch shows another checkpoint, --all what no checkpoint refers to";
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
            // The lanes' own blocks stay in their order, and in front.
            plan.sort_by_key(|planned| (planned.block.lane, planned.place.is_none()));
            if report.blocks_left_out > 0 {
                self.errors
                    .push(format!("{} blocks that no checkpoint refers to are left out", report.blocks_left_out));
            }
        }
        let of = manifest.as_ref();
        let json = with(
            store.json(of.map(|of| of.rank.0), of.map(|of| of.ranks)),
            json!({ "epoch": epoch.map(|epoch| epoch.0), "checkpoints": kept.iter().map(|kept| kept.0).collect::<Vec<_>>() }),
        );
        let heading = store.heading_of(&whose(of));
        let of = match epoch {
            Some(epoch) => format!("  checkpoint that begins {epoch}"),
            None if self.arguments.all => "  no checkpoint".to_owned(),
            None => "  no checkpoint; --all shows what none refers to".to_owned(),
        };
        self.begin(&json, &format!("{heading}\n{of}"))?;
        self.records(&mut store, &lanes, &plan)?;
        if self.arguments.wants_local() {
            let is_newest = epoch == kept.last().copied();
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

    /// What the checkpoint refers to, of what was asked for.
    fn plan(&self, lanes: &[Lane<'_>]) -> Vec<Planned> {
        let mut plan = Vec::new();
        for (number, lane) in lanes.iter().enumerate() {
            let wanted = lane.blocks().filter(|(_, block)| self.arguments.wants(block));
            plan.extend(wanted.map(|(index, block)| Planned { block: *block, place: Some((number, index)) }));
        }
        plan
    }

    fn begin(&mut self, json: &serde_json::Value, heading: &str) -> Result<(), Stop> {
        if !self.arguments.place.json {
            return self.out.line(heading);
        }
        let text = json.to_string();
        self.out.text(text.strip_suffix('}').unwrap_or(&text))?;
        self.out.text(",\"records\":[")
    }

    fn records(&mut self, store: &mut Opened, lanes: &[Lane<'_>], plan: &[Planned]) -> Result<(), Stop> {
        let (mut shown_lane, mut is_first) = (None, true);
        let mut buffer = BlockBuffer::default();
        let mut view = StoreView::of_blocks(&mut *store.backend);
        if let (true, Some(peer), false) = (plan.is_empty(), self.arguments.peer, self.arguments.place.json) {
            self.out.line(&format!("  lane to rank {peer}: no record of those that were asked for"))?;
        }
        for Planned { block, place } in plan {
            if self.left == 0 {
                break;
            }
            if shown_lane != Some(block.lane) && !self.arguments.place.json {
                shown_lane = Some(block.lane);
                let lane = lanes.iter().find(|lane| lane.image.peer == block.lane);
                self.out.line(&row::lane_heading(block.lane, lane))?;
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
                if self.arguments.place.json {
                    self.out.text(if is_first { "" } else { "," })?;
                    self.out.json(&row::as_json(block.lane, state, &record, self.arguments))?;
                } else {
                    self.out.line(&row::as_text(state, &record, self.arguments))?;
                }
                is_first = false;
            }
        }
        Ok(())
    }

    fn local(&mut self, entries: &[counterfoil::store::LocalImage]) -> Result<(), Stop> {
        let json = self.arguments.place.json;
        if json {
            self.out.text("],\"local\":[")?;
        } else if !entries.is_empty() {
            self.out.line(&row::lane_heading(LOCAL, None))?;
        }
        let wanted = entries.iter().filter(|entry| self.arguments.wants_ssn(entry.ssn));
        for (index, entry) in wanted.enumerate() {
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            if json {
                self.out.text(if index == 0 { "" } else { "," })?;
                self.out.json(&row::entry_as_json(entry, self.arguments))?;
            } else {
                self.out.line(&row::entry_as_text(entry, self.arguments))?;
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Stop> {
        if self.arguments.place.json {
            let errors = json!(self.errors).to_string();
            return self.out.text(&format!("],\"limit_reached\":{},\"errors\":{errors}}}", self.left == 0));
        }
        if self.left == 0 {
            self.out.line("  ... the --limit is reached")?;
        }
        self.out.flush()?;
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
