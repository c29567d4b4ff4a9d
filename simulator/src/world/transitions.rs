//! Carries out each kind of transition.

use counterfoil_ack_piggyback::Flags;
use counterfoil_log_core::{Determinant, Envelope, Epoch, Rank, Ssn};
use counterfoil_protocols::api::{
    ChoiceRecord, Coordinator, DiscardReason, EntryKey, EntryKind, Floor, Incoming, Kept, Protocol, ProtocolError,
    Transmission,
};

use super::World;
use super::connections::HelloOutcome;
use crate::application::{NextOp, Taken};
use crate::canary::Canary;
use crate::chooser::Transition;
use crate::network::{Frame, Record};
use crate::process::{Checkpoint, Entry, InCall, Lane, Machine, Process, Slot};
use crate::random::{Random, mix};
use crate::recording::{Activity, Dropped};
use crate::trace::Event;
use crate::violation::ViolationKind;

impl World<'_> {
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
            Transition::Arrive { from, to } => match self.next_frame(from, to) {
                Some(frame @ Frame::Hello(_)) if self.rule.properties.rolls_back_survivors => {
                    self.network.close_older(from, to);
                    self.with(to, |_, process| {
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

    /// Takes the next frame to arrive on a connection: the first, or in a schedule with overtaking, a message able to
    /// overtake all before it.
    fn next_frame(&mut self, from: u32, to: u32) -> Option<Frame> {
        let able = if self.schedule.overtaking { self.network.able_to_overtake(from, to) } else { Vec::new() };
        let mut random = Random::new(self.event ^ self.schedule.shape.seed);
        let place = able.get(random.index(able.len())).copied().unwrap_or_default();
        self.coverage.overtaken += u64::from(place > 0);
        self.network.arrive(from, to, place)
    }

    fn arrive(&mut self, from: u32, to: u32, mut frame: Frame) -> Result<HelloOutcome, ViolationKind> {
        self.damages.apply(&mut frame);
        self.with(to, |world, process| {
            match frame {
                Frame::Hello(bytes) => {
                    let outcome = world.handle_hello(to, process, from, &bytes)?;
                    world.coverage.dead_hellos += u64::from(outcome == HelloOutcome::Dead);
                    return Ok(outcome);
                }
                Frame::Control(bytes) => world.handle_control(to, process, from, &bytes)?,
                Frame::Entry(entry, bytes) => world.handle_entry(to, process, from, entry, bytes)?,
                Frame::Message(record) => {
                    world.note_ack(to, from, &record.header)?;
                    if process.held[from as usize].is_empty() {
                        world.judge(to, process, record)?;
                    } else {
                        world.ask(to, process, |rank| rank.handle_deferred(&record.header))?;
                        process.held[from as usize].push_back(record);
                    }
                }
            }
            Ok(HelloOutcome::Accepted)
        })
    }

    /// Presents a message to the protocol; returns `false` if it is held, as the last from its sender.
    pub(super) fn judge(&mut self, rank: u32, process: &mut Process, record: Record) -> Result<bool, ViolationKind> {
        let verdict = self.ask(rank, process, |machine| machine.handle_message(&record.header))?;
        let (from, ssn) = (record.header.source().0, record.header.ssn());
        let (number, transmitted) = (ssn.0, record.transmitted);
        let dropped = |why| Activity::Dropped { rank, from, number, transmitted, why };
        let (accepted, what) = match verdict {
            Incoming::Deliver { keep: None } => (true, None),
            Incoming::Deliver { keep: Some(EntryKey { kind: EntryKind::Delivery, number: sequence }) } => {
                let record = ChoiceRecord::new(Determinant { sequence, source: record.header.source(), ssn });
                self.nodes[rank as usize].disk.deliveries.insert(sequence, record);
                self.coverage.determinants += 1;
                (true, None)
            }
            Incoming::Deliver { keep: Some(entry) } => {
                self.keep_entry(rank, entry, Entry::Message(record));
                self.coverage.messages_copied += 1;
                (true, None)
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
            let received_in = process.rank().map_or(sent_in, Protocol::epoch);
            self.coverage.late += u64::from(sent_in < received_in);
            self.coverage.early += u64::from(sent_in > received_in);
            self.coverage.logged_replays += u64::from(marked);
            self.note(Event::Accepted { rank, from, ssn, sent_in, marked })?;
        } else if let Some(what) = what {
            self.record(what);
        }
        Ok(true)
    }

    fn transmit(&mut self, from: u32, to: u32) -> Result<(), ViolationKind> {
        self.with(from, |world, process| {
            let Some(cursor) = &mut process.cursors[to as usize] else { return Ok(()) };
            let lane = &mut process.image.lanes[to as usize];
            let slot = lane.get(cursor.next).copied();
            if world.canary(Canary::DropRecord) && cursor.next.0 % 3 == 2 {
                lane.lose(cursor.next);
            }
            cursor.next = cursor.next.next();
            // Records freed since the replay began aren't needed; the oracles find those lost by a canary.
            let Some(Slot::Kept(record) | Slot::Passing(record)) = slot else { return Ok(()) };
            let Record { mut header, payload, .. } = record;
            if matches!(slot, Some(Slot::Passing(_))) {
                lane.free(header.ssn(), header.ssn());
            }
            // The process that sent the Hello may be dead by now: then this goes into a connection without another end.
            let reaches = Some(cursor.incarnation) == world.incarnation(to);
            world.ask(from, process, |rank| rank.handle_transmit(&mut header))?;
            let again = header.flags().contains(Flags::REPLAYED);
            let transmitted = &mut world.nodes[from as usize].transmitted[to as usize];
            world.coverage.replayed += u64::from(header.ssn() <= *transmitted);
            *transmitted = header.ssn().max(*transmitted);
            world.record(Activity::Transmitted { from, to, number: header.ssn().0, marked: again });
            if reaches {
                let record = Record { header, payload, transmitted: world.event };
                world.network.send(from, to, Frame::Message(record));
            }
            Ok(())
        })
    }

    fn make_durable(&mut self, node: u32) -> Result<(), ViolationKind> {
        self.with(node, |world, process| {
            let Some(saved) = process.writing.take() else { return Ok(()) };
            let epoch = saved.epoch;
            world.store(node, saved)?;
            if world.canary(Canary::DurableEarly) {
                return Ok(());
            }
            world.report_durable(node, process, epoch)
        })
    }

    /// Reports a durable checkpoint.
    ///
    /// Unless living ranks may be rolled back, it replaces the one before.
    fn report_durable(&mut self, node: u32, process: &mut Process, epoch: Epoch) -> Result<(), ViolationKind> {
        self.ask(node, process, |rank| rank.handle_checkpoint_durable(epoch))?;
        if self.rule.properties.rolls_back_survivors || self.is_struck(node) {
            return Ok(());
        }
        self.keep_checkpoints(node, process, epoch, epoch)
    }

    fn step(&mut self, rank: u32) -> Result<(), ViolationKind> {
        self.with(rank, |world, process| {
            let clocks = world.schedule.clocks;
            if process.may_checkpoint(clocks) {
                if clocks {
                    world.coverage.checkpoints_refused += 1;
                    return world.ask(rank, process, |machine| machine.handle_checkpoint_refused());
                }
                return world.force_checkpoint(rank, process);
            }
            if let Some(call) = process.call(&world.program, rank) {
                world.step_in_call(rank, process, call)?;
                let furthest = &mut world.nodes[rank as usize].furthest;
                *furthest = process.image.application.progress.max(*furthest);
                return Ok(());
            }
            match process.image.application.next_op(&world.program, rank) {
                NextOp::Nothing | NextOp::Call(_) => Ok(()),
                NextOp::Send { to, tag } => world.send(rank, to, tag, process),
                NextOp::Receive { .. } | NextOp::Any(_) => world.take(rank, process),
                NextOp::Checkpoint => world.checkpoint(rank, process),
            }?;
            let furthest = &mut world.nodes[rank as usize].furthest;
            *furthest = process.image.application.progress.max(*furthest);
            Ok(())
        })
    }

    fn send(&mut self, rank: u32, to: u32, tag: i32, process: &mut Process) -> Result<(), ViolationKind> {
        let payload = process.image.application.payload(rank);
        // Length as reported to the protocol; some are large, and get their own acknowledgements.
        let len = if payload.content.is_multiple_of(4) { 4096 } else { 16 };
        let envelope = Envelope { source: Rank(rank), destination: Rank(to), tag, comm: 0, len };
        let outgoing = self.ask(rank, process, |machine| machine.handle_send(&envelope))?;
        // The resulting effects must not concern this record: it isn't committed yet.
        self.carry_out_effects(rank, process)?;
        if self.struck.is_some() {
            return Ok(());
        }
        let header = outgoing.header;
        let ssn = header.ssn();
        let lane = &mut process.image.lanes[to as usize];
        let record = Record { header, payload, transmitted: 0 };
        if ssn == lane.last().next() {
            lane.append(match (outgoing.transmission, outgoing.keep_record) {
                // Nobody will ask for it.
                (Transmission::Suppress, _) => Slot::Freed,
                (_, true) => Slot::Kept(record),
                (_, false) => Slot::Passing(record),
            });
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
            Transmission::Suppress => self.coverage.suppressed += 1,
        }
        if outgoing.keep_record == (self.rule.properties.keeps == Kept::Nothing) {
            return self.impossible(rank, format!("to keep a record: {}", outgoing.keep_record));
        }
        process.image.application.pass(&self.program, rank);
        self.coverage.sends += 1;
        self.note(Event::Sent { rank, to, ssn, payload, marked: header.flags().contains(Flags::LOGGED) })
    }

    fn take(&mut self, rank: u32, process: &mut Process) -> Result<(), ViolationKind> {
        let Some(place) = process.find(&self.program, rank) else { return Ok(()) };
        let Record { header, payload, .. } = process.image.pending.remove(place);
        let (source, tag, ssn) = (header.source(), header.tag(), header.ssn());
        if let Some(choice) = process.end_choice() {
            let chosen = Determinant { sequence: choice.sequence, source, ssn };
            let record = self.ask(rank, process, |machine| machine.handle_choice(chosen))?;
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

    /// Begins the collection with this number in the coordinator; `None` at the end, when nothing moves any more.
    ///
    /// They alternate between the two kinds of floors; the last is the one collecting most.
    pub(super) fn collect(&mut self, node: u32, number: Option<u32>) -> Result<(), ViolationKind> {
        let is_even = number.is_some_and(|number| number.is_multiple_of(2));
        let floor = if is_even { Floor::BySmallestEpoch } else { Floor::ByLine };
        self.with(node, |world, process| {
            if let Machine::Coordinator(coordinator) = &mut process.machine {
                world.coverage.collections += u64::from(coordinator.begin_collection(floor));
            }
            Ok(())
        })
    }

    fn checkpoint(&mut self, rank: u32, process: &mut Process) -> Result<(), ViolationKind> {
        let (clocks, is_asked) = (self.schedule.clocks, process.checkpoint_asked);
        if clocks && is_asked {
            process.image.application.pass(&self.program, rank);
            self.coverage.checkpoints_forced += 1;
            self.save(rank, process)?;
            return self.ask(rank, process, |rule| Ok::<_, ProtocolError>(rule.wants_checkpoint())).map(drop);
        }
        let is_due =
            mix(self.schedule.seed ^ u64::from(rank) << 32 ^ process.image.application.progress).is_multiple_of(2);
        let wants = |rule: &mut dyn Protocol| match clocks {
            true => is_due && rule.wants_due_checkpoint(),
            false => rule.wants_checkpoint(),
        };
        if !self.ask(rank, process, |rule| Ok::<_, ProtocolError>(wants(rule)))? {
            self.coverage.checkpoints_refused += 1;
            process.image.application.pass(&self.program, rank);
            return Ok(());
        }
        process.image.application.pass(&self.program, rank);
        self.save(rank, process)
    }

    /// Takes a checkpoint requested by the rule.
    ///
    /// The application may wait in a receive or a call: it makes the operation again after a restart.
    fn force_checkpoint(&mut self, rank: u32, process: &mut Process) -> Result<(), ViolationKind> {
        self.coverage.checkpoints_forced += 1;
        self.coverage.checkpoints_in_calls += u64::from(process.in_call == InCall::Held);
        self.save(rank, process)
    }

    /// Saves the current state.
    fn save(&mut self, rank: u32, process: &mut Process) -> Result<(), ViolationKind> {
        let snapshot = self.ask(rank, process, |machine| machine.handle_checkpoint())?;
        process.checkpoint_asked = false;
        self.note(Event::Checkpointed { rank, epoch: snapshot.epoch })?;
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
            self.report_durable(rank, process, epoch)?;
        }
        Ok(())
    }

    /// Returns a lane's last SSN.
    pub(super) fn last(process: &Process, peer: u32) -> Ssn {
        process.image.lanes.get(peer as usize).map_or(Ssn::ZERO, |lane| lane.last())
    }
}
