//! Fuzz body for the send window, with a list of lengths as model.

use arbitrary::Unstructured;
use counterfoil_ack_piggyback::{Ack, AckError, AckPolicy, Acked, Flags, SendWindow};
use counterfoil_log_core::{Epoch, Ssn};

const POLICY: AckPolicy =
    AckPolicy { small_message_limit: 100, unacked_records_max: 6, unacked_bytes_max: 500, exceptions_max: 0 };

struct Model {
    /// Lengths of all messages, from SSN 1.
    lens: Vec<u64>,
    acked: usize,
    epoch: Epoch,
    /// Newest receive epoch known to be valid.
    receiver_epoch: Epoch,
    ack_requested: bool,
    /// `true` if the window's `unacked_bytes` must be exact: only with few messages, and none forgotten by it.
    exact: bool,
}

pub(crate) fn send_window(data: &[u8]) {
    let mut window = SendWindow::new(POLICY);
    let mut model = Model {
        lens: Vec::new(),
        acked: 0,
        epoch: Epoch::FIRST,
        receiver_epoch: Epoch(0),
        ack_requested: false,
        exact: true,
    };
    let mut input = Unstructured::new(data);
    while let Ok(&[step, number]) = input.bytes(2) {
        match step % 8 {
            0..=2 => stamp(&mut window, &mut model, number),
            3 | 4 => ack(&mut window, &mut model, number, step / 8),
            5 => begin_epoch(&mut window, &mut model, number),
            6 => {
                window.receiver_rolled_back(Ssn(number.into()));
                model.exact &= usize::from(number) >= model.acked;
                model.acked = model.acked.min(number.into());
                model.receiver_epoch = Epoch(0);
                model.ack_requested = false;
            }
            _ => {
                let restored = SendWindow::restore(POLICY, &window.snapshot());
                window = restored.expect("a window restores its own state");
                model.receiver_epoch = Epoch(0);
                model.ack_requested = false;
                // The bytes are restored as one sum.
                model.exact &= model.acked == model.lens.len();
            }
        }
        compare(&mut window, &mut model);
    }
}

fn stamp(window: &mut SendWindow, model: &mut Model, number: u8) {
    let len = usize::from(number);
    let stamp = window.stamp(len).expect("a short sequence doesn't exhaust the SSNs");
    model.lens.push(len as u64);
    assert_eq!(stamp.ssn.0, model.lens.len() as u64);
    assert_eq!(stamp.flags.contains(Flags::LARGE), len > 100);
    assert_eq!(stamp.flags.contains(Flags::LOGGED), model.receiver_epoch > model.epoch);
}

fn ack(window: &mut SendWindow, model: &mut Model, number: u8, epoch: u8) {
    let ack = Ack { ssn: Ssn(number.into()), epoch: Epoch(1 + u32::from(epoch)) };
    let upto = usize::from(number);
    let result = window.handle_ack(ack);
    if upto > model.lens.len() {
        assert_eq!(result, Err(AckError::BeyondSent { acked: ack.ssn, sent: Ssn(model.lens.len() as u64) }));
    } else if upto <= model.acked {
        assert_eq!(result, Ok(Acked::Stale));
    } else {
        let first = Ssn(model.acked as u64 + 1);
        assert_eq!(result, Ok(Acked::Run { first, last: ack.ssn, epoch: ack.epoch }));
        model.acked = upto;
        model.receiver_epoch = model.receiver_epoch.max(ack.epoch);
        model.ack_requested = false;
    }
}

fn begin_epoch(window: &mut SendWindow, model: &mut Model, number: u8) {
    let epoch = Epoch(number.into());
    assert_eq!(window.begin_epoch(epoch).is_ok(), epoch >= model.epoch);
    model.epoch = model.epoch.max(epoch);
}

fn compare(window: &mut SendWindow, model: &mut Model) {
    let unacked = &model.lens[model.acked..];
    assert_eq!(window.acked(), Ssn(model.acked as u64));
    assert_eq!(window.unacked_records(), unacked.len() as u64);
    assert_eq!(window.already_logged(), model.receiver_epoch > model.epoch);
    if unacked.is_empty() {
        assert_eq!(window.unacked_bytes(), 0);
        model.exact = true;
    }
    // With more unacknowledged messages than the window has marks, it may count too many bytes.
    model.exact &= unacked.len() <= 64;
    if model.exact {
        assert_eq!(window.unacked_bytes(), unacked.iter().sum::<u64>());
    }
    let too_much = window.unacked_records() > 6 || window.unacked_bytes() > 500;
    assert_eq!(window.poll_ack_request(), too_much && !model.ack_requested);
    model.ack_requested |= too_much;
}
