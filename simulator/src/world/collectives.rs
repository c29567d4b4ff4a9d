//! Collective calls, and the local log.

use counterfoil_log_core::{Epoch, Rank};
use counterfoil_protocols::api::{
    CollectiveCall, CollectiveClass, CollectivePlan, EntryKey, EntryKind, Protocol, Scope,
};

use super::World;
use crate::application::Payload;
use crate::call::Contribution;
use crate::network::Frame;
use crate::process::{Entry, InCall, Process};
use crate::recording::Activity;
use crate::trace::Event;
use crate::violation::ViolationKind;

impl World<'_> {
    /// Makes a step in a collective call: begins or completes it.
    pub(super) fn step_in_call(
        &mut self,
        rank: u32,
        process: &mut Process,
        call: CollectiveCall,
    ) -> Result<(), ViolationKind> {
        match process.in_call {
            InCall::Held => Ok(()),
            InCall::Not => self.ask_plan(rank, process, call),
            InCall::Answered(entry) => {
                let result = match entry {
                    Some(entry) => self.recorded(rank, entry)?,
                    None => Payload::default(),
                };
                self.ask(rank, process, |machine| machine.handle_collective_completed(&call))?;
                self.coverage.calls_recorded += u64::from(entry.is_some());
                self.coverage.calls_skipped += u64::from(entry.is_none());
                self.record(Activity::Completed { rank, number: call.number, natively: false });
                self.end_call(rank, process, call, result)
            }
            InCall::Native { mut keep, exchanges, piggybacks } => {
                let Some((result, words)) = self.calls.outcome(call.class, call.number, rank) else { return Ok(()) };
                if exchanges {
                    keep = self.ask(rank, process, |machine| machine.handle_collective_words(&call, &words))?;
                    process.in_call = InCall::Native { keep, exchanges: false, piggybacks };
                    if !piggybacks {
                        return Ok(());
                    }
                }
                if let Some(entry) = keep {
                    self.keep_entry(rank, entry, Entry::Bytes(result.to_bytes()));
                    if self.is_struck(rank) {
                        return Ok(());
                    }
                }
                self.ask(rank, process, |machine| machine.handle_collective_completed(&call))?;
                self.coverage.calls += 1;
                self.coverage.calls_straddled += u64::from(self.calls.straddles(call.class, call.number, rank));
                self.coverage.calls_with_dummies += u64::from(!process.again.is_empty());
                self.record(Activity::Completed { rank, number: call.number, natively: true });
                self.end_call(rank, process, call, result)
            }
        }
    }

    /// Asks the rule for a plan.
    fn ask_plan(&mut self, rank: u32, process: &mut Process, call: CollectiveCall) -> Result<(), ViolationKind> {
        if !process.again.is_empty()
            && call.class != CollectiveClass::Barrier
            && call.class.flows(Rank(rank), Rank(rank))
        {
            return self.impossible(rank, format!("dummy arguments for {call:?}"));
        }
        let plan = self.ask(rank, process, |machine| machine.handle_collective(&call))?;
        let payload = process.again.is_empty().then(|| process.image.application.payload(rank));
        self.log(|| format!("    call {}: {plan:?}", call.number));
        let begun = matches!(process.in_call, InCall::Native { .. });
        let epoch = process.rank().map_or(Epoch::FIRST, Protocol::epoch);
        process.in_call = match plan {
            CollectivePlan::AsMessages => return self.impossible(rank, format!("{call:?} as messages")),
            CollectivePlan::Hold => InCall::Held,
            CollectivePlan::Recorded(entry) => InCall::Answered(Some(entry)),
            CollectivePlan::Skip => InCall::Answered(None),
            CollectivePlan::Native { .. } | CollectivePlan::Exchange { .. } | CollectivePlan::Piggyback { .. }
                if begun =>
            {
                process.in_call
            }
            CollectivePlan::Native { keep } => {
                self.begin_call(rank, process, call, Contribution { payload, word: None, epoch });
                InCall::Native { keep, exchanges: false, piggybacks: false }
            }
            CollectivePlan::Exchange { word, scope } => {
                self.begin_call(rank, process, call, Contribution { payload, word: Some((word, scope)), epoch });
                InCall::Native { keep: None, exchanges: true, piggybacks: false }
            }
            CollectivePlan::Piggyback { word } => {
                let word = Some((word, Scope::AlongData));
                self.begin_call(rank, process, call, Contribution { payload, word, epoch });
                InCall::Native { keep: None, exchanges: true, piggybacks: true }
            }
        };
        Ok(())
    }

    fn begin_call(&mut self, rank: u32, process: &Process, call: CollectiveCall, contribution: Contribution) {
        self.coverage.calls_again += u64::from(process.call_failed);
        self.calls.begin(call.number, rank, contribution);
        if let Some(are_beyond) = self.calls.later_epochs(call.number) {
            self.coverage.splits_at_lines.count(call.class, &are_beyond);
        }
        // Others may have waited for it.
        self.touched = u64::MAX;
    }

    fn end_call(
        &mut self,
        rank: u32,
        process: &mut Process,
        call: CollectiveCall,
        result: Payload,
    ) -> Result<(), ViolationKind> {
        process.in_call = InCall::Not;
        process.call_failed = false;
        if process.again.pop_front().is_some() {
            return Ok(());
        }
        process.image.application.complete(&self.program, rank, result, self.schedule.shape.ordered);
        self.note(Event::Completed { rank, number: call.number, result })
    }

    /// Asks the rule again about a held or native call.
    pub(super) fn resume_call(&mut self, rank: u32, process: &mut Process) -> Result<(), ViolationKind> {
        let waits = matches!(process.in_call, InCall::Held | InCall::Native { .. });
        match process.call(&self.program, rank).filter(|_| waits) {
            Some(call) => self.ask_plan(rank, process, call),
            None => Ok(()),
        }
    }

    /// Returns the number of calls completed by each rank; `None` for a dead one.
    fn calls_made(&self) -> Vec<Option<u64>> {
        let ranks = &self.nodes[..self.program.ranks() as usize];
        ranks.iter().map(|node| Some(node.process.as_ref()?.image.application.calls())).collect()
    }

    /// Counts the calls completed by some living ranks and not by others, when a rank's process is replaced.
    pub(super) fn count_straddled(&mut self, lost: u32) {
        let made = self.calls_made();
        let (Some(&fewest), Some(&most)) = (made.iter().flatten().min(), made.iter().flatten().max()) else { return };
        for number in fewest..most {
            let coverage = &mut self.coverage;
            match self.program.calls[number as usize] {
                CollectiveClass::FromRoot(root) => {
                    coverage.calls_straddled_from_root += 1;
                    coverage.calls_straddled_root_lost += u64::from(root == Rank(lost));
                }
                CollectiveClass::AllToAll => coverage.calls_straddled_all_to_all += 1,
                CollectiveClass::Barrier => coverage.calls_straddled_barriers += 1,
                CollectiveClass::ToRoot(_) => {}
            }
        }
    }

    /// Counts the calls completed by some ranks and not by others, while all of them live.
    pub(super) fn count_splits(&mut self) {
        let Some(made) = self.calls_made().into_iter().collect::<Option<Vec<u64>>>() else { return };
        let (Some(&fewest), Some(&most)) = (made.iter().min(), made.iter().max()) else { return };
        for number in fewest..most {
            let are_beyond: Vec<bool> = made.iter().map(|calls| *calls > number).collect();
            self.coverage.splits_at_faults.count(self.program.calls[number as usize], &are_beyond);
        }
    }

    /// Ends all native calls: a participant is replaced, or rolls back.
    ///
    /// `but`: a rank that can't be told.
    pub(super) fn fail_calls(&mut self, but: Option<u32>) -> Result<(), ViolationKind> {
        self.calls.reset();
        for rank in 0..self.program.ranks() {
            if Some(rank) == but || !self.lives(rank) {
                continue;
            }
            self.with(rank, |world, process| {
                let Some(call) = process.call(&world.program, rank) else { return Ok(()) };
                if !matches!(process.in_call, InCall::Native { .. }) {
                    return Ok(());
                }
                process.in_call = InCall::Not;
                process.call_failed = true;
                world.coverage.calls_failed += 1;
                world.ask(rank, process, |machine| machine.handle_collective_failed(&call))
            })?;
        }
        Ok(())
    }

    /// Keeps an entry in the local log, which survives the process.
    pub(super) fn keep_entry(&mut self, rank: u32, key: EntryKey, entry: Entry) {
        self.nodes[rank as usize].disk.entries.insert(key, entry);
    }

    fn recorded(&self, rank: u32, entry: EntryKey) -> Result<Payload, ViolationKind> {
        let recorded = match self.nodes[rank as usize].disk.entries.get(&entry) {
            Some(Entry::Bytes(bytes)) => Payload::from_bytes(bytes),
            Some(Entry::Message(_)) | None => None,
        };
        recorded.map_or_else(|| self.impossible(rank, format!("the result of {entry:?}, which isn't kept")), Ok)
    }

    /// Sends a copy of an entry to a peer.
    pub(super) fn send_entry(
        &mut self,
        node: u32,
        process: &Process,
        to: Rank,
        entry: EntryKey,
    ) -> Result<(), ViolationKind> {
        self.check_peer(node, to)?;
        let to = to.0;
        let Some(Entry::Bytes(bytes)) = self.nodes[node as usize].disk.entries.get(&entry).cloned() else {
            return self.impossible(node, format!("{entry:?}, which isn't kept"));
        };
        let frame = Frame::Entry(entry, bytes);
        self.coverage.entries_sent += 1;
        if !self.rule.properties.rolls_back_survivors || self.has_met(process, to) {
            self.network.send(node, to, frame);
        }
        Ok(())
    }

    /// Handles a copy of a peer's entry.
    pub(super) fn handle_entry(
        &mut self,
        node: u32,
        process: &mut Process,
        from: u32,
        entry: EntryKey,
        bytes: Vec<u8>,
    ) -> Result<(), ViolationKind> {
        let keep = self.ask(node, process, |machine| machine.handle_entry(Rank(from), entry, &bytes))?;
        if keep {
            self.keep_entry(node, entry, Entry::Bytes(bytes));
        }
        Ok(())
    }

    /// Presents the local log's entries to a restored rank's rule, notes first, and to the application the messages
    /// among them.
    pub(super) fn recover_entries(&mut self, rank: u32, process: &mut Process) -> Result<(), ViolationKind> {
        let mut entries: Vec<(EntryKey, Entry)> =
            self.nodes[rank as usize].disk.entries.iter().map(|(key, entry)| (*key, entry.clone())).collect();
        entries.sort_by_key(|(key, _)| key.kind != EntryKind::Note);
        for (key, entry) in entries {
            match entry {
                Entry::Bytes(bytes) => {
                    self.ask(rank, process, |machine| machine.handle_recovered_entry(key, &bytes))?;
                }
                Entry::Message(record) => {
                    let bytes = record.header.as_bytes();
                    if self.ask(rank, process, |machine| machine.handle_recovered_entry(key, bytes))? {
                        process.image.pending.push(record);
                        let (from, ssn, sent_in) =
                            (record.header.source().0, record.header.ssn(), record.header.epoch());
                        let present = process.rank().map_or(sent_in, Protocol::epoch);
                        self.coverage.messages_presented += 1;
                        self.coverage.messages_presented_late += u64::from(present.0 > sent_in.0 + 1);
                        self.note(Event::Accepted { rank, from, ssn, sent_in, marked: false })?;
                    }
                }
            }
        }
        Ok(())
    }
}
