//! Clock readings in several incarnations of one rank.

use counterfoil_runtime::{Communicator, Tier};

use crate::lone_rank::{Files, LoneRank};

/// Reads clocks, which show what `now` says.
fn read(rank: &mut LoneRank, clock: u8, now: &[u64]) -> Vec<u64> {
    now.iter().map(|now| rank.reading(clock, |_, _| *now).unwrap()).collect()
}

#[test]
fn what_a_send_can_depend_on_is_repeated() {
    let files = Files::new();
    let mut first = files.start(0, Tier::ProcessCrashSafe, Vec::new()).unwrap();
    assert_eq!(read(&mut first, 0, &[5, 5, 5, 7, 7]), [5, 5, 5, 7, 7]);
    assert_eq!(read(&mut first, 3, &[0, 0]), [0, 0]);
    first.send(1, 1, b"depends on them").unwrap();
    // Nobody has seen the last ones.
    assert_eq!(read(&mut first, 0, &[7, 7, 7]), [7, 7, 7]);
    drop(first);

    let mut second = files.start(1, Tier::ProcessCrashSafe, Vec::new()).unwrap();
    assert_eq!(read(&mut second, 0, &[100; 6]), [5, 5, 5, 7, 7, 100]);
    assert_eq!(read(&mut second, 3, &[100; 3]), [0, 0, 100]);
    second.send(1, 1, b"depends on them").unwrap();
    drop(second);

    let mut third = files.start(2, Tier::ProcessCrashSafe, Vec::new()).unwrap();
    assert_eq!(read(&mut third, 0, &[200; 7]), [5, 5, 5, 7, 7, 100, 200]);
}

#[test]
fn a_clock_goes_on_from_its_last_reading() {
    let files = Files::new();
    let mut first = files.start(0, Tier::ProcessCrashSafe, Vec::new()).unwrap();
    read(&mut first, 0, &[90]);
    drop(first);
    let mut second = files.start(1, Tier::ProcessCrashSafe, Vec::new()).unwrap();
    read(&mut second, 0, &[0]);
    assert_eq!(second.reading(0, |last, _| last.max(10)).unwrap(), 90);
}

#[test]
fn a_clock_that_stands_still_needs_no_memory() {
    let files = Files::new();
    let mut rank = files.start(0, Tier::ProcessCrashSafe, Vec::new()).unwrap();
    for _ in 0..100_000 {
        rank.reading(0, |_, _| 3).unwrap();
    }
    rank.send(1, 1, b"").unwrap();
    assert_eq!(rank.tally().choices_logged, 2);
}
