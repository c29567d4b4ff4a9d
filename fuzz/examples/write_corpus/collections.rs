//! Collector inputs: log events.

/// Returns step sequences.
///
/// A step is two bytes: event (modulo 8) and lane (divided by 8, modulo 3), and a number. Settling a chunk has a third
/// byte: percentage in use.
pub(crate) fn collections() -> Vec<(&'static str, Vec<u8>)> {
    const SETTLE: u8 = 0;
    const FLOOR: u8 = 4;
    const EPOCHS: u8 = 5;
    const FORGET: u8 = 6;
    const COLLECT: u8 = 7;
    // Numbers selecting a chunk size.
    const SMALL: u8 = 0;
    const BIG: u8 = 4;
    // Added to a size: every sixteen add a record, every five an epoch.
    let dense_between_sparse: Vec<u8> =
        (0..20u8).flat_map(|i| [SETTLE, if i % 2 == 0 { SMALL } else { BIG }, 50 - i % 2 * 49]).collect();
    vec![
        ("empty", Vec::new()),
        ("released-at-once", vec![SETTLE, BIG, 0, COLLECT, 0]),
        ("sparse-chunks-merge", [[SETTLE, BIG, 1]; 30].concat()),
        ("small-chunks-merge", [[SETTLE, SMALL, 1]; 30].concat()),
        ("dense-between-sparse", dense_between_sparse),
        (
            "half-used-between-sparse",
            (0..20u8).flat_map(|i| if i % 2 == 0 { [SETTLE, BIG, 50] } else { [SETTLE, SMALL, 1] }).collect(),
        ),
        (
            "floor-in-the-middle",
            [&[SETTLE, BIG + 240, 100][..], &[FLOOR, 3, COLLECT, 0, FLOOR, 4, COLLECT, 0, FLOOR, 30, COLLECT, 0]]
                .concat(),
        ),
        (
            "epochs-free-all-lanes",
            vec![
                SETTLE,
                5,
                100,
                SETTLE,
                10,
                100,
                SETTLE + 8,
                5,
                100,
                SETTLE + 16,
                15,
                100,
                EPOCHS,
                128 + 2,
                COLLECT,
                0,
                EPOCHS,
                3,
                COLLECT,
                0,
                EPOCHS,
                128 + 7,
                COLLECT,
                0,
            ],
        ),
        (
            "settled-again-after-rollback",
            vec![
                SETTLE,
                5 + 35,
                100,
                SETTLE,
                10 + 35,
                60,
                FORGET,
                1,
                SETTLE,
                30,
                100,
                EPOCHS,
                130,
                COLLECT,
                0,
                FORGET,
                0,
                COLLECT,
                0,
            ],
        ),
    ]
}
