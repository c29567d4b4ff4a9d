//! Inputs for the send and receive windows.

/// Returns step sequences.
///
/// A step is two bytes: event (modulo 8; the quotient selects flags), and a number.
pub(crate) fn windows() -> Vec<(&'static str, Vec<u8>)> {
    const RECEIVER: u8 = 0;
    const SENDER: u8 = 1;
    // Receiver events: next message, message with this SSN, piggyback, explicit ack, begin epoch, ack request,
    // replacement.
    const NEXT: u8 = 0;
    const RECEIVE: u8 = 1;
    const PIGGYBACK: u8 = 3;
    const EXPLICIT: u8 = 4;
    const EPOCH: u8 = 5;
    const REQUEST: u8 = 6;
    const REPLACED: u8 = 7;
    // Flags of a received message.
    const LARGE: u8 = 8;
    const ACK_REQUESTED: u8 = 24;
    // Sender events.
    const STAMP: u8 = 0;
    const ACK: u8 = 3;
    const ROLLED_BACK: u8 = 6;
    const RESTORED: u8 = 7;
    // An ack for receive epoch 2.
    const ACK_2: u8 = ACK + 8;
    let steps = |end: u8, steps: &[(u8, u8)]| {
        let bytes = steps.iter().flat_map(|&(step, number)| [step, number]);
        [end].into_iter().chain(bytes).collect::<Vec<u8>>()
    };
    vec![
        ("empty", Vec::new()),
        (
            "acks-split-at-epochs",
            steps(
                RECEIVER,
                &[
                    (NEXT, 0),
                    (NEXT, 0),
                    (EPOCH, 2),
                    (NEXT, 0),
                    (EPOCH, 3),
                    (NEXT, 0),
                    (PIGGYBACK, 0),
                    (REQUEST, 4),
                    (EXPLICIT, 0),
                    (EXPLICIT, 0),
                    (EXPLICIT, 0),
                ],
            ),
        ),
        (
            "overtaken-across-an-epoch",
            steps(
                RECEIVER,
                &[
                    (RECEIVE, 1),
                    (RECEIVE, 2),
                    (RECEIVE, 4),
                    (PIGGYBACK, 0),
                    (EPOCH, 2),
                    (RECEIVE, 3),
                    (RECEIVE, 5),
                    (PIGGYBACK, 0),
                    (PIGGYBACK, 0),
                    (PIGGYBACK, 0),
                    (RECEIVE, 4),
                ],
            ),
        ),
        (
            "too-many-exceptions",
            steps(
                RECEIVER,
                &[
                    (RECEIVE, 2),
                    (RECEIVE, 4),
                    (RECEIVE, 6),
                    (RECEIVE, 8),
                    (RECEIVE, 5),
                    (RECEIVE, 8),
                    (RECEIVE, 3),
                    (RECEIVE, 1),
                ],
            ),
        ),
        (
            "repeated-duplicates",
            steps(
                RECEIVER,
                &[
                    (NEXT, 0),
                    (NEXT + LARGE, 0),
                    (EXPLICIT, 0),
                    (RECEIVE, 1),
                    (EXPLICIT, 0),
                    (PIGGYBACK, 0),
                    (RECEIVE, 2),
                    (RECEIVE + LARGE, 2),
                    (EXPLICIT, 0),
                ],
            ),
        ),
        (
            "sender-replaced",
            steps(
                RECEIVER,
                &[
                    (NEXT, 0),
                    (NEXT, 0),
                    (EPOCH, 2),
                    (NEXT, 0),
                    (PIGGYBACK, 0),
                    (PIGGYBACK, 0),
                    (REPLACED, 32 + 2),
                    (PIGGYBACK, 0),
                    (PIGGYBACK, 0),
                    (RECEIVE, 3),
                    (PIGGYBACK, 0),
                    (RECEIVE, 250),
                    (REPLACED, 4 * 32),
                ],
            ),
        ),
        (
            "receiver-replaced",
            steps(
                RECEIVER,
                &[
                    (NEXT, 0),
                    (NEXT, 0),
                    (PIGGYBACK, 0),
                    (REPLACED, 7 * 32),
                    (PIGGYBACK, 0),
                    (NEXT + ACK_REQUESTED, 0),
                    (EXPLICIT, 0),
                ],
            ),
        ),
        ("forgotten-epochs", steps(RECEIVER, &[(NEXT, 0), (EPOCH, 2), (NEXT, 0), (EPOCH, 5), (NEXT, 0), (u8::MAX, 5)])),
        (
            "mark-set-and-cleared",
            steps(
                SENDER,
                &[
                    (STAMP, 9),
                    (STAMP, 9),
                    (ACK_2, 1),
                    (STAMP, 200),
                    (ROLLED_BACK, 0),
                    (STAMP, 9),
                    (ACK, 3),
                    (5, 2),
                    (STAMP, 1),
                ],
            ),
        ),
        (
            "ack-requested-once",
            steps(
                SENDER,
                &[
                    (STAMP, 9),
                    (STAMP, 9),
                    (STAMP, 9),
                    (STAMP, 9),
                    (STAMP, 9),
                    (STAMP, 9),
                    (STAMP, 9),
                    (STAMP, 9),
                    (ACK, 1),
                    (ACK, 8),
                    (ACK, 9),
                ],
            ),
        ),
        (
            "sender-restored",
            steps(SENDER, &[(STAMP, 250), (STAMP, 250), (ACK_2, 1), (RESTORED, 0), (STAMP, 250), (ACK, 3)]),
        ),
        ("more-messages-than-marks", {
            let mut input = vec![SENDER];
            input.extend((0..150u8).flat_map(|len| [STAMP, len]));
            input.extend((1..=15u8).flat_map(|tenth| [ACK, tenth * 10]));
            input
        }),
    ]
}
