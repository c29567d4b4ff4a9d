//! Holds a rank at the place of a planned kill until the launcher kills it.

use std::thread;

use counterfoil_ack_piggyback::WireHeader;

use super::control::Welcome;
use super::kills::RankKills;
use crate::communicator::is_collective;
use crate::transport::{CallKind, Event, Interest, Report, Step, Transport, TransportError};

/// Transport that holds its rank at the places of its planned kills, for the demo and for tests.
///
/// A rank doesn't leave an iteration in which it is killed, nor end a recovery during which a process is killed: it
/// serves its peers meanwhile. In the midst of a call, it stops for good.
#[derive(Debug)]
pub struct PlannedKills<T> {
    inner: T,
    kills: RankKills,
    /// Last iteration reported by this process: the launcher kills it only after the report.
    reported: Option<u64>,
    /// Number of events in this process so far.
    events: u64,
}

impl<T> PlannedKills<T> {
    /// Wraps the transport of a process welcomed with `welcome`.
    pub fn new(inner: T, welcome: &Welcome) -> PlannedKills<T> {
        PlannedKills { inner, kills: welcome.kills.clone(), reported: None, events: 0 }
    }

    /// Returns the wrapped transport.
    pub fn inner_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Returns the wrapped transport, for the rank's next execution in the same process.
    pub fn into_inner(self) -> T {
        self.inner
    }

    /// Returns the kind of the call with a kill planned after this step.
    fn fatal_call(&self, step: Step, iteration: u64) -> Option<CallKind> {
        let call = call_of(step)?;
        let is_fatal = self.kills.calls.iter().any(|(from, kind)| *kind == call && *from <= iteration);
        (is_fatal || self.kills.events.contains(&self.events)).then_some(call)
    }
}

/// Returns the kind of the call making this step, if a rank can be killed there.
fn call_of(step: Step) -> Option<CallKind> {
    match step {
        Step::Logged { context } => (!is_collective(context)).then_some(CallKind::Send),
        Step::Sent { context } => is_collective(context).then_some(CallKind::Collective),
        Step::Taken { context } if is_collective(context) => Some(CallKind::Collective),
        Step::Taken { .. } => Some(CallKind::Receive),
        Step::CheckpointBegun => Some(CallKind::Checkpoint),
        Step::Iteration | Step::CaughtUp => None,
    }
}

impl<T: Transport> Transport for PlannedKills<T> {
    fn poll(&mut self, interest: &Interest<'_>) -> Result<(), TransportError> {
        self.inner.poll(interest)
    }

    fn next_event(&mut self) -> Option<Event> {
        let event = self.inner.next_event();
        if let Some(Event::Resume) = event {
            self.kills.in_recovery = false;
        }
        event
    }

    fn is_connected(&self, peer: u32) -> bool {
        self.inner.is_connected(peer)
    }

    fn greet(&mut self, peer: u32, incarnation: u32, hello: &[u8]) -> Result<(), TransportError> {
        self.inner.greet(peer, incarnation, hello)
    }

    fn disconnect(&mut self, peer: u32) {
        self.inner.disconnect(peer);
    }

    fn has_room(&self, peer: u32) -> bool {
        self.inner.has_room(peer)
    }

    fn send_control(&mut self, peer: u32, header: &WireHeader, body: &[&[u8]]) -> Result<(), TransportError> {
        self.inner.send_control(peer, header, body)
    }

    fn send_record(
        &mut self,
        peer: u32,
        header: &WireHeader,
        payload: &[u8],
        offset: usize,
    ) -> Result<usize, TransportError> {
        self.inner.send_record(peer, header, payload, offset)
    }

    fn report(&mut self, report: Report) -> Result<(), TransportError> {
        if let Report::Iteration { n, .. } = report {
            self.reported = Some(n);
        }
        self.inner.report(report)
    }

    fn holds_after(&mut self, step: Step, iteration: u64) -> Result<bool, TransportError> {
        self.events += u64::from(call_of(step).is_some());
        if let Some(call) = self.fatal_call(step, iteration) {
            self.inner.report(Report::InCall { call, iteration, event: self.events })?;
            loop {
                thread::park();
            }
        }
        Ok(match step {
            Step::Iteration => self.reported.is_some_and(|n| self.kills.iterations.contains(&n)),
            Step::CaughtUp => self.kills.in_recovery,
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::tally::Tally;

    /// Transport without peers.
    #[derive(Default)]
    struct Alone(VecDeque<Event>);

    impl Transport for Alone {
        fn poll(&mut self, _: &Interest<'_>) -> Result<(), TransportError> {
            Ok(())
        }

        fn next_event(&mut self) -> Option<Event> {
            self.0.pop_front()
        }

        fn is_connected(&self, _: u32) -> bool {
            false
        }

        fn greet(&mut self, _: u32, _: u32, _: &[u8]) -> Result<(), TransportError> {
            Ok(())
        }

        fn disconnect(&mut self, _: u32) {}

        fn send_control(&mut self, _: u32, _: &WireHeader, _: &[&[u8]]) -> Result<(), TransportError> {
            Ok(())
        }

        fn send_record(&mut self, _: u32, _: &WireHeader, _: &[u8], _: usize) -> Result<usize, TransportError> {
            Ok(0)
        }

        fn report(&mut self, _: Report) -> Result<(), TransportError> {
            Ok(())
        }
    }

    fn rank_with(kills: RankKills) -> PlannedKills<Alone> {
        PlannedKills { inner: Alone::default(), kills, reported: None, events: 0 }
    }

    #[test]
    fn a_rank_does_not_leave_an_iteration_in_which_it_is_killed_once_it_has_reported_it() {
        let mut rank = rank_with(RankKills { iterations: vec![7], ..RankKills::default() });
        assert!(!rank.holds_after(Step::Iteration, 7).unwrap(), "restored from a checkpoint in iteration 7");
        for (n, is_held) in [(6, false), (7, true), (8, false)] {
            rank.report(Report::Iteration { n, tally: Tally::default() }).unwrap();
            assert_eq!(rank.holds_after(Step::Iteration, n).unwrap(), is_held, "{n}");
        }
    }

    #[test]
    fn a_recovery_does_not_end_before_the_launcher_resumes_it() {
        let mut rank = rank_with(RankKills { in_recovery: true, ..RankKills::default() });
        assert!(rank.holds_after(Step::CaughtUp, 3).unwrap());
        rank.inner_mut().0.push_back(Event::Resume);
        assert!(matches!(rank.next_event(), Some(Event::Resume)));
        assert!(!rank.holds_after(Step::CaughtUp, 3).unwrap());
    }

    #[test]
    fn a_rank_stops_at_an_event_of_any_kind() {
        let steps = [Step::Iteration, Step::Logged { context: 0 }, Step::Taken { context: 1 }, Step::CheckpointBegun];
        let mut rank = rank_with(RankKills { events: vec![4], ..RankKills::default() });
        for (step, event) in steps.into_iter().zip([0, 1, 2, 3]) {
            assert!(!rank.holds_after(step, 1).unwrap());
            assert_eq!((rank.events, rank.fatal_call(step, 1)), (event, None));
        }
        rank.events += 1;
        assert_eq!(rank.fatal_call(Step::Taken { context: 0 }, 1), Some(CallKind::Receive));
    }

    #[test]
    fn a_rank_stops_in_the_first_call_of_the_kind_from_the_iteration_on() {
        let rank = |kind| rank_with(RankKills { calls: vec![(7, kind)], ..RankKills::default() });
        let (application, collective) = (0, 1);
        for (step, kind) in [
            (Step::Logged { context: application }, CallKind::Send),
            (Step::Taken { context: application }, CallKind::Receive),
            (Step::Sent { context: collective }, CallKind::Collective),
            (Step::Taken { context: collective }, CallKind::Collective),
            (Step::CheckpointBegun, CallKind::Checkpoint),
        ] {
            assert_eq!(rank(kind).fatal_call(step, 6), None, "{step:?}");
            assert_eq!(rank(kind).fatal_call(step, 7), Some(kind), "{step:?}");
            assert_eq!(rank(kind).fatal_call(step, 9), Some(kind), "{step:?}");
        }
        for step in [Step::Logged { context: collective }, Step::Sent { context: application }, Step::Iteration] {
            for kind in CallKind::ALL {
                assert_eq!(rank(kind).fatal_call(step, 7), None, "{step:?}");
            }
        }
    }
}
