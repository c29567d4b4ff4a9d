//! What the log should have beside messages, written down by the program itself: what it gives to collective operations, and how often it
//! leaves an outcome to MPI.

use std::cell::RefCell;
use std::path::Path;

use zerocopy::{Immutable, IntoBytes};

thread_local! {
    static GIVEN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static OUTCOMES: RefCell<[u64; 3]> = const { RefCell::new([0; 3]) };
}

/// This rank gives something to a collective operation: its length and its bytes are added to a list.
pub(crate) fn gives<B: IntoBytes + Immutable + ?Sized>(bytes: &B) {
    GIVEN.with_borrow_mut(|given| {
        given.extend((bytes.as_bytes().len() as u64).to_le_bytes());
        given.extend(bytes.as_bytes());
    });
}

/// What is left to MPI.
#[derive(Clone, Copy)]
pub(crate) enum Open {
    /// Whose message a receive takes, or of which tag.
    Receive,
    /// Whose message a probe finds, or of which tag.
    Probe,
    /// Which of several requests ends.
    End,
}

/// This rank leaves so many outcomes to MPI.
pub(crate) fn leaves_open(what: Open, times: usize) {
    OUTCOMES.with_borrow_mut(|outcomes| outcomes[what as usize] += times as u64);
}

/// Puts it into files.
pub(crate) fn write(dir: &Path, rank: u32) -> std::io::Result<()> {
    GIVEN.with_borrow(|given| std::fs::write(dir.join(format!("given-{rank}")), given))?;
    let outcomes = OUTCOMES.with_borrow(|outcomes| outcomes.map(|count| count.to_string()).join(" "));
    std::fs::write(dir.join(format!("outcomes-{rank}")), outcomes)
}
