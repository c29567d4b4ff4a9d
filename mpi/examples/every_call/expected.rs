//! Log entries expected in addition to messages: contributions to collective operations, and the number of
//! determinants.

use std::cell::RefCell;
use std::path::Path;

use zerocopy::{Immutable, IntoBytes};

thread_local! {
    static CONTRIBUTIONS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static DETERMINANTS: RefCell<[u64; 3]> = const { RefCell::new([0; 3]) };
}

/// Expects a contribution from this rank to a collective operation: adds its length and its bytes to a list.
pub(crate) fn expect_contribution<B: IntoBytes + Immutable + ?Sized>(bytes: &B) {
    CONTRIBUTIONS.with_borrow_mut(|list| {
        list.extend((bytes.as_bytes().len() as u64).to_le_bytes());
        list.extend(bytes.as_bytes());
    });
}

/// A choice left to MPI by the program.
#[derive(Clone, Copy)]
pub(crate) enum Determinant {
    /// Source or tag of a received message.
    Receive,
    /// Source or tag of a probed message.
    Probe,
    /// Completed request among several.
    Completion,
}

/// Expects this many determinants from this rank.
pub(crate) fn expect_determinants(kind: Determinant, count: usize) {
    DETERMINANTS.with_borrow_mut(|counts| counts[kind as usize] += count as u64);
}

/// Writes the expectations to files.
pub(crate) fn write(dir: &Path, rank: u32) -> std::io::Result<()> {
    CONTRIBUTIONS.with_borrow(|list| std::fs::write(dir.join(format!("contributions-{rank}")), list))?;
    let counts = DETERMINANTS.with_borrow(|counts| counts.map(|count| count.to_string()).join(" "));
    std::fs::write(dir.join(format!("determinants-{rank}")), counts)
}
