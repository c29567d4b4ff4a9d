//! Collectives that run natively: their messages, *hops*, are neither logged nor numbered by the rule.
//!
//! A hop is a control frame with the call's communicator and number, and its position among this sender's hops in the
//! call. It may arrive before the receiver begins the call, and again with the same bytes when the sender begins the
//! call anew. Hops from a lost rank are dropped. A call that loses a rank ends with [`Error::CallAgain`], and so does
//! one whose result the rule finds elsewhere; the layer above asks for a plan again.

mod arrived;
mod hops;

use std::collections::{BTreeMap, VecDeque};

use counterfoil::Rank;
use counterfoil_protocols::api::{CollectiveCall, CollectiveClass, CollectivePlan, EntryKey, Protocol};

use super::Endpoint;
use super::wait::Wait;
use crate::Error;
use crate::communicator::{COLLECTIVE_CONTEXT, CollectiveRun, InternalTag};
use crate::transport::Transport;
use arrived::Arrived;
pub(super) use hops::is_hop;

/// Native collectives of a rank.
#[derive(Debug, Default)]
pub(super) struct Native {
    /// Current native call.
    call: Option<OpenCall>,
    /// Hops of the current call, by rank.
    hops: Vec<HopCount>,
    /// Words travelling with its data, in rank order: those arrived here, and this rank's own.
    words: Vec<(Rank, u64)>,
    /// Memory for a hop's words.
    encoded: Vec<u8>,
    /// The rule's answer to a question that it has asked for
    /// ([`Effect::Resume`](counterfoil_protocols::api::Effect::Resume)).
    plan: Option<CollectivePlan>,
    /// The rule wants to be asked again.
    resumed: bool,
    /// A rank was lost since the call began.
    lost: bool,
    arrived: Arrived,
    /// Peer whose connection lacks room for a hop.
    awaited_room: Option<u32>,
    /// By communicator: first call not completed by this rank.
    next: BTreeMap<u32, u64>,
    /// Calls to repeat with dummy arguments.
    again: VecDeque<CollectiveCall>,
    /// The program waits for the plan of a call that is counted already.
    planning: bool,
    /// A call runs as messages, some of which have left.
    as_messages: bool,
}

#[derive(Clone, Copy, Debug)]
struct OpenCall {
    call: CollectiveCall,
    /// Entry for the result.
    keep: Option<EntryKey>,
    /// Words travel with the data.
    has_words: bool,
    /// The call is one from `again`.
    is_dummy: bool,
}

/// Numbers of hops sent to a rank, and received from it.
#[derive(Clone, Copy, Debug, Default)]
struct HopCount {
    sent: u32,
    received: u32,
}

impl Native {
    pub(super) fn is_open(&self) -> bool {
        self.call.is_some()
    }

    /// Returns the bytes in arrived hops that wait for their calls.
    pub(super) fn bytes(&self) -> usize {
        self.arrived.bytes()
    }

    /// Returns the peer on whose connection a hop waits for room.
    pub(super) fn awaited_room(&self) -> Option<u32> {
        self.awaited_room
    }

    /// Returns `true` if no call has sent data, and no call is to be repeated.
    pub(super) fn is_idle(&self) -> bool {
        self.call.is_none() && self.again.is_empty() && !self.as_messages
    }

    /// Returns the number of calls in a checkpoint, out of `counted`: the program repeats a call still waiting for its
    /// plan.
    pub(super) fn counted(&self, counted: u64) -> u64 {
        counted - u64::from(self.planning)
    }

    /// Returns the current native call, if it is in the context.
    fn call_in(&self, context: u32) -> Option<OpenCall> {
        self.call.filter(|open| open.call.comm == context)
    }

    /// Marks that the rule wants to be asked again.
    pub(super) fn resume(&mut self) {
        self.resumed = true;
    }

    /// Adds a call to repeat with dummy arguments.
    pub(super) fn push_again(&mut self, call: CollectiveCall) {
        self.again.push_back(call);
    }

    /// Drops the hops from a rank whose connection is lost.
    pub(super) fn lose(&mut self, peer: u32) {
        self.lost = true;
        self.arrived.lose(peer);
    }

    /// Returns `true` if this rank can still make or repeat the call.
    fn is_wanted(&self, comm: u32, number: u64) -> bool {
        let next = self.next.get(&comm).copied().unwrap_or_default();
        number >= next || self.again.iter().any(|call| (call.comm, call.number) == (comm, number))
    }
}

impl<T: Transport, P: Protocol> Endpoint<T, P> {
    /// Plans a collective on the communicator with this collective context.
    ///
    /// See [`CollectiveSubstrate::plan_collective`](crate::communicator::CollectiveSubstrate::plan_collective).
    ///
    /// # Errors
    /// [`Error`].
    pub fn plan_collective_in(
        &mut self,
        context: u32,
        tag: InternalTag,
        class: CollectiveClass,
        uniform: bool,
    ) -> Result<CollectiveRun, Error> {
        self.run_again()?;
        self.native.planning = true;
        let planned = self.plan(CollectiveCall { class, comm: context, number: tag.sequence(), uniform }, false);
        self.native.planning = false;
        self.native.as_messages = matches!(planned, Ok(CollectiveRun::AsMessages));
        planned
    }

    fn plan(&mut self, call: CollectiveCall, is_dummy: bool) -> Result<CollectiveRun, Error> {
        loop {
            self.await_running()?;
            self.take_asked_checkpoint()?;
            self.record_polls()?;
            // A checkpoint may have changed the rule's mind.
            let is_old = std::mem::take(&mut self.native.resumed);
            let plan = match self.native.plan.take().filter(|_| !is_old) {
                Some(plan) => plan,
                None => self.protocol.handle_collective(&call)?,
            };
            self.carry_out_effects()?;
            let (keep, exchange, word) = match plan {
                CollectivePlan::AsMessages => return Ok(CollectiveRun::AsMessages),
                CollectivePlan::Skip => {
                    self.open_call(call, None, None, is_dummy);
                    return Ok(CollectiveRun::Skip);
                }
                CollectivePlan::Recorded(entry) => {
                    let result = self.entries.get(entry).ok_or(Error::NoResult { number: call.number })?;
                    self.open_call(call, None, None, is_dummy);
                    self.tally.collectives_recorded += 1;
                    return Ok(CollectiveRun::Recorded(result));
                }
                CollectivePlan::Hold => {
                    while !self.native.resumed && !self.finish {
                        self.take_or_refuse_asked_checkpoint()?;
                        if !self.native.resumed {
                            self.progress(Wait::Forever)?;
                        }
                    }
                    continue;
                }
                CollectivePlan::Native { keep } => (keep, None, None),
                CollectivePlan::Exchange { word, scope } => (None, Some((word, scope)), None),
                CollectivePlan::Piggyback { word } => (None, None, Some(word)),
            };
            self.native.lost = false;
            self.open_call(call, keep, word, is_dummy);
            if let Some((word, scope)) = exchange {
                match self.exchange_words(call, word, scope) {
                    Ok(keep) => self.native.call.iter_mut().for_each(|open| open.keep = keep),
                    Err(Error::CallAgain) => continue,
                    Err(error) => return Err(error),
                }
            }
            debug_assert!(self.native.is_wanted(call.comm, call.number), "a call that is complete");
            return Ok(CollectiveRun::Native);
        }
    }

    /// `word`: this rank's word, if words travel with the data.
    fn open_call(&mut self, call: CollectiveCall, keep: Option<EntryKey>, word: Option<u64>, is_dummy: bool) {
        self.native.hops.clear();
        self.native.hops.resize(self.settings.ranks as usize, HopCount::default());
        self.native.words.clear();
        self.native.words.extend(word.map(|word| (Rank(self.rank), word)));
        self.native.call = Some(OpenCall { call, keep, has_words: word.is_some(), is_dummy });
    }

    /// Ends the current call.
    ///
    /// See [`CollectiveSubstrate::complete_collective`](crate::communicator::CollectiveSubstrate::complete_collective).
    pub(super) fn complete_call(&mut self, result: &dyn Fn() -> Vec<u8>) -> Result<(), Error> {
        self.native.as_messages = false;
        let Some(OpenCall { call, mut keep, has_words, is_dummy }) = self.native.call.take() else { return Ok(()) };
        if has_words {
            keep = self.report_words(call)?;
        }
        if let Some(entry) = keep {
            self.keep_entry(entry, result().into())?;
        }
        self.native.plan = None;
        self.native.arrived.end(call.comm, call.number);
        if is_dummy {
            self.native.again.pop_front();
            self.tally.collectives_repeated += 1;
        } else {
            self.native.next.insert(call.comm, call.number + 1);
            self.tally.collectives += 1;
        }
        self.protocol.handle_collective_completed(&call)?;
        self.carry_out_effects()
    }

    /// Reports the words received with a call's data, as far as data flows from their ranks.
    ///
    /// Returns the result's entry.
    fn report_words(&mut self, call: CollectiveCall) -> Result<Option<EntryKey>, Error> {
        let own = Rank(self.rank);
        self.native.words.retain(|&(from, _)| from == own || call.class.flows(from, own));
        Ok(self.protocol.handle_collective_words(&call, &self.native.words)?)
    }

    /// Repeats the calls that the rule wants repeated, all from a root to all ranks.
    pub(super) fn run_again(&mut self) -> Result<(), Error> {
        if self.native.call.is_some() {
            return Ok(());
        }
        while let Some(&call) = self.native.again.front() {
            let root = match call.class {
                CollectiveClass::FromRoot(Rank(root)) if root != self.rank => root,
                _ => return Err(Error::Unsupported { effect: format!("to repeat {call:?} with dummy arguments") }),
            };
            match self.plan(call, true)? {
                CollectiveRun::AsMessages => {
                    return Err(Error::Unsupported { effect: format!("to repeat {call:?} as messages") });
                }
                CollectiveRun::Native => match self.receive_hop(root).and_then(|request| self.wait_for_hop(&request)) {
                    Ok(_) => {}
                    Err(Error::CallAgain) => continue,
                    Err(error) => return Err(error),
                },
                CollectiveRun::Recorded(_) | CollectiveRun::Skip => {}
            }
            self.complete_call(&Vec::new)?;
        }
        Ok(())
    }

    /// Checks that the call continues: no rank was lost, and the rule has no other plan.
    fn check_call(&mut self) -> Result<(), Error> {
        let Some(OpenCall { call, .. }) = self.native.call else { return Ok(()) };
        if self.native.lost {
            self.native.lost = false;
            self.native.call = None;
            self.tally.collectives_failed += 1;
            self.protocol.handle_collective_failed(&call)?;
            self.carry_out_effects()?;
            return Err(Error::CallAgain);
        }
        if std::mem::take(&mut self.native.resumed) {
            let plan = self.protocol.handle_collective(&call)?;
            self.carry_out_effects()?;
            if !matches!(
                plan,
                CollectivePlan::Native { .. } | CollectivePlan::Exchange { .. } | CollectivePlan::Piggyback { .. }
            ) {
                self.native.call = None;
                self.native.plan = Some(plan);
                return Err(Error::CallAgain);
            }
        }
        Ok(())
    }

    /// Continues the call numbers on the job's communicator after a restart.
    pub(super) fn resume_calls(&mut self) {
        self.native.next.insert(COLLECTIVE_CONTEXT, self.collectives);
    }
}
