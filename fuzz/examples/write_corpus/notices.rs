//! Corpus for `recovery_notices`: job, faults, damaged notices, choices.

/// Returns inputs for jobs with and without damage.
///
/// The choices are pseudo-random.
pub(crate) fn jobs() -> Vec<(&'static str, Vec<u8>)> {
    let choices = |len: usize| (0..len).map(|place| (place * 7 % 5) as u8).collect::<Vec<u8>>();
    let job = |head: &[u8], len| [head, &choices(len)].concat();
    vec![
        ("empty", Vec::new()),
        ("no-failure", job(&[0, 1, 3, 1, 0, 0], 100)),
        ("undamaged-recoveries", job(&[1, 1, 3, 1 + 32, 3, 0, 30, 0, 200, 60, 3, 200, 90, 1, 1], 400)),
        ("a-hello", job(&[2, 0, 2, 1, 0, 1, 1, 5, 255], 60)),
        ("a-table", job(&[3, 1, 3, 1, 1, 2, 30, 1, 200, 20, 6, 3, 22, 9, 64], 300)),
        ("a-line", job(&[0, 2, 3, 1 + 128, 1, 3, 40, 1, 200, 28, 3, 1, 29, 7, 128, 30, 4, 255], 300)),
        ("a-floor", job(&[0, 1, 3, 1 + 64 + 8, 0, 3, 17, 2, 255, 18, 1, 255, 19, 3, 3], 300)),
    ]
}
