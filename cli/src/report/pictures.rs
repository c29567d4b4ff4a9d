//! The report's pictures, as SVG.

mod bars;
mod delays;
mod lines;
mod matrix;
mod sizes;

use std::error::Error;

use super::figures::Figures;
use crate::units::{Numbers, Unit};
use bars::Bars;

/// Error while drawing.
type DrawError = Box<dyn Error>;

/// A report picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Picture {
    MatrixMessages,
    MatrixBytes,
    Growth,
    Memory,
    Unacknowledged,
    Sizes,
    Delays,
    Collectives,
}

impl Picture {
    /// All pictures, in page order.
    pub(super) const ALL: [Picture; 8] = [
        Picture::MatrixMessages,
        Picture::MatrixBytes,
        Picture::Growth,
        Picture::Memory,
        Picture::Unacknowledged,
        Picture::Sizes,
        Picture::Delays,
        Picture::Collectives,
    ];

    /// File name without `.svg`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Picture::MatrixMessages => "matrix-messages",
            Picture::MatrixBytes => "matrix-bytes",
            Picture::Growth => "growth",
            Picture::Memory => "memory",
            Picture::Unacknowledged => "unacknowledged",
            Picture::Sizes => "sizes",
            Picture::Delays => "delays",
            Picture::Collectives => "collectives",
        }
    }

    /// Caption on the page.
    pub(super) fn caption(self) -> &'static str {
        match self {
            Picture::MatrixMessages => {
                "Logged messages by sender and receiver. The colour scale is logarithmic, unless the largest number is less than twice \
                 the least: then it is linear and begins at 0. White means none."
            }
            Picture::MatrixBytes => "Payload bytes of these messages, likewise.",
            Picture::Growth => {
                "All ranks together: payload bytes logged so far; memory used by records, including their headers and the rest of their \
                 chunks; and memory freed because its records were on disk. Ranks take samples when they communicate: while none does, the \
                 lines are flat."
            }
            Picture::Memory => "Memory used by records, per rank.",
            Picture::Unacknowledged => {
                "Records not yet acknowledged: those that would be sent again if a receiver failed at that moment. Includes contributions to \
                 collective operations."
            }
            Picture::Sizes => "Message sizes, by powers of two.",
            Picture::Delays => {
                "Delay of acknowledgements, from the end of a send until the sender's log learned that the message had been received, for \
                 about one message in 32. Receivers acknowledge in batches, and senders poll for acknowledgements."
            }
            Picture::Collectives => "Calls of collective operations, all ranks together.",
        }
    }

    /// Draws the picture; `None` if there is no data.
    pub(super) fn draw(self, figures: &Figures) -> Result<Option<String>, DrawError> {
        match self {
            Picture::MatrixMessages => {
                matrix::draw(figures, "Messages logged", Unit::Count, |traffic| traffic.messages)
            }
            Picture::MatrixBytes => matrix::draw(figures, "Bytes logged", Unit::Bytes, |traffic| traffic.bytes),
            Picture::Growth => lines::growth(figures),
            Picture::Memory => lines::memory(figures),
            Picture::Unacknowledged => lines::unacknowledged(figures),
            Picture::Sizes => sizes::draw(figures),
            Picture::Delays => delays::draw(figures),
            Picture::Collectives => collectives(figures),
        }
    }
}

/// Draws a bar per kind of collective operation; `None` if there were none.
fn collectives(figures: &Figures) -> Result<Option<String>, DrawError> {
    let calls = Numbers::of(Unit::Count, figures.collectives.values().map(|one| one.calls));
    let kept = Numbers::of(Unit::Bytes, figures.collectives.values().map(|one| one.kept_bytes));
    let bars = figures.collectives.iter().map(|(kind, one)| {
        let label = match one.kept_bytes {
            0 => calls.text(one.calls),
            bytes => format!("{}, {} kept", calls.text(one.calls), kept.text(bytes)),
        };
        (kind.clone(), one.calls, label)
    });
    Bars { title: "Collective operations, calls of all ranks", rows: bars.collect() }.draw()
}
