//! Statements about the user-level rule, each shown on two or three state machines without a network.

use counterfoil_ack_piggyback::AckPolicy;
use counterfoil_log_core::{Epoch, Incarnation, Rank};
use counterfoil_protocols::api::{
    CollectiveCall, CollectiveClass, CollectivePlan, Effect, EntryKey, EntryKind, Hello, Misbehaviour, Party, Protocol,
    ProtocolError, RestoreError,
};
use counterfoil_protocols::sender_based::SenderBased;
use counterfoil_protocols::user_level::{Config, Counts, UserLevel};

const A: Rank = Rank(0);
const B: Rank = Rank(1);
const C: Rank = Rank(2);
const COMM: u32 = 1;

fn config(rank: Rank, incarnation: u32) -> Config {
    Config { rank, ranks: 3, incarnation: Incarnation(incarnation), policy: AckPolicy::default() }
}

fn rank(rank: Rank, incarnation: u32) -> UserLevel {
    UserLevel::new(config(rank, incarnation)).unwrap()
}

fn call(class: CollectiveClass, number: u64) -> CollectiveCall {
    CollectiveCall { class, comm: COMM, number, uniform: true }
}

fn barrier(number: u64) -> CollectiveCall {
    call(CollectiveClass::Barrier, number)
}

fn allreduce(number: u64) -> CollectiveCall {
    call(CollectiveClass::AllToAll, number)
}

fn native(call: &CollectiveCall) -> CollectivePlan {
    let keep = (call.class != CollectiveClass::Barrier).then(|| call.entry());
    CollectivePlan::Native { keep }
}

/// Makes calls natively.
fn make(rank: &mut UserLevel, calls: &[CollectiveCall]) {
    for call in calls {
        assert_eq!(rank.handle_collective(call), Ok(native(call)));
        rank.handle_collective_completed(call).unwrap();
    }
}

fn effects(of: &mut UserLevel) -> Vec<Effect> {
    std::iter::from_fn(|| of.poll_effect()).collect()
}

/// Exchanges Hellos, and then all resulting frames between the two; frames to others are dropped.
fn meet(one: (Rank, &mut UserLevel), other: (Rank, &mut UserLevel)) {
    let hellos = (one.1.hello(other.0).unwrap(), other.1.hello(one.0).unwrap());
    other.1.handle_hello(one.0, &hellos.0).unwrap();
    one.1.handle_hello(other.0, &hellos.1).unwrap();
    exchange((one.0, &mut *one.1), (other.0, &mut *other.1));
    exchange((other.0, other.1), (one.0, one.1));
}

/// Carries what one rank sends to another; returns the entries among it.
fn exchange(from: (Rank, &mut UserLevel), to: (Rank, &mut UserLevel)) -> Vec<EntryKey> {
    let mut sent = Vec::new();
    for effect in effects(from.1) {
        match effect {
            Effect::SendEntry { to: peer, entry } if peer == to.0 => {
                to.1.handle_entry(from.0, entry, &[]).unwrap();
                sent.push(entry);
            }
            Effect::Transmit { to: Party::Rank(peer), header, body } if peer == to.0 => {
                to.1.handle_control(Party::Rank(from.0), &header, &body).unwrap();
            }
            _ => {}
        }
    }
    sent
}

#[test]
fn calls_are_counted_by_communicator_and_kind() {
    let mut a = rank(A, 0);
    make(&mut a, &[barrier(0), allreduce(1), call(CollectiveClass::FromRoot(B), 2), barrier(3)]);
    assert_eq!(a.counts(COMM), Counts { next: 4, barriers: 2, from_root: 1, all_to_all: 1 });
    assert_eq!(a.counts(COMM + 1), Counts::default());
}

#[test]
fn a_replacement_skips_barriers_and_gets_results_of_calls_that_a_survivor_has_completed() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 1));
    make(&mut a, &[barrier(0), allreduce(1)]);
    meet((A, &mut a), (B, &mut b));
    assert_eq!(b.handle_collective(&barrier(0)), Ok(CollectivePlan::Skip));
    b.handle_collective_completed(&barrier(0)).unwrap();
    assert_eq!(b.handle_collective(&allreduce(1)), Ok(CollectivePlan::Recorded(allreduce(1).entry())));
    b.handle_collective_completed(&allreduce(1)).unwrap();
    // No rank has completed the next.
    make(&mut b, &[allreduce(2)]);
    assert_eq!(a.counts(COMM).next, 2);
}

#[test]
fn a_call_is_held_until_its_result_has_come() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 1));
    make(&mut a, &[allreduce(0)]);
    let hello = a.hello(B).unwrap();
    b.handle_hello(A, &hello).unwrap();
    assert_eq!(b.handle_collective(&allreduce(0)), Ok(CollectivePlan::Hold));
    effects(&mut b);
    assert_eq!(b.handle_entry(A, allreduce(0).entry(), &[]), Ok(true));
    assert!(effects(&mut b).iter().any(|effect| matches!(effect, Effect::Resume)));
    assert_eq!(b.handle_collective(&allreduce(0)), Ok(CollectivePlan::Recorded(allreduce(0).entry())));
    // A second copy is useless.
    assert_eq!(b.handle_entry(C, allreduce(0).entry(), &[]), Ok(false));
}

/// A has completed the call with the contribution from B's dead process; C has not, and waits in it.
#[test]
fn a_result_is_forwarded_to_a_rank_that_still_waits_in_the_call() {
    let (mut a, mut b, mut c) = (rank(A, 0), rank(B, 1), rank(C, 0));
    make(&mut a, &[allreduce(0)]);
    assert_eq!(c.handle_collective(&allreduce(0)), Ok(native(&allreduce(0))));
    meet((C, &mut c), (B, &mut b));
    meet((A, &mut a), (B, &mut b));
    assert_eq!(c.handle_collective(&allreduce(0)), Ok(native(&allreduce(0))));
    assert_eq!(b.handle_collective(&allreduce(0)), Ok(CollectivePlan::Recorded(allreduce(0).entry())));
    b.handle_collective_completed(&allreduce(0)).unwrap();
    assert_eq!(exchange((B, &mut b), (C, &mut c)), [allreduce(0).entry()]);
    assert_eq!(c.handle_collective(&allreduce(0)), Ok(CollectivePlan::Recorded(allreduce(0).entry())));
}

/// B has A's first Hello, and A has none from B, when their connection breaks.
#[test]
fn survivors_of_whom_one_had_met_the_other_meet_again_as_after_a_replacement() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    let first = a.hello(B).unwrap();
    b.handle_hello(A, &first).unwrap();
    make(&mut a, &[call(CollectiveClass::FromRoot(C), 0)]);
    meet((A, &mut a), (B, &mut b));
    let entry = call(CollectiveClass::FromRoot(C), 0).entry();
    assert_eq!(b.handle_collective(&call(CollectiveClass::FromRoot(C), 0)), Ok(CollectivePlan::Recorded(entry)));
}

/// Calls completed by A had the contribution of B, or did without it.
#[test]
fn first_processes_that_meet_for_the_first_time_take_part_in_every_call() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 0));
    make(&mut a, &[call(CollectiveClass::FromRoot(C), 0)]);
    meet((A, &mut a), (B, &mut b));
    make(&mut b, &[call(CollectiveClass::FromRoot(C), 0)]);
}

#[test]
fn a_result_is_dropped_once_every_ranks_durable_checkpoint_is_beyond_it() {
    let mut ranks = [rank(A, 0), rank(B, 0), rank(C, 0)];
    let [a, b, c] = &mut ranks;
    for (name, rank) in [(A, &mut *a), (B, &mut *b), (C, &mut *c)] {
        make(rank, &[allreduce(0), allreduce(1)]);
        let epoch = rank.handle_checkpoint().unwrap().epoch;
        rank.handle_checkpoint_durable(epoch).unwrap();
        assert_eq!(rank.epoch(), Epoch(2), "{name}");
    }
    let is_dropped = |of: &mut UserLevel| {
        effects(of).iter().any(|effect| {
            let first = allreduce(0).entry().number;
            matches!(effect, Effect::DiscardEntries { kind: EntryKind::Collective, first: from, last }
                if *from <= first && *last == first + 1)
        })
    };
    exchange((B, b), (A, a));
    assert!(!is_dropped(a));
    exchange((C, c), (A, a));
    assert!(is_dropped(a));
}

#[test]
fn a_call_whose_result_differs_by_rank_runs_as_messages() {
    let mut a = rank(A, 1);
    for class in [CollectiveClass::FromRoot(A), CollectiveClass::ToRoot(B), CollectiveClass::AllToAll] {
        let apart = CollectiveCall { uniform: false, ..call(class, 0) };
        assert_eq!(a.handle_collective(&apart), Ok(CollectivePlan::AsMessages));
    }
}

#[test]
fn a_replacement_continues_from_the_counts_of_its_checkpoint_and_the_results_of_its_log() {
    let mut before = rank(A, 0);
    make(&mut before, &[barrier(0), allreduce(1)]);
    let tables = before.handle_checkpoint().unwrap().tables;
    let mut after = rank(A, 1);
    after.restore(&tables, Epoch::FIRST).unwrap();
    assert_eq!(after.counts(COMM), before.counts(COMM));
    assert_eq!(after.handle_recovered_entry(allreduce(2).entry(), &[]), Ok(false));
    assert_eq!(after.handle_collective(&allreduce(2)), Ok(CollectivePlan::Recorded(allreduce(2).entry())));
    // The other rules' tables are refused, and they refuse these.
    let mut core = SenderBased::new(config(A, 1)).unwrap();
    assert!(matches!(core.restore(&tables, Epoch::FIRST), Err(RestoreError::Version { .. })));
    let tables = SenderBased::new(config(A, 0)).unwrap().handle_checkpoint().unwrap().tables;
    assert!(matches!(rank(A, 1).restore(&tables, Epoch::FIRST), Err(RestoreError::Version { .. })));
}

#[test]
fn what_contradicts_the_rule_is_refused() {
    let (mut a, mut b) = (rank(A, 0), rank(B, 1));
    make(&mut a, &[barrier(0)]);
    let again = ProtocolError::CollectiveCompleted { comm: COMM, number: 0, next: 1 };
    assert_eq!(a.handle_collective(&barrier(0)), Err(again));

    make(&mut b, &[allreduce(0)]);
    let hello = b.hello(A).unwrap();
    let how = Misbehaviour::OtherCollectives { comm: COMM };
    assert_eq!(a.handle_hello(B, &hello), Err(ProtocolError::PeerMisbehaved { peer: B, how }));
    let malformed = Hello { opaque: vec![9], ..hello };
    let refused = a.handle_hello(B, &malformed);
    let is_malformed = |how: &Misbehaviour| matches!(how, Misbehaviour::MalformedNotice { len: 1, .. });
    assert!(matches!(refused, Err(ProtocolError::PeerMisbehaved { peer: B, how }) if is_malformed(&how)));

    let entry = EntryKey { kind: EntryKind::Note, number: 0 };
    assert_eq!(a.handle_entry(B, entry, &[]), Err(ProtocolError::UnexpectedEntry { entry }));
    assert_eq!(a.handle_recovered_entry(entry, &[]), Err(ProtocolError::UnexpectedEntry { entry }));
}
