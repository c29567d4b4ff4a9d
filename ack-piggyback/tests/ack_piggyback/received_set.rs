//! The set of received SSNs, compared with a plain set.

use std::collections::BTreeSet;

use counterfoil_ack_piggyback::{ReceivedSet, ReceivedSetState, StateError, TooManyExceptions};
use counterfoil_log_core::Ssn;
use proptest::prelude::*;

#[test]
fn one_two_and_four_is_up_to_two_and_four() {
    let mut set = ReceivedSet::new();
    for ssn in [1, 2, 4] {
        assert_eq!(set.insert(Ssn(ssn), 8), Ok(true));
    }
    assert_eq!((set.upto(), set.highest()), (Ssn(2), Ssn(4)));
    assert_eq!(set.exceptions().collect::<Vec<_>>(), [(Ssn(4), Ssn(4))]);
    assert_eq!(format!("{set:?}"), "{..=2, 4..=4}");
    assert_eq!(set.insert(Ssn(3), 8), Ok(true));
    assert_eq!((set.upto(), set.exceptions().len()), (Ssn(4), 0));
}

#[test]
fn a_long_run_after_a_gap_is_one_exception() {
    let mut set = ReceivedSet::new();
    for ssn in 2..=10_000 {
        assert_eq!(set.insert(Ssn(ssn), 1), Ok(true));
    }
    let refused = TooManyExceptions { ssn: Ssn(20_000), upto: Ssn::ZERO, max: 1 };
    assert_eq!(set.insert(Ssn(20_000), 1), Err(refused));
    assert_eq!(set.insert(Ssn(1), 1), Ok(true));
    assert_eq!(set.upto(), Ssn(10_000));
}

#[test]
fn with_no_exceptions_allowed_a_gap_is_refused() {
    let mut set = ReceivedSet::new();
    assert_eq!(set.insert(Ssn(1), 0), Ok(true));
    assert!(set.insert(Ssn(3), 0).is_err());
    assert_eq!(set.insert(Ssn(2), 0), Ok(true));
}

#[test]
fn the_largest_ssn_can_be_an_exception() {
    let mut set = ReceivedSet::new();
    assert_eq!(set.insert(Ssn::MAX, 8), Ok(true));
    assert_eq!(set.insert(Ssn(Ssn::MAX.0 - 1), 8), Ok(true));
    assert_eq!(ReceivedSet::restore(&set.snapshot()).as_ref(), Ok(&set));
    let beyond = ReceivedSetState { upto: u64::MAX, exceptions: vec![(1, 2)] };
    assert!(matches!(ReceivedSet::restore(&beyond), Err(StateError::Exceptions { .. })));
}

proptest! {
    #[test]
    fn the_set_has_exactly_the_inserted_ssns(
        ssns in proptest::collection::vec(1u64..40, 0..60), exceptions_max in 0usize..6
    ) {
        let mut set = ReceivedSet::new();
        let mut model = BTreeSet::new();
        for ssn in ssns {
            match set.insert(Ssn(ssn), exceptions_max) {
                Ok(fresh) => prop_assert_eq!(fresh, model.insert(ssn)),
                Err(_) => {
                    prop_assert!(!model.contains(&ssn));
                    prop_assert_eq!(set.exceptions().len(), exceptions_max);
                }
            }
            prop_assert!(set.exceptions().len() <= exceptions_max);
            let upto = (1..).take_while(|ssn| model.contains(ssn)).last().unwrap_or(0);
            prop_assert_eq!(set.upto(), Ssn(upto));
            prop_assert_eq!(set.highest().0, model.last().copied().unwrap_or(0));
            for ssn in 0..42 {
                prop_assert_eq!(set.contains(Ssn(ssn)), ssn == 0 || model.contains(&ssn));
            }
        }
        prop_assert_eq!(ReceivedSet::restore(&set.snapshot()), Ok(set));
    }
}
