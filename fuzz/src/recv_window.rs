//! Fuzz body for the receive window, with a map from SSN to receive epoch as model.

use std::collections::BTreeMap;

use arbitrary::Unstructured;
use counterfoil_ack_piggyback::{Ack, AckPolicy, Arrival, Flags, RecvError, RecvWindow, Verdict};
use counterfoil_log_core::{Epoch, Incarnation, Ssn};

const POLICY: AckPolicy =
    AckPolicy { small_message_limit: 100, unacked_records_max: 6, unacked_bytes_max: 500, exceptions_max: 3 };

/// Naive model of the window.
#[derive(Default)]
struct Model {
    received_in: BTreeMap<u64, u32>,
    epoch: u32,
    incarnation: u32,
    source_sent: u64,
    acked: u64,
    ack_due: u64,
    first_logged: u32,
    /// Like `first_logged`, for duplicates.
    first_repeated: u32,
}

impl Model {
    fn upto(&self) -> u64 {
        (1..).take_while(|ssn| self.received_in.contains_key(ssn)).last().unwrap_or(0)
    }

    fn ack_limit(&self) -> u64 {
        self.upto().min(self.source_sent)
    }

    /// Returns the number of ranges beyond the first gap if `ssn` were received, too.
    fn exceptions_with(&self, ssn: u64) -> usize {
        let mut ssns: Vec<u64> = self.received_in.keys().copied().chain([ssn]).collect();
        ssns.sort_unstable();
        let ranges = ssns.chunk_by(|before, after| before + 1 == *after).count();
        ranges - usize::from(ssns.first() == Some(&1))
    }

    fn next_ack(&mut self) -> Option<Ack> {
        let first = self.acked + 1;
        let ack_limit = self.ack_limit();
        if first > ack_limit {
            return None;
        }
        let epoch = self.received_in[&first];
        let last = (first..=ack_limit).take_while(|ssn| self.received_in[ssn] == epoch).last().unwrap_or(first);
        self.acked = last;
        if self.acked >= self.ack_due {
            self.ack_due = 0;
        }
        Some(Ack { ssn: Ssn(last), epoch: Epoch(epoch) })
    }

    fn next_explicit_ack(&mut self) -> Option<Ack> {
        if self.acked < self.ack_due { self.next_ack() } else { None }
    }

    fn ack_request(&mut self, sent: u64) {
        self.source_sent = self.source_sent.max(sent);
        self.ack_due = self.ack_due.max(sent);
        if self.acked >= self.ack_limit() {
            self.acked = self.ack_limit().saturating_sub(1);
        }
    }

    fn message(&mut self, arrival: Arrival) -> Result<Verdict, RecvError> {
        let Arrival { ssn, incarnation, epoch, flags } = arrival;
        if incarnation.0 < self.incarnation {
            return Ok(Verdict::DeadIncarnation);
        }
        if incarnation.0 > self.incarnation {
            return Err(RecvError::UnknownIncarnation { seen: incarnation, known: Incarnation(self.incarnation) });
        }
        if ssn == Ssn::ZERO {
            return Err(RecvError::SsnOutOfRange { ssn });
        }
        let (verdict, receive_epoch) = match self.received_in.get(&ssn.0) {
            Some(&receive_epoch) => {
                self.acked = self.acked.min(ssn.0 - 1);
                (Verdict::Duplicate { receive_epoch: Epoch(receive_epoch) }, receive_epoch)
            }
            None => {
                if self.exceptions_with(ssn.0) > POLICY.exceptions_max {
                    let upto = Ssn(self.upto());
                    let refused =
                        counterfoil_ack_piggyback::TooManyExceptions { ssn, upto, max: POLICY.exceptions_max };
                    return Err(refused.into());
                }
                self.received_in.insert(ssn.0, self.epoch);
                (Verdict::Fresh, self.epoch)
            }
        };
        self.source_sent = self.source_sent.max(ssn.0);
        if !flags.contains(Flags::LOGGED) {
            let newest = if verdict == Verdict::Fresh { &mut self.first_logged } else { &mut self.first_repeated };
            let is_first = epoch.0 < receive_epoch && epoch.0 > *newest;
            if is_first {
                *newest = epoch.0;
            }
            if is_first || flags.contains(Flags::LARGE) {
                self.ack_due = self.ack_due.max(ssn.0);
            }
        }
        if flags.contains(Flags::ACK_REQUESTED) {
            self.ack_request(ssn.0);
        }
        Ok(verdict)
    }

    fn set_incarnation(&mut self, incarnation: u32, sent: u64) {
        if incarnation == self.incarnation {
            self.source_sent = self.source_sent.max(sent);
        } else {
            self.incarnation = incarnation;
            self.source_sent = sent;
            self.acked = 0;
            self.ack_due = 0;
            (self.first_logged, self.first_repeated) = (0, 0);
        }
    }
}

pub(crate) fn recv_window(data: &[u8]) {
    let mut window = RecvWindow::new(POLICY);
    let mut model = Model { epoch: 1, ..Model::default() };
    let mut input = Unstructured::new(data);
    while let Ok(&[step, number]) = input.bytes(2) {
        let ssn = u64::from(number % 32);
        match step % 8 {
            // In order, which random numbers rarely are...
            0 => {
                let next = model.upto() + 1;
                receive(&mut window, &mut model, next, number, step);
            }
            // ...and in any order.
            1 | 2 => receive(&mut window, &mut model, ssn, number, step),
            3 => assert_eq!(window.piggyback(), model.next_ack()),
            4 => assert_eq!(window.poll_ack(), model.next_explicit_ack()),
            5 => {
                let epoch = u32::from(number % 16);
                assert_eq!(window.begin_epoch(Epoch(epoch)).is_ok(), epoch >= model.epoch);
                model.epoch = model.epoch.max(epoch);
            }
            6 if number < 128 => {
                window.handle_ack_request(Ssn(ssn));
                model.ack_request(ssn);
            }
            6 => {
                window.reack_after(Ssn(ssn));
                model.acked = ssn.min(model.ack_limit());
            }
            _ => rare_step(&mut window, &mut model, ssn, number / 32),
        }
        compare(&window, &model);
        // Forgetting loses precision, unlike the model, so it ends the sequence.
        if step == u8::MAX {
            forget(&mut window, &model, number);
            return;
        }
    }
}

fn receive(window: &mut RecvWindow, model: &mut Model, ssn: u64, number: u8, step: u8) {
    let flags = [Flags::NONE, Flags::LARGE, Flags::LOGGED, Flags::ACK_REQUESTED];
    let incarnation = if number > 250 { model.incarnation + 1 } else { model.incarnation };
    let arrival = Arrival {
        ssn: Ssn(ssn),
        incarnation: Incarnation(incarnation.saturating_sub((number == 250).into())),
        epoch: Epoch(1 + u32::from(number / 32)),
        flags: flags[usize::from(step / 8 % 4)],
    };
    assert_eq!(window.handle_message(arrival), model.message(arrival));
}

fn rare_step(window: &mut RecvWindow, model: &mut Model, ssn: u64, which: u8) {
    match which {
        0..=3 => {
            let incarnation = model.incarnation + u32::from(which % 2);
            let set = window.set_incarnation(Incarnation(incarnation), Ssn(ssn));
            assert_eq!(set, Ok(()));
            model.set_incarnation(incarnation, ssn);
        }
        4 if model.incarnation > 0 => {
            let dead = Incarnation(model.incarnation - 1);
            assert!(window.set_incarnation(dead, Ssn(ssn)).is_err());
        }
        _ => {
            let restored = RecvWindow::restore(POLICY, &window.snapshot());
            *window = restored.expect("a window restores its own state");
            model.acked = 0;
            model.ack_due = 0;
            (model.first_logged, model.first_repeated) = (0, 0);
        }
    }
}

fn forget(window: &mut RecvWindow, model: &Model, number: u8) {
    let before = Epoch((number % 16).into());
    window.forget_epochs_before(before);
    for (&ssn, &truth) in &model.received_in {
        let (found, _) = window.receive_epochs().run_of(Ssn(ssn)).expect("something was received");
        assert!(found == Epoch(truth) || (found > Epoch(truth) && found < before), "SSN {ssn}: {found}");
    }
}

fn compare(window: &RecvWindow, model: &Model) {
    assert_eq!(window.hsr().upto(), Ssn(model.upto()));
    assert_eq!(window.acked(), Ssn(model.acked));
    assert_eq!((window.epoch(), window.incarnation()), (Epoch(model.epoch), Incarnation(model.incarnation)));
    let highest = model.received_in.last_key_value().map_or(0, |(&ssn, _)| ssn);
    assert_eq!(window.hsr().highest(), Ssn(highest));
    for (&ssn, &epoch) in &model.received_in {
        assert!(window.hsr().contains(Ssn(ssn)));
        let found = window.receive_epochs().run_of(Ssn(ssn)).map(|(epoch, _)| epoch);
        assert_eq!(found, Some(Epoch(epoch)), "SSN {ssn} of {:?}", window.receive_epochs());
    }
}
