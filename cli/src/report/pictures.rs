//! The pictures, as SVG.

mod bars;
mod delays;
mod lines;
mod matrix;
mod sizes;
mod units;

use std::error::Error;

use plotters::prelude::RGBColor;

use super::figures::Figures;
use bars::Bars;
use units::{Numbers, Unit};

pub(super) use units::duration;

/// What went wrong while drawing.
type DrawError = Box<dyn Error>;

/// Colours of lines that are told apart, in the order in which they are used.
const COLOURS: [RGBColor; 8] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 96, 20),
    RGBColor(44, 140, 60),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(200, 60, 140),
    RGBColor(110, 110, 110),
    RGBColor(150, 145, 20),
];
/// Of lines in the background.
const FAINT: RGBColor = RGBColor(238, 238, 238);
const GRID: RGBColor = RGBColor(205, 205, 205);

/// A picture.
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
    /// All of them, in the order in which they are shown.
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

    /// What its file is called, without `.svg`.
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

    /// What it shows, in a sentence.
    pub(super) fn says(self) -> &'static str {
        match self {
            Picture::MatrixMessages => {
                "Messages that were logged, by sender and receiver. The scale of colours is logarithmic, but where the largest number is less than \
                 twice the least: there it begins at 0 and is even. White is none."
            }
            Picture::MatrixBytes => "Bytes of their payloads, likewise.",
            Picture::Growth => {
                "All ranks together: bytes of payloads that had been logged until then; memory that records took, with their headers and the \
                 rest of their chunks; and memory that had been given back because its records were on disk. Ranks look at the time when \
                 they communicate: while none does, nothing changes."
            }
            Picture::Memory => "Memory that records took, for each rank.",
            Picture::Unacknowledged => {
                "Records of which nobody had said yet that they were received: what would be sent again if a receiver failed at that moment. \
                 What a rank gave to collective operations is among them."
            }
            Picture::Sizes => "How long the messages were, by powers of two.",
            Picture::Delays => {
                "How long a record waited for its acknowledgement, from the end of the send to the moment at which its sender's log learned that it had been \
                 received. Of about one message in thirty-two. Receivers acknowledge in batches, and senders look after them in between."
            }
            Picture::Collectives => {
                "How often the ranks called collective operations, all calls of all ranks together."
            }
        }
    }

    /// The picture; `None` where there is nothing to show.
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

/// A bar for each kind of collective operations; `None` where none was called.
fn collectives(figures: &Figures) -> Result<Option<String>, DrawError> {
    let calls = Numbers::of(Unit::Count, figures.collectives.values().map(|one| one.calls));
    let kept = Numbers::of(Unit::Bytes, figures.collectives.values().map(|one| one.kept_bytes));
    let bars = figures.collectives.iter().map(|(kind, one)| {
        let says = match one.kept_bytes {
            0 => calls.text(one.calls),
            bytes => format!("{}, {} kept", calls.text(one.calls), kept.text(bytes)),
        };
        (kind.clone(), one.calls, says)
    });
    Bars { title: "Collective operations, calls of all ranks", rows: bars.collect() }.draw()
}
