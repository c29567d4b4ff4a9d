//! Timing-dependent outcomes: recorded before they take effect, and forced when a dead incarnation is re-executed.
//!
//! A wildcard receive's match is recorded when it happens, not when the program waits for it: a later receive may get
//! its message only because the wildcard did not take it. Finding nothing is an outcome too.
//!
//! Under a rule that repeats the receive order, a wildcard receive's match is not recorded: it follows from the order
//! of posted receives and arrivals. The result of a test or `iprobe` depends on *when* it is called, and is still
//! recorded.

use counterfoil::{Determinant, Rank, Ssn};
use counterfoil_protocols::api::{Protocol, Repetition};

use super::requests::{Choice, Chosen};
use super::wait::Wait;
use super::{CANCELLED, CHOICE, Endpoint, NOTHING};
use crate::Error;
use crate::communicator::{CallError, Request, Status};
use crate::history::Event;
use crate::matching::{Forced, Message, Pattern};
use crate::replay::RecordEnd;
use crate::transport::Transport;

/// Message awaited by a probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probed {
    pattern: Pattern,
    forced: Option<Forced>,
}

impl Probed {
    /// Returns `true` if the message could be from `source`.
    pub(super) fn may_come_from(&self, source: u32) -> bool {
        self.pattern.is_from(self.forced, source)
    }
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Counts a call with a timing-dependent outcome.
    pub(super) fn begin_choice(&mut self) -> Choice {
        let next = self.protocol.next_choice();
        let is_recorded = self.polls.handle_choice(next.sequence);
        let forced = next.forced.filter(|forced| forced.ssn != Ssn::ZERO);
        Choice {
            sequence: next.sequence,
            forced: forced.map(|forced| Forced { source: forced.source.0, ssn: forced.ssn.0 }),
            forced_nothing: is_recorded || next.forced.is_some_and(|forced| forced.ssn == Ssn::ZERO),
            is_recorded,
        }
    }

    /// Returns `true` if the match of a receive or a blocking probe depends on timing.
    ///
    /// From a named source it is always the first match, whenever that arrives; a wildcard depends on the receive
    /// order, which the rule may repeat.
    pub(super) fn depends_on_timing(&self, pattern: Pattern) -> bool {
        pattern.source.is_none() && self.properties.repeats != Repetition::SendsAndReceives
    }

    /// Records a call's outcome: a message, or nothing.
    ///
    /// Runs of calls that found nothing are recorded later, as one entry.
    fn end_choice(&mut self, sequence: u64, chosen: Option<Chosen>, is_recorded: bool) -> Result<(), Error> {
        let (source, ssn) = chosen.unwrap_or((self.rank, 0));
        let choice = Determinant { sequence, source: Rank(source), ssn: Ssn(ssn) };
        let Some(record) = self.protocol.handle_choice(choice)?.filter(|_| !is_recorded) else { return Ok(()) };
        if self.transport.repeats_only() {
            return Err(RecordEnd::Outcome.into());
        }
        self.tally.choices_logged += 1;
        if chosen.is_none() {
            if !self.polls.extend(sequence) {
                self.record_polls()?;
                self.polls.begin(sequence);
            }
            return Ok(());
        }
        self.record_polls()?;
        Ok(self.log.local().append(CHOICE, record.sequence, &record.bytes)?)
    }

    /// Repeats a test or probe that found nothing, immediately after it and without a poll: it finds nothing again, and
    /// is counted.
    ///
    /// Returns `false`, and counts nothing, if it has to be made in full: its outcome was recorded by a dead
    /// incarnation, or a replay keeps a history.
    ///
    /// # Errors
    /// [`Error`].
    pub fn repeat_nothing_found(&mut self) -> Result<bool, Error> {
        if !self.polls.has_last_call() || self.history.is_some() {
            return Ok(false);
        }
        let choice = self.begin_choice();
        self.end_choice(choice.sequence, None, choice.is_recorded)?;
        Ok(true)
    }

    /// Records calls that found nothing, and clock readings, since the last record: before anything depending on them
    /// is seen elsewhere.
    pub(super) fn record_polls(&mut self) -> Result<(), Error> {
        if let Some((first, calls)) = self.polls.take() {
            self.log.local().append(NOTHING, first, &calls.to_le_bytes())?;
        }
        self.record_readings()
    }

    /// Completes posted receive `id` with `message`, and records the match if it is a choice.
    pub(super) fn complete(&mut self, id: u64, message: Message) -> Result<(), Error> {
        let chosen = (message.source, message.ssn);
        if let Some(sequence) = self.requests.complete(id, message) {
            self.end_choice(sequence, Some(chosen), false)?;
        }
        self.report_match(chosen.0, chosen.1)
    }

    /// Returns the index of a complete operation, and records the outcome unless the program knows it.
    ///
    /// Each operation is complete with all its requests. Without `wait`, returns `None` if there is none.
    pub(super) fn choose_complete(&mut self, operations: &[&[&Request]], wait: bool) -> Result<Option<usize>, Error> {
        for (index, operation) in operations.iter().enumerate() {
            if self.requests.are_known_complete(operation)? {
                return Ok(Some(index));
            }
        }
        if operations.is_empty() {
            return Ok(None);
        }
        let choice = self.begin_choice();
        let requests = || operations.iter().flat_map(|operation| operation.iter());
        self.awaited.matches.clear();
        self.awaited.matches.extend(requests().filter_map(|request| self.requests.awaited_match(request)));
        if choice.forced.is_none() && !choice.forced_nothing && !wait {
            self.progress(Wait::Not)?;
        }
        let found = loop {
            let found = self.find_complete(operations, &choice)?;
            if found.is_some() || choice.forced_nothing || (choice.forced.is_none() && !wait) {
                break found;
            }
            self.progress(Wait::Forever)?;
        };
        self.awaited.matches.clear();
        self.end_choice(choice.sequence, found.map(|(_, message)| message), choice.is_recorded)?;
        if !wait {
            self.record(|_| Event::Poll { found: found.is_some() })?;
        }
        let Some((index, _)) = found else { return Ok(None) };
        operations[index].iter().for_each(|request| self.requests.mark_seen(request));
        Ok(Some(index))
    }

    /// Returns `true` if a receive ends without a message, and records the outcome.
    ///
    /// A repetition must know that when it posts the receive, since a message arriving earlier than before is for a
    /// later one.
    pub(super) fn choose_cancelled(&mut self, request: &Request) -> Result<bool, Error> {
        let operation: &[&[&Request]] = &[&[request]];
        if self.requests.are_known_complete(operation[0])? || self.requests.is_send(request) {
            return Ok(false);
        }
        let choice = self.begin_choice();
        // A recorded match came before the call, and so did its message.
        let must_wait = choice.forced.is_some() || self.requests.is_forced(request);
        if !must_wait && !choice.forced_nothing {
            self.progress(Wait::Not)?;
        }
        while must_wait && self.find_complete(operation, &choice)?.is_none() {
            self.progress(Wait::Forever)?;
        }
        let found = self.find_complete(operation, &choice)?;
        if found.is_none() {
            if !choice.forced_nothing {
                self.log.local().append(CANCELLED, request.id(), &[])?;
            }
            self.matching.cancel(request.id());
            self.polls.repeat_cancelled(request.id());
            if let Some(matched) = self.requests.cancel(request) {
                self.end_choice(matched.sequence, None, matched.is_recorded)?;
            }
        }
        self.end_choice(choice.sequence, found.map(|(_, message)| message), choice.is_recorded)?;
        Ok(found.is_none())
    }

    /// Returns the index of a complete operation and its identifying message.
    fn find_complete(&self, operations: &[&[&Request]], choice: &Choice) -> Result<Option<(usize, Chosen)>, CallError> {
        if choice.forced_nothing {
            return Ok(None);
        }
        for (index, operation) in operations.iter().enumerate() {
            let mut unseen = operation.iter().filter_map(|request| self.requests.unseen(request));
            let chosen = match choice.forced {
                Some(forced) => unseen.find(|chosen| *chosen == (forced.source, forced.ssn)),
                None => unseen.next(),
            };
            if let Some(chosen) = chosen
                && self.requests.are_complete(operation)?
            {
                return Ok(Some((index, chosen)));
            }
        }
        // Once all are complete, no further message can come: the outcome contradicts the recorded one, which
        // `end_choice` reports.
        if choice.forced.is_some() && self.requests.are_complete(&operations.concat())? {
            return self.find_complete(operations, &Choice { forced: None, ..*choice });
        }
        Ok(None)
    }

    pub(super) fn choose_probe(&mut self, pattern: Pattern) -> Result<Status, Error> {
        let choice = self.depends_on_timing(pattern).then(|| self.begin_choice());
        let forced = choice.and_then(|choice| choice.forced);
        self.awaited.probed = Some(Probed { pattern, forced });
        let (status, chosen) = loop {
            match self.matching.probe(pattern, forced) {
                Some(message) => break (status(message), (message.source, message.ssn)),
                None => {
                    self.take_asked_checkpoint()?;
                    self.progress(Wait::Forever)?;
                }
            }
        };
        self.awaited.probed = None;
        if let Some(choice) = choice {
            self.end_choice(choice.sequence, Some(chosen), false)?;
        }
        self.record_probe(pattern, chosen)?;
        Ok(status)
    }

    pub(super) fn choose_iprobe(&mut self, pattern: Pattern) -> Result<Option<Status>, Error> {
        let choice = self.begin_choice();
        self.awaited.probed = Some(Probed { pattern, forced: choice.forced });
        if choice.forced.is_some() {
            while self.matching.probe(pattern, choice.forced).is_none() {
                self.progress(Wait::Forever)?;
            }
        } else if !choice.forced_nothing {
            self.progress(Wait::Not)?;
        }
        self.awaited.probed = None;
        let found = self.matching.probe(pattern, choice.forced).filter(|_| !choice.forced_nothing);
        let found = found.map(|message| (status(message), (message.source, message.ssn)));
        self.end_choice(choice.sequence, found.map(|(_, chosen)| chosen), choice.is_recorded)?;
        self.record(|_| Event::Poll { found: found.is_some() })?;
        if let Some((_, chosen)) = found {
            self.record_probe(pattern, chosen)?;
        }
        Ok(found.map(|(status, _)| status))
    }

    fn record_probe(&mut self, pattern: Pattern, (source, ssn): Chosen) -> Result<(), Error> {
        if pattern.source.is_some() {
            return Ok(());
        }
        self.record(|history| Event::Probe { pattern, source, ssn, place: history.place.clone() })
    }
}

fn status(message: &Message) -> Status {
    Status { source: message.source, tag: message.tag, len: message.payload.len() }
}
