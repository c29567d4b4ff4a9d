//! Window states in a checkpoint: valid ones are restored, invalid ones refused.

use counterfoil_ack_piggyback::{
    AckPolicy, Arrival, Flags, RecvWindow, RecvWindowState, SendWindow, SendWindowState, StateError, Verdict,
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
    let good = window.snapshot();
    assert_eq!(SendWindow::restore(policy(), &good).unwrap().snapshot(), good);
    let acked = SendWindowState { acked: 4, ..good };
    assert_eq!(SendWindow::restore(policy(), &acked).err(), Some(StateError::AckedBeyondLast { acked: 4, last: 3 }));
    let epoch = SendWindowState { epoch: 0, ..good };
    assert_eq!(SendWindow::restore(policy(), &epoch).err(), Some(StateError::EpochOutOfRange { epoch: 0 }));
}

#[test]
fn an_invalid_receive_window_state_is_refused() {
    let mut window = RecvWindow::new(policy());
    for ssn in [1, 2, 4, 5, 8] {
        let arrival = Arrival { ssn: Ssn(ssn), incarnation: Incarnation(0), epoch: Epoch(1), flags: Flags::NONE };
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
