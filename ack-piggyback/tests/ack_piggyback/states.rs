//! Window states in a checkpoint: valid ones are restored, invalid ones refused.

use counterfoil_ack_piggyback::{
    Ack, AckPolicy, Arrival, EpochRunState, Flags, ReceivedSetState, RecvWindow, RecvWindowState, SendWindow,
    SendWindowState, StateError, Verdict,
};
use counterfoil_log_core::{Epoch, Incarnation, Ssn};

fn policy() -> AckPolicy {
    AckPolicy::default()
}

#[test]
fn an_invalid_send_window_state_is_refused() {
    let mut window = SendWindow::new(policy());
    for _ in 0..3 {
        window.stamp(8).unwrap();
    }
    let _ = window.handle_ack(Ack { ssn: Ssn(2), epoch: Epoch(1) }).unwrap();
    let good = window.snapshot();
    assert_eq!(SendWindow::restore(policy(), &good).unwrap().snapshot(), good);
    let acked = SendWindowState { acked: 4, ..good };
    assert_eq!(SendWindow::restore(policy(), &acked).err(), Some(StateError::AckedBeyondLast { acked: 4, last: 3 }));
    let beyond = SendWindowState { sent: Ssn::MAX.0 + 1, ..good };
    let limit = StateError::SsnBeyondLimit { ssn: Ssn::MAX.0 + 1 };
    assert_eq!(SendWindow::restore(policy(), &beyond).err(), Some(limit));
    let epoch = SendWindowState { epoch: 0, ..good };
    assert_eq!(SendWindow::restore(policy(), &epoch).err(), Some(StateError::EpochOutOfRange { epoch: 0 }));
}

#[test]
fn an_invalid_receive_window_state_is_refused() {
    let mut window = RecvWindow::new(policy());
    window.set_incarnation(Incarnation(3), Ssn::ZERO).unwrap();
    for ssn in [1, 2, 4, 5, 8] {
        let arrival = Arrival { ssn: Ssn(ssn), incarnation: Incarnation(3), epoch: Epoch(1), flags: Flags::NONE };
        assert_eq!(window.handle_message(arrival), Ok(Verdict::Fresh));
    }
    let good = window.snapshot();
    assert_eq!(RecvWindow::restore(policy(), &good).unwrap().snapshot(), good);
    let refused = |change: &dyn Fn(&mut RecvWindowState)| {
        let mut state = good.clone();
        change(&mut state);
        RecvWindow::restore(policy(), &state).err()
    };
    assert!(matches!(refused(&|state| state.source_sent = u64::MAX), Some(StateError::SsnBeyondLimit { .. })));
    assert!(matches!(refused(&|state| state.epochs.clear()), Some(StateError::EpochRuns { first: 1 })));
    assert!(matches!(refused(&|state| state.epochs[0].first = 2), Some(StateError::EpochRuns { first: 2 })));
    assert!(matches!(refused(&|state| state.epochs[0].epoch = 2), Some(StateError::EpochRuns { first: 1 })));
    assert!(matches!(refused(&|state| state.received.upto = 3), Some(StateError::Exceptions { first: 4, .. })));
    assert!(matches!(refused(&|state| state.received.exceptions.swap(0, 1)), Some(StateError::Exceptions { .. })));
    assert!(matches!(
        refused(&|state| state.received.exceptions[1].1 = u64::MAX),
        Some(StateError::SsnBeyondLimit { ssn: u64::MAX })
    ));
    assert!(matches!(
        RecvWindow::restore(AckPolicy { exceptions_max: 1, ..policy() }, &good),
        Err(StateError::TooManyExceptions { count: 2, max: 1 })
    ));
}

#[test]
fn windows_at_their_limits_are_restored() {
    let window = SendWindow::new(policy()).snapshot();
    let last = SendWindowState { sent: Ssn::MAX.0, ..window };
    assert_eq!(SendWindow::restore(policy(), &last).unwrap().sent(), Ssn::MAX);

    let window = RecvWindow::new(policy()).snapshot();
    let received = ReceivedSetState { upto: 0, exceptions: vec![(2, 2), (4, 4)] };
    let epochs = vec![EpochRunState { first: 1, epoch: 1 }];
    let full = RecvWindowState { received, epochs, source_sent: Ssn::MAX.0, ..window };
    let policy = AckPolicy { exceptions_max: 2, ..policy() };
    assert_eq!(RecvWindow::restore(policy, &full).unwrap().snapshot(), full);
}
