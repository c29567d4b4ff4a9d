//! Carries out each kind of transition.

use counterfoil_ack_piggyback::{Ack, Flags, WireHeader};
use counterfoil_log_core::{Determinant, Envelope, Rank, Ssn};
use counterfoil_protocols::api::{ChoiceRecord, DiscardReason, EntryKey, EntryKind, Hello, Incoming, Transmission};

use super::World;
use crate::application::{NextOp, Taken};
use crate::chooser::Transition;
use crate::network::{Frame, Record};
use crate::process::{Checkpoint, Lane, Process, Slot};
use crate::protocol::{Actions, HelloOutcome, SimProtocol};
use crate::recording::{Activity, Dropped};
use crate::schedule::Canary;
use crate::trace::Event;
use crate::violation::ViolationKind;

impl<P: SimProtocol> World<'_, P> {
    pub(super) fn apply(&mut self, transition: Transition) -> Result<(), ViolationKind> {
        self.log(|| format!("{transition:?}"));
        // A replacement's start, and the simulator's own order to collect, have no part that a death may leave undone.
        let whole = matches!(transition, Transition::Start { .. } | Transition::Collect { .. });
        self.effects = (!whole).then_some(0);
        let applied = self.carry_out(transition);
        self.effects = None;
        applied
    }

    fn carry_out(&mut self, transition: Transition) -> Result<(), ViolationKind> {
        match transition {
            Transition::Start { node } => self.start(node),
            Transition::Notice { node, dead } => self.report_death(node, dead),
            Transition::Arrive { from, to } => match self.network.arrive(from, to) {
                Some(frame @ Frame::Hello(_)) if P::RECONNECTS => {
                    self.network.close_older(from, to);
                    self.with(to, |_, process, _| {
                        process.held[from as usize].clear();
                        Ok(())
                    })?;
                    self.arrive(from, to, frame).map(drop)
                }
                Some(frame) => self.arrive(from, to, frame).map(drop),
                None => Ok(()),
            },
            Transition::ArriveLate { from, to } => {
                let Some((incarnation, frame)) = self.network.arrive_late(from, to) else { return Ok(()) };
                if self.arrive(from, to, frame)? == HelloOutcome::Dead {
                    self.network.close_late(from, to, incarnation);
                }
                Ok(())
            }
            Transition::Transmit { from, to } => self.transmit(from, to),
            Transition::Step { node } => self.step(node),
            Transition::Durable { node } => self.make_durable(node),
            Transition::Collect { node } => {
                self.collections += 1;
                self.collect(node, Some(self.collections))
            }
        }
    }

    fn arrive(&mut self, from: u32, to: u32, mut frame: Frame) -> Result<HelloOutcome, ViolationKind> {
        self.damages.apply(&mut frame);
        let party = self.party(from);
        let heard = if P::RECONNECTS { self.receipts_in(from, to, &frame) } else { None };
        self.with(to, |world, process, actions| {
            if !matches!(frame, Frame::Hello(_)) {
                heard.map_or(Ok(()), |event| world.note(event))?;
            }
            match frame {
                Frame::Hello(bytes) => {
                    let greeting = process.protocol.on_hello(party, &bytes, actions);
                    let greeting = world.accept(to, greeting)?;
                    if greeting == HelloOutcome::Accepted {
                        heard.map_or(Ok(()), |event| world.note(event))?;
                    }
                    world.coverage.dead_hellos += u64::from(greeting == HelloOutcome::Dead);
                    return Ok(greeting);
                }
                Frame::Control(bytes) => {
                    let heard = process.protocol.on_control(party, &bytes, actions);
                    world.accept(to, heard)?;
                }
                Frame::Message(record) if process.held[from as usize].is_empty() => {
                    world.judge(to, process, record, actions)?;
                }
                Frame::Message(record) => {
                    let heard = process.protocol.on_deferred(&record.header, actions);
                    world.accept(to, heard)?;
                    process.held[from as usize].push_back(record);
                }
            }
            Ok(HelloOutcome::Accepted)
        })
    }

    /// Returns what a frame tells its receiver of receipts, if both are ranks and it tells something.
    fn receipts_in(&self, from: u32, to: u32, frame: &Frame) -> Option<Event> {
        if from.max(to) >= self.program.ranks() {
            return None;
        }
        let header = match frame {
            Frame::Hello(bytes) => {
                let Hello { incarnation, received, .. } = Hello::decode(bytes).ok()?;
                return Some(Event::HelloHeard { rank: to, peer: from, incarnation, upto: received.upto() });
            }
            Frame::Control(bytes) => WireHeader::split(bytes).ok()?.0,
            Frame::Message(record) => &record.header,
        };
        let (incarnation, Ack { ssn: upto, .. }) = (header.incarnation(), header.ack()?);
        Some(Event::AckHeard { rank: to, peer: from, incarnation, upto })
    }

    /// Presents a message to the protocol; returns `false` if it is held, as the last of its sender.
    pub(super) fn judge(
        &mut self,
        rank: u32,
        process: &mut Process<P>,
        record: Record,
        actions: &mut Actions,
    ) -> Result<bool, ViolationKind> {
        let verdict = process.protocol.on_arrival(&record.header, actions);
        let (from, ssn) = (record.header.source().0, record.header.ssn());
        let (number, transmitted) = (ssn.0, record.transmitted);
        let dropped = |why| Activity::Dropped { rank, from, number, transmitted, why };
        let (accepted, what) = match self.accept(rank, verdict)? {
            Incoming::Deliver { keep: None } => (true, None),
            Incoming::Deliver { keep: Some(EntryKey { kind: EntryKind::Delivery, number: sequence }) } => {
                let record = ChoiceRecord::new(Determinant { sequence, source: record.header.source(), ssn });
                self.nodes[rank as usize].disk.deliveries.insert(sequence, record);
                self.coverage.determinants += 1;
                (true, None)
            }
            Incoming::Deliver { keep: Some(entry) } => {
                return self.impossible(rank, format!("a local log for {entry:?}"));
            }
            Incoming::Hold => {
                self.coverage.held += 1;
                process.held[from as usize].push_back(record);
                return Ok(false);
            }
            Incoming::Discard(DiscardReason::Duplicate { .. }) => {
                self.coverage.duplicates += 1;
                (self.canary(Canary::DeliverDuplicate), Some(dropped(Dropped::Duplicate)))
            }
            Incoming::Discard(DiscardReason::DeadIncarnation { .. }) => {
                self.coverage.dead_messages += 1;
                (self.canary(Canary::DeliverDead), Some(dropped(Dropped::DeadIncarnation)))
            }
            Incoming::Discard(DiscardReason::Orphan { .. }) => {
                self.coverage.orphans_dropped += 1;
                (false, Some(dropped(Dropped::Orphan)))
            }
        };
        if accepted {
            process.image.pending.push(record);
            self.record(Activity::Received { rank, from, number, transmitted });
            let (sent_in, marked) = (record.header.epoch(), record.header.flags().contains(Flags::LOGGED));
            self.coverage.logged_replays += u64::from(marked);
            self.note(Event::Accepted { rank, from, ssn, sent_in, marked })?;
        } else if let Some(what) = what {
            self.record(what);
        }
        Ok(true)
    }

    fn transmit(&mut self, from: u32, to: u32) -> Result<(), ViolationKind> {
        self.with(from, |world, process, actions| {
            let Some(cursor) = &mut process.cursors[to as usize] else { return Ok(()) };
            let lane = &mut process.image.lanes[to as usize];
            let slot = lane.get(cursor.next).copied();
            if world.canary(Canary::DropRecord) && cursor.next.0 % 3 == 2 {
                lane.lose(cursor.next);
            }
            cursor.next = cursor.next.next();
            // Records freed since the replay began aren't needed; the oracles find those that a canary has lost.
            let Some(Slot::Kept(Record { mut header, payload, .. })) = slot else { return Ok(()) };
            // The process whose Hello came may be dead by now: then this goes into a connection without another end.
            let reaches = Some(cursor.incarnation) == world.incarnation(to);
            let refreshed = process.protocol.on_transmit(&mut header, actions);
            world.accept(from, refreshed)?;
            let again = header.flags().contains(Flags::REPLAYED);
            world.coverage.replayed += u64::from(again);
            world.record(Activity::Transmitted { from, to, number: header.ssn().0, marked: again });
            if reaches {
                let record = Record { header, payload, transmitted: world.event };
                world.network.send(from, to, Frame::Message(record));
            }
            Ok(())
        })
    }

    fn make_durable(&mut self, node: u32) -> Result<(), ViolationKind> {
        self.with(node, |world, process, actions| {
            let Some(saved) = process.writing.take() else { return Ok(()) };
            let epoch = saved.epoch;
            world.store(node, saved)?;
            if world.canary(Canary::DurableEarly) {
                return Ok(());
            }
            let told = process.protocol.on_durable(epoch, actions);
            world.accept(node, told)
        })
    }

    fn step(&mut self, rank: u32) -> Result<(), ViolationKind> {
        self.with(rank, |world, process, actions| {
            match process.image.application.next_op(&world.program, rank) {
                NextOp::Nothing => Ok(()),
                NextOp::Send { to, tag } => world.send(rank, to, tag, process, actions),
                NextOp::Receive { .. } | NextOp::Any(_) => world.take(rank, process),
                NextOp::Checkpoint => world.checkpoint(rank, process, actions),
            }?;
            let furthest = &mut world.nodes[rank as usize].furthest;
            *furthest = process.image.application.progress.max(*furthest);
            Ok(())
        })
    }

    fn send(
        &mut self,
        rank: u32,
        to: u32,
        tag: i32,
        process: &mut Process<P>,
        actions: &mut Actions,
    ) -> Result<(), ViolationKind> {
        let payload = process.image.application.payload(rank);
        // Length as reported to the protocol; some are large, and get their own acknowledgements.
        let len = if payload.content.is_multiple_of(4) { 4096 } else { 16 };
        let envelope = Envelope { source: Rank(rank), destination: Rank(to), tag, comm: 0, len };
        let outgoing = process.protocol.on_send(&envelope, actions);
        let outgoing = self.accept(rank, outgoing)?;
        // The resulting actions must not concern this record: it isn't committed yet.
        self.perform_all(rank, process, actions)?;
        if self.struck.is_some() {
            return Ok(());
        }
        let header = outgoing.header;
        let ssn = header.ssn();
        let lane = &mut process.image.lanes[to as usize];
        if ssn == lane.last().next() {
            lane.append(Slot::Kept(Record { header, payload, transmitted: 0 }));
        } else if ssn > lane.last() {
            return self.impossible(rank, format!("message {ssn} to {to} after {}", lane.last()));
        } else if let Some(Slot::Kept(before)) = lane.get(ssn)
            && before.payload != payload
        {
            return Err(ViolationKind::Repeat { rank, to, number: ssn.0 });
        }
        match outgoing.transmission {
            Transmission::Now => {}
            Transmission::Hold => {
                self.coverage.held += 1;
                process.held_from[to as usize].get_or_insert(ssn);
            }
            Transmission::Suppress => return self.impossible(rank, "a send that is suppressed".into()),
        }
        if !outgoing.keep_record {
            return self.impossible(rank, "a send that is not kept".into());
        }
        process.image.application.pass(&self.program, rank);
        self.coverage.sends += 1;
        self.note(Event::Sent { rank, to, ssn, payload, marked: header.flags().contains(Flags::LOGGED) })
    }

    fn take(&mut self, rank: u32, process: &mut Process<P>) -> Result<(), ViolationKind> {
        let Some(place) = process.find(&self.program, rank) else { return Ok(()) };
        let Record { header, payload, .. } = process.image.pending.remove(place);
        let (source, tag, ssn) = (header.source(), header.tag(), header.ssn());
        if let Some(choice) = process.end_choice() {
            let chosen = Determinant { sequence: choice.sequence, source, ssn };
            let record = process.protocol.on_chosen(chosen);
            let record = self.accept(rank, record)?;
            self.coverage.choices_forced += u64::from(choice.forced.is_some());
            self.coverage.choices += u64::from(record.is_some());
            if let Some(record) = record
                && !self.canary(Canary::ForgetChoices)
            {
                self.nodes[rank as usize].disk.choices.insert(record.sequence, record);
            }
        }
        let taken = Taken { source: source.0, tag, ssn, payload };
        process.image.application.take(&self.program, rank, taken, self.schedule.shape.ordered);
        self.note(Event::Taken { rank, from: source.0, tag, ssn, payload })
    }

    /// Begins a collection in the coordinator.
    pub(super) fn collect(&mut self, node: u32, number: Option<u32>) -> Result<(), ViolationKind> {
        self.with(node, |world, process, actions| {
            let begun = process.protocol.on_collect(number, actions);
            world.coverage.collections += u64::from(world.accept(node, begun)?);
            Ok(())
        })
    }

    fn checkpoint(&mut self, rank: u32, process: &mut Process<P>, actions: &mut Actions) -> Result<(), ViolationKind> {
        if !process.protocol.wants_checkpoint() {
            self.coverage.checkpoints_refused += 1;
            process.image.application.pass(&self.program, rank);
            return Ok(());
        }
        let snapshot = process.protocol.on_checkpoint(actions);
        let snapshot = self.accept(rank, snapshot)?;
        self.note(Event::Checkpointed { rank, epoch: snapshot.epoch })?;
        process.image.application.pass(&self.program, rank);
        let mut image = process.image.clone();
        if self.canary(Canary::ForgetPending) {
            image.pending.clear();
        }
        if self.canary(Canary::ForgetLog) {
            image.lanes.iter_mut().for_each(Lane::lose_all);
        }
        let epoch = snapshot.epoch;
        self.coverage.checkpoints_abandoned += u64::from(process.writing.is_some());
        process.writing = Some(Checkpoint { epoch, tables: snapshot.tables, image });
        if self.canary(Canary::DurableEarly) {
            let told = process.protocol.on_durable(epoch, actions);
            self.accept(rank, told)?;
        }
        Ok(())
    }

    /// Returns the last SSN of a lane.
    pub(super) fn last(process: &Process<P>, peer: u32) -> Ssn {
        process.image.lanes.get(peer as usize).map_or(Ssn::ZERO, |lane| lane.last())
    }
}
