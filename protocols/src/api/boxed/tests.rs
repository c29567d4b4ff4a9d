use counterfoil_log_core::Ssn;

use super::super::{COMMAND, CollectiveClass, EntryKind, Kept, Misbehaviour, Repetition};
use super::*;

const A: Rank = Rank(1);
const ENTRY: EntryKey = EntryKey { kind: EntryKind::Note, number: 2 };
const CALL: CollectiveCall = CollectiveCall { class: CollectiveClass::Barrier, comm: 3, number: 4, uniform: true };
const CHOICE: Determinant = Determinant { sequence: 5, source: A, ssn: Ssn(6) };
const PROPERTIES: Properties =
    Properties { repeats: Repetition::Sends, keeps: Kept::Nothing, rolls_back_survivors: true, has_coordinator: false };

/// Rule that refuses every event, with an error that names the event and has its arguments, and whose state differs from the defaults.
#[derive(Debug)]
struct Refusing {
    running: bool,
    recovering: bool,
    wants_checkpoint: bool,
}

/// Returns the error that event `number` is refused with.
fn refused(rank: Rank, number: u32) -> ProtocolError {
    ProtocolError::UnknownRank { rank, ranks: number }
}

fn no_choice(number: u64) -> ChoiceError {
    ChoiceError::NotOpen { sequence: number }
}

impl Protocol for Refusing {
    fn properties(&self) -> Properties {
        PROPERTIES
    }

    fn epoch(&self) -> Epoch {
        Epoch(7)
    }

    fn incarnation(&self) -> Incarnation {
        Incarnation(8)
    }

    fn handle_send(&mut self, envelope: &Envelope) -> Result<Outgoing, ProtocolError> {
        Err(refused(envelope.destination, 1))
    }

    fn handle_transmit(&mut self, header: &mut WireHeader) -> Result<(), ProtocolError> {
        Err(refused(header.source(), 2))
    }

    fn handle_message(&mut self, header: &WireHeader) -> Result<Incoming, ProtocolError> {
        Err(refused(header.source(), 3))
    }

    fn handle_deferred(&mut self, header: &WireHeader) -> Result<(), ProtocolError> {
        Err(refused(header.source(), 4))
    }

    fn handle_control(&mut self, from: Party, header: &WireHeader, body: &[u8]) -> Result<(), ProtocolError> {
        let how = Misbehaviour::MalformedNotice { tag: header.tag(), len: body.len() };
        Err(ProtocolError::PeerMisbehaved { peer: if from == Party::Coordinator { A } else { Rank(0) }, how })
    }

    fn next_choice(&mut self) -> NextChoice {
        NextChoice { sequence: 5, forced: Some(CHOICE) }
    }

    fn handle_choice(&mut self, choice: Determinant) -> Result<Option<ChoiceRecord>, ChoiceError> {
        Err(no_choice(choice.sequence))
    }

    fn handle_recovered_choice(&mut self, record: &[u8]) -> Result<(), ChoiceError> {
        Err(no_choice(10 + record.len() as u64))
    }

    fn handle_recovered_delivery(&mut self, record: &[u8]) -> Result<(), ChoiceError> {
        Err(no_choice(20 + record.len() as u64))
    }

    fn handle_collective(&mut self, call: &CollectiveCall) -> Result<CollectivePlan, ProtocolError> {
        Err(refused(Rank(call.comm), 5))
    }

    fn handle_collective_words(
        &mut self,
        call: &CollectiveCall,
        words: &[(Rank, u64)],
    ) -> Result<Option<EntryKey>, ProtocolError> {
        Err(refused(Rank(call.comm), 10 + words.len() as u32))
    }

    fn handle_collective_completed(&mut self, call: &CollectiveCall) -> Result<(), ProtocolError> {
        Err(refused(Rank(call.comm), 6))
    }

    fn handle_collective_failed(&mut self, call: &CollectiveCall) -> Result<(), ProtocolError> {
        Err(refused(Rank(call.comm), 7))
    }

    fn handle_recovered_entry(&mut self, entry: EntryKey, bytes: &[u8]) -> Result<bool, ProtocolError> {
        Err(refused(Rank(entry.number as u32), 20 + bytes.len() as u32))
    }

    fn handle_entry(&mut self, from: Rank, entry: EntryKey, bytes: &[u8]) -> Result<bool, ProtocolError> {
        Err(refused(from, 30 + entry.number as u32 + bytes.len() as u32))
    }

    fn is_running(&self) -> bool {
        self.running
    }

    fn is_recovering(&self) -> bool {
        self.recovering
    }

    fn first_checkpoint(&self) -> Option<Snapshot> {
        Some(Snapshot { epoch: Epoch(9), tables: vec![1] })
    }

    fn wants_checkpoint(&mut self) -> bool {
        self.wants_checkpoint
    }

    fn handle_checkpoint(&mut self) -> Result<Snapshot, ProtocolError> {
        Err(refused(A, 8))
    }

    fn handle_checkpoint_durable(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        Err(ProtocolError::NotCheckpointing { epoch })
    }

    fn handle_log_sealed(&mut self, epoch: Epoch) -> Result<(), ProtocolError> {
        Err(refused(Rank(epoch.0), 9))
    }

    fn restore(&mut self, tables: &[u8], oldest: Epoch) -> Result<(), RestoreError> {
        Err(RestoreError::Malformed { len: tables.len() + oldest.0 as usize })
    }

    fn handle_peer_lost(&mut self, peer: Rank) -> Result<(), ProtocolError> {
        Err(refused(peer, 10))
    }

    fn hello(&self, peer: Rank) -> Result<Hello, ProtocolError> {
        Err(refused(peer, 11))
    }

    fn handle_hello(&mut self, peer: Rank, hello: &Hello) -> Result<(), ProtocolError> {
        Err(refused(peer, hello.epoch.0))
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        Some(Effect::RollBack { epoch: Epoch(10) })
    }
}

fn header() -> WireHeader {
    super::super::command_header(A, &[0])
}

fn boxed() -> Box<dyn Protocol> {
    Box::new(Refusing { running: true, recovering: false, wants_checkpoint: true })
}

#[test]
fn a_boxed_rule_has_the_state_of_the_one_in_the_box() {
    let mut rule = boxed();
    assert_eq!((rule.properties(), rule.epoch(), rule.incarnation()), (PROPERTIES, Epoch(7), Incarnation(8)));
    for flag in 0..8 {
        let [running, recovering, wants_checkpoint] = [1, 2, 4].map(|bit| flag & bit != 0);
        let mut rule: Box<dyn Protocol> = Box::new(Refusing { running, recovering, wants_checkpoint });
        let answers = (rule.is_running(), rule.is_recovering(), rule.wants_checkpoint());
        assert_eq!(answers, (running, recovering, wants_checkpoint));
    }
    assert_eq!(rule.first_checkpoint(), Some(Snapshot { epoch: Epoch(9), tables: vec![1] }));
    assert_eq!(rule.next_choice(), NextChoice { sequence: 5, forced: Some(CHOICE) });
    assert!(matches!(rule.poll_effect(), Some(Effect::RollBack { epoch: Epoch(10) })));
}

#[test]
fn a_boxed_rule_refuses_messages_as_the_one_in_the_box() {
    let (mut rule, mut header) = (boxed(), header());
    let envelope = Envelope { source: Rank(0), destination: A, tag: 0, comm: 0, len: 0 };
    assert_eq!(rule.handle_send(&envelope).map(drop), Err(refused(A, 1)));
    assert_eq!(rule.handle_transmit(&mut header), Err(refused(A, 2)));
    assert_eq!(rule.handle_message(&header), Err(refused(A, 3)));
    assert_eq!(rule.handle_deferred(&header), Err(refused(A, 4)));
    let how = Misbehaviour::MalformedNotice { tag: COMMAND, len: 3 };
    let misbehaved = Err(ProtocolError::PeerMisbehaved { peer: A, how });
    assert_eq!(rule.handle_control(Party::Coordinator, &header, &[0; 3]), misbehaved);
    assert_eq!(rule.handle_peer_lost(A), Err(refused(A, 10)));
    assert_eq!(rule.hello(A), Err(refused(A, 11)));
    let hello = Hello {
        rank: A,
        incarnation: Incarnation(0),
        epoch: Epoch(12),
        received: counterfoil_ack_piggyback::ReceivedSet::new(),
        covered: (Epoch::FIRST, Ssn::ZERO),
        sent: Ssn::ZERO,
        acked: Ssn::ZERO,
        opaque: Vec::new(),
    };
    assert_eq!(rule.handle_hello(A, &hello), Err(refused(A, 12)));
}

#[test]
fn a_boxed_rule_refuses_choices_and_collectives_as_the_one_in_the_box() {
    let mut rule = boxed();
    assert_eq!(rule.handle_choice(CHOICE), Err(no_choice(5)));
    assert_eq!(rule.handle_recovered_choice(&[0; 2]), Err(no_choice(12)));
    assert_eq!(rule.handle_recovered_delivery(&[0; 2]), Err(no_choice(22)));
    let comm = Rank(CALL.comm);
    assert_eq!(rule.handle_collective(&CALL), Err(refused(comm, 5)));
    assert_eq!(rule.handle_collective_words(&CALL, &[(A, 0); 2]), Err(refused(comm, 12)));
    assert_eq!(rule.handle_collective_completed(&CALL), Err(refused(comm, 6)));
    assert_eq!(rule.handle_collective_failed(&CALL), Err(refused(comm, 7)));
    assert_eq!(rule.handle_recovered_entry(ENTRY, &[0; 3]), Err(refused(Rank(2), 23)));
    assert_eq!(rule.handle_entry(A, ENTRY, &[0; 3]), Err(refused(A, 35)));
}

#[test]
fn a_boxed_rule_refuses_checkpoints_as_the_one_in_the_box() {
    let mut rule = boxed();
    assert_eq!(rule.handle_checkpoint(), Err(refused(A, 8)));
    assert_eq!(rule.handle_checkpoint_durable(Epoch(3)), Err(ProtocolError::NotCheckpointing { epoch: Epoch(3) }));
    assert_eq!(rule.handle_log_sealed(Epoch(3)), Err(refused(Rank(3), 9)));
    assert_eq!(rule.restore(&[0; 4], Epoch(3)), Err(RestoreError::Malformed { len: 7 }));
}
