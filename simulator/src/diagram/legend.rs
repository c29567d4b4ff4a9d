//! Legend of the symbols in the picture.

use std::collections::BTreeSet;

use super::figure::{LETTER, Layout, draw_symbol};
use super::history::{Fate, History, Kind};
use super::style;
use super::writer::Svg;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Entry {
    Arrow(Fate),
    Mark(Kind),
    Jump,
    Again,
}

impl Entry {
    fn words(self) -> &'static str {
        match self {
            Entry::Arrow(fate) => fate.words(),
            Entry::Mark(Kind::Send) => "the program sends",
            Entry::Mark(Kind::Take) => "the program takes",
            Entry::Mark(Kind::Call { natively: true, .. }) => "collective call completes, with its number",
            Entry::Mark(Kind::Call { natively: false, .. }) => "skipped, or its result comes from elsewhere",
            Entry::Mark(Kind::Checkpoint { durable: true, .. }) => "checkpoint that begins epoch e",
            Entry::Mark(Kind::Checkpoint { durable: false, .. }) => "checkpoint that never becomes durable",
            Entry::Mark(Kind::Kill) => "killed",
            Entry::Mark(Kind::Restart { .. }) => "replacement starts, from where",
            Entry::Mark(Kind::Rollback { .. }) => "rolled back, to where",
            Entry::Jump => "goes back to its checkpoint",
            Entry::Again => "executed again",
        }
    }
}

/// Draws the legend from `y` down, and returns its lower end.
///
/// `shows`: returns `true` for a step in the picture.
pub(super) fn draw(
    svg: &mut Svg,
    layout: &Layout,
    history: &History,
    shows: impl Fn(usize) -> bool,
    mut y: f64,
) -> f64 {
    let entries = entries(history, shows);
    let mut x = 20.0;
    svg.group("legend", "legend", |svg| {
        for entry in entries {
            let width = 40.0 + entry.words().len() as f64 * LETTER;
            if x + width > layout.width && x > 20.0 {
                (x, y) = (20.0, y + 18.0);
            }
            draw_sign(svg, entry, x, y - 4.0);
            svg.text("dim", (x + 30.0, y), entry.words());
            x += width;
        }
    });
    y + 24.0
}

fn entries(history: &History, shows: impl Fn(usize) -> bool) -> BTreeSet<Entry> {
    let sent = history.arrows.iter().filter(|arrow| shows(arrow.sent) || arrow.ended.is_some_and(&shows));
    let mut entries: BTreeSet<Entry> = sent.map(|arrow| Entry::Arrow(arrow.fate)).collect();
    let marks = history.marks.iter().filter(|mark| shows(mark.at));
    entries.extend(marks.map(|mark| {
        Entry::Mark(match mark.kind {
            Kind::Call { natively, .. } => Kind::Call { number: 0, natively },
            Kind::Checkpoint { durable, .. } => Kind::Checkpoint { epoch: 0, durable },
            Kind::Restart { .. } => Kind::Restart { epoch: 0 },
            Kind::Rollback { .. } => Kind::Rollback { epoch: 0 },
            plain => plain,
        })
    }));
    entries.extend(history.jumps.iter().any(|jump| shows(jump.from)).then_some(Entry::Jump));
    let again =
        history.segments.iter().any(|segment| segment.execution > 0 && (shows(segment.from) || shows(segment.to)));
    entries.extend(again.then_some(Entry::Again));
    entries
}

fn draw_sign(svg: &mut Svg, entry: Entry, x: f64, y: f64) {
    match entry {
        Entry::Arrow(fate) => {
            let class = fate.class();
            svg.line(class, (x, y), (x + 24.0, y));
            match fate {
                Fate::Lost => {
                    let class = format!("{class} tip");
                    svg.line(&class, (x + 20.5, y - 3.5), (x + 27.5, y + 3.5));
                    svg.line(&class, (x + 20.5, y + 3.5), (x + 27.5, y - 3.5));
                }
                Fate::Unfinished => {}
                _ => {
                    let points = [(x + 26.0, y), (x + 19.0, y + 3.0), (x + 19.0, y - 3.0)];
                    svg.polygon(&format!("solid tip {class}"), &points);
                }
            }
        }
        Entry::Mark(kind) => draw_symbol(svg, kind, (x + 14.0, y)),
        Entry::Jump => {
            svg.curve("jump", [(x + 26.0, y + 5.0), (x + 22.0, y - 6.0), (x + 6.0, y - 6.0), (x + 2.0, y + 5.0)]);
        }
        Entry::Again => {
            for (number, from) in (1..).zip([0.0, 9.0, 18.0]) {
                svg.line(&style::execution(number), (x + from, y), (x + from + 9.0, y));
            }
        }
    }
}
