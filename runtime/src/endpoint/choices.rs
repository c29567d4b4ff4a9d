//! Outcomes that depend on timing: recorded before they take effect, and forced when a dead incarnation is re-executed.
//!
//! The match of a wildcard receive is recorded when it happens, not when the program waits for it: a later receive may
//! get its message only because the wildcard did not take it. Finding nothing is an outcome too.
//!
//! Under a rule that repeats the receive order, the match of a wildcard receive is not recorded: it follows from the order
//! of posted receives and the order of arrivals. The result of a test or `iprobe` depends on *when* it is called,
//! and is still recorded.

use counterfoil::{Determinant, Rank, Ssn};
use counterfoil_protocols::api::Protocol;

use super::progress::Wait;
use super::{CHOICE, Endpoint};
use crate::Error;
use crate::communicator::{Request, Status};
use crate::matching::{Forced, Message, Pattern};
use crate::transport::Transport;

/// Call whose outcome depends on timing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) sequence: u64,
    /// Message that it must choose.
    pub(super) forced: Option<Forced>,
    /// The call must find nothing.
    forced_nothing: bool,
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Counts a call whose outcome depends on timing.
    pub(super) fn begin_choice(&mut self) -> Choice {
        let next = self.protocol.next_choice();
        let forced = next.forced.filter(|forced| forced.ssn != Ssn::ZERO);
        Choice {
            sequence: next.sequence,
            forced: forced.map(|forced| Forced { source: forced.source.0, ssn: forced.ssn.0 }),
            forced_nothing: next.forced.is_some_and(|forced| forced.ssn == Ssn::ZERO),
        }
    }

    /// Returns `true` if the match of a receive or a blocking probe depends on timing. From a named source it is always the
    /// first match, whenever that arrives; a wildcard depends on the receive order, which the rule may repeat.
    pub(super) fn depends_on_timing(&self, pattern: Pattern) -> bool {
        pattern.source.is_none() && !self.settings.rule.repeats_receive_order()
    }

    /// Records the outcome of a call: a message, as (source, SSN), or nothing.
    fn end_choice(&mut self, sequence: u64, chosen: Option<(u32, u64)>) -> Result<(), Error> {
        let (source, ssn) = chosen.unwrap_or((self.rank, 0));
        let choice = Determinant { sequence, source: Rank(source), ssn: Ssn(ssn) };
        if let Some(record) = self.protocol.handle_choice(choice)? {
            self.log.local().append(CHOICE, record.sequence, &record.bytes)?;
            self.tally.choices_logged += 1;
        }
        Ok(())
    }

    /// Completes posted receive `id` with `message`, and records the match if it is a choice.
    pub(super) fn complete(&mut self, id: u64, message: Message) -> Result<(), Error> {
        let chosen = (message.source, message.ssn);
        match self.requests.complete(id, message) {
            Some(sequence) => self.end_choice(sequence, Some(chosen)),
            None => Ok(()),
        }
    }

    pub(super) fn choose_test(&mut self, request: &Request) -> Result<bool, Error> {
        let choice = self.begin_choice();
        if choice.forced.is_some() {
            while !self.requests.is_complete("test", request)? {
                self.progress(Wait::Forever)?;
            }
        } else if !choice.forced_nothing {
            self.progress(Wait::Not)?;
        }
        let received = self.requests.received(request).filter(|_| !choice.forced_nothing);
        let chosen = received.map(|message| (message.source, message.ssn));
        self.end_choice(choice.sequence, chosen)?;
        if chosen.is_some() {
            self.requests.mark_seen(request);
        }
        Ok(chosen.is_some())
    }

    pub(super) fn choose_probe(&mut self, pattern: Pattern) -> Result<Status, Error> {
        let choice = self.depends_on_timing(pattern).then(|| self.begin_choice());
        let forced = choice.and_then(|choice| choice.forced);
        let (status, chosen) = loop {
            match self.matching.probe(pattern, forced) {
                Some(message) => break (status(message), (message.source, message.ssn)),
                None => self.progress(Wait::Forever)?,
            }
        };
        if let Some(choice) = choice {
            self.end_choice(choice.sequence, Some(chosen))?;
        }
        Ok(status)
    }

    pub(super) fn choose_iprobe(&mut self, pattern: Pattern) -> Result<Option<Status>, Error> {
        let choice = self.begin_choice();
        if choice.forced.is_some() {
            while self.matching.probe(pattern, choice.forced).is_none() {
                self.progress(Wait::Forever)?;
            }
        } else if !choice.forced_nothing {
            self.progress(Wait::Not)?;
        }
        let found = self.matching.probe(pattern, choice.forced).filter(|_| !choice.forced_nothing);
        let found = found.map(|message| (status(message), (message.source, message.ssn)));
        self.end_choice(choice.sequence, found.map(|(_, chosen)| chosen))?;
        Ok(found.map(|(status, _)| status))
    }
}

fn status(message: &Message) -> Status {
    Status { source: message.source, tag: message.tag, len: message.payload.len() }
}
