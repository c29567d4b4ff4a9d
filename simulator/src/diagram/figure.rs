//! Layout and drawing of a diagram.

use std::ops::{Range, RangeInclusive};

use super::history::{Arrow, Fate, History, Kind, Mark};
use super::writer::{Point, Svg};
use super::{legend, style};
use crate::Outcome;
use crate::schedule::Schedule;

/// Pixels from one step to the next; more where there are few.
const STEP: f64 = 12.0;
const STEP_MAX: f64 = 28.0;
/// Pixels from one line to the next.
const ROW: f64 = 72.0;
const LEFT: f64 = 104.0;
const RIGHT: f64 = 28.0;
/// Distance of a cut-off end beyond the edge.
const BEYOND: f64 = 40.0;
/// Smallest width, leaving room for the text.
const WIDTH_MIN: f64 = 720.0;
/// Largest number of schedule lines shown; the description has all of it.
const CODE_LINES_MAX: usize = 3;
/// Largest width of a letter, in pixels, in the schedule's font and in the others.
const CODE_LETTER: f64 = 5.5;
pub(super) const LETTER: f64 = 6.2;

/// Diagram layout.
pub(super) struct Layout {
    steps: Range<usize>,
    step: f64,
    pub(super) width: f64,
    /// Height of the first line.
    top: f64,
}

impl Layout {
    fn x(&self, step: usize) -> f64 {
        if step < self.steps.start {
            LEFT - BEYOND
        } else if step >= self.steps.end {
            self.right() + BEYOND
        } else {
            LEFT + self.step * ((step - self.steps.start) as f64 + 1.0)
        }
    }

    /// Returns the right end of the lines.
    fn right(&self) -> f64 {
        LEFT + self.step * (self.steps.len() as f64 + 1.0)
    }

    fn y(&self, node: u32) -> f64 {
        self.top + ROW * f64::from(node)
    }

    fn at(&self, node: u32, step: usize) -> Point {
        (self.x(step), self.y(node))
    }

    fn shows(&self, step: usize) -> bool {
        self.steps.contains(&step)
    }
}

pub(super) fn draw(schedule: &Schedule, outcome: &Outcome, history: &History, events: &RangeInclusive<u64>) -> String {
    let steps = history.steps(events);
    let gaps = steps.len() as f64 + 1.0;
    let step = ((WIDTH_MIN - LEFT - RIGHT) / gaps).clamp(STEP, STEP_MAX);
    let width = WIDTH_MIN.max(LEFT + step * gaps + RIGHT);
    let line = schedule.to_string();
    let code = wrap(&line, ((width - 40.0) / CODE_LETTER) as usize);
    let layout = Layout { steps, step, width, top: 86.0 + 12.0 * code.len() as f64 };
    let title = title(schedule);
    let mut svg = Svg::default();
    svg.text("title ink", (20.0, 28.0), &title);
    for (text, row) in code.iter().zip(0..) {
        svg.text("code dim", (20.0, 45.0 + 12.0 * f64::from(row)), text);
    }

    let bottom = layout.y(history.nodes - 1);
    for node in 0..history.nodes {
        let is_rank = node < history.ranks;
        let name = if is_rank { format!("rank {node}") } else { "coordinator".to_owned() };
        let id = name.replace(' ', "-");
        svg.group(&id, "row", |svg| draw_line(svg, &layout, history, node, &name));
    }
    let frame = ((LEFT - 4.0, layout.top - 40.0), (layout.right() + 4.0, bottom + 40.0));
    svg.clipped(frame, |svg| {
        for arrow in &history.arrows {
            draw_arrow(svg, &layout, arrow);
        }
        for mark in history.marks.iter().filter(|mark| layout.shows(mark.at)) {
            draw_mark(svg, &layout, mark);
        }
        if let Some(violation) = &outcome.violation
            && events.contains(&violation.event)
        {
            let x = layout.x(layout.steps.end.saturating_sub(1));
            svg.line("limit", (x, layout.top - 26.0), (x, bottom + 26.0));
        }
    });
    draw_scale(&mut svg, &layout, history, bottom + 44.0);

    let mut y = bottom + 74.0;
    y = legend::draw(&mut svg, &layout, history, |step| layout.shows(step), y);
    let words = match &outcome.violation {
        Some(violation) => violation.to_string(),
        None => format!("No violation in {} events.", outcome.coverage.events),
    };
    let class = if outcome.violation.is_some() { "wrong" } else { "ink" };
    for text in wrap(&words, ((width - 40.0) / LETTER) as usize) {
        svg.text(class, (20.0, y), &text);
        y += 15.0;
    }
    svg.finish((width, y + 6.0), &style::sheet(), &title, &format!("{words}\n{line}"))
}

fn title(schedule: &Schedule) -> String {
    let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let shape = &schedule.shape;
    let faults = counted(schedule.faults.len(), "fault");
    let mut title = format!("{}, {}, {faults}", shape.pattern, counted(shape.ranks as usize, "rank"));
    if let Some(canary) = schedule.canary {
        title.push_str(&format!(", with the planted mistake {}", canary.variant()));
    }
    title
}

/// Wraps text into lines of at most `letters` letters, between words where it can, and omits the end of a long one.
fn wrap(text: &str, letters: usize) -> Vec<String> {
    let letters = letters.max(20);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        while !word.is_empty() {
            let Some(line) = lines.last_mut() else { break };
            let used = line.chars().count();
            let space = usize::from(used > 0);
            if used + space + word.len() <= letters {
                line.extend(std::iter::repeat_n(' ', space).chain(word.drain(..)));
            } else if used == 0 {
                line.extend(word.drain(..letters));
                lines.push(String::new());
            } else {
                lines.push(String::new());
            }
        }
    }
    lines.retain(|line| !line.is_empty());
    if lines.len() > CODE_LINES_MAX {
        lines.truncate(CODE_LINES_MAX);
        if let Some(last) = lines.last_mut() {
            last.push_str(" ...");
        }
    }
    lines
}

/// Draws a node's name, its lifeline, and the arcs of its rollbacks.
fn draw_line(svg: &mut Svg, layout: &Layout, history: &History, node: u32, name: &str) {
    let y = layout.y(node);
    svg.text("node ink", (LEFT - 12.0, y + 4.0), name);
    svg.line("gap", (LEFT, y), (layout.right(), y));
    let clip = |step: usize| layout.x(step).clamp(LEFT, layout.right());
    let last = history.events.len().saturating_sub(1);
    for segment in history.segments.iter().filter(|segment| segment.node == node) {
        let from = if segment.from == 0 { LEFT } else { clip(segment.from) };
        let to = if segment.to == last { layout.right() } else { clip(segment.to) };
        if to > from {
            svg.line(&style::execution(segment.execution), (from, y), (to, y));
        }
    }
    for jump in history.jumps.iter().filter(|jump| jump.node == node && layout.shows(jump.from)) {
        let (from, to) = (layout.x(jump.from), layout.x(jump.to).max(LEFT));
        let height = y - 13.0 - ((from - to) / 12.0).min(16.0);
        svg.curve("jump", [(from, y - 7.0), (from - 4.0, height), (to + 4.0, height), (to, y - 8.0)]);
    }
}

fn draw_arrow(svg: &mut Svg, layout: &Layout, arrow: &Arrow) {
    let end = arrow.ended.unwrap_or(arrow.sent);
    if end < layout.steps.start || arrow.sent >= layout.steps.end {
        return;
    }
    let class = arrow.fate.class();
    let from = layout.at(arrow.from, arrow.sent);
    let down = if arrow.to > arrow.from { 1.0 } else { -1.0 };
    let to = match arrow.ended {
        Some(end) => layout.at(arrow.to, end),
        // A stub towards its receiver.
        None => (from.0 + 24.0, from.1 + down * ROW * 0.55),
    };
    let length = (to.0 - from.0).hypot(to.1 - from.1).max(1.0);
    let (dx, dy) = ((to.0 - from.0) / length, (to.1 - from.1) / length);
    let along = |distance: f64, aside: f64| (from.0 + dx * distance - dy * aside, from.1 + dy * distance + dx * aside);
    let tip = length - if arrow.ended.is_some() { 3.0 } else { 0.0 };
    svg.line(class, from, along(tip - 4.0, 0.0));
    match arrow.fate {
        Fate::Lost => {
            let tip_class = format!("{class} tip");
            svg.line(&tip_class, (to.0 - 3.5, to.1 - 3.5), (to.0 + 3.5, to.1 + 3.5));
            svg.line(&tip_class, (to.0 - 3.5, to.1 + 3.5), (to.0 + 3.5, to.1 - 3.5));
        }
        Fate::Unfinished => {}
        _ => svg
            .polygon(&format!("solid tip {class}"), &[along(tip, 0.0), along(tip - 7.0, 3.0), along(tip - 7.0, -3.0)]),
    }
    let label = match arrow.fate {
        Fate::Lost | Fate::Unfinished => (to.0 + 8.0, to.1),
        _ => along((length * 0.25).clamp(14.0, 22.0), 6.0),
    };
    svg.text("number dim", (label.0, label.1 + 3.0), &arrow.number.to_string());
}

fn draw_mark(svg: &mut Svg, layout: &Layout, mark: &Mark) {
    let (x, y) = layout.at(mark.node, mark.at);
    draw_symbol(svg, mark.kind, (x, y));
    match mark.kind {
        Kind::Checkpoint { epoch, .. } => svg.text("small ink", (x, y + 16.0), &format!("e{epoch}")),
        Kind::Restart { epoch: 1 } | Kind::Rollback { epoch: 1 } => svg.text("small back", (x, y + 17.0), "start"),
        Kind::Restart { epoch } | Kind::Rollback { epoch } => {
            svg.text("small back", (x, y + 17.0), &format!("e{epoch}"));
        }
        Kind::Call { number, .. } => svg.text("small ink", (x, y + 16.0), &number.to_string()),
        Kind::Send | Kind::Take | Kind::Kill => {}
    }
}

/// Draws a mark's symbol, without words.
pub(super) fn draw_symbol(svg: &mut Svg, kind: Kind, (x, y): Point) {
    match kind {
        Kind::Send => svg.circle("solid mark", (x, y), 1.8),
        Kind::Take => svg.circle("hollow mark", (x, y), 2.4),
        Kind::Checkpoint { durable, .. } => {
            let class = if durable { "solid mark" } else { "hollow mark" };
            svg.polygon(class, &[(x - 4.0, y - 4.0), (x + 4.0, y - 4.0), (x + 4.0, y + 4.0), (x - 4.0, y + 4.0)]);
        }
        Kind::Call { natively, .. } => {
            let class = if natively { "solid mark" } else { "hollow mark" };
            svg.polygon(class, &[(x - 5.0, y), (x, y - 5.0), (x + 5.0, y), (x, y + 5.0)]);
        }
        Kind::Kill => {
            svg.line("cross", (x - 5.5, y - 5.5), (x + 5.5, y + 5.5));
            svg.line("cross", (x - 5.5, y + 5.5), (x + 5.5, y - 5.5));
        }
        Kind::Restart { .. } => svg.polygon("back", &[(x - 4.0, y - 6.0), (x + 6.0, y), (x - 4.0, y + 6.0)]),
        Kind::Rollback { .. } => svg.polygon("back", &[(x + 4.0, y - 6.0), (x - 6.0, y), (x + 4.0, y + 6.0)]),
    }
}

/// Draws the scale of event numbers.
fn draw_scale(svg: &mut Svg, layout: &Layout, history: &History, y: f64) {
    svg.group("events", "scale", |svg| {
        svg.text("node dim", (LEFT - 12.0, y), "event");
        for step in layout.steps.clone().step_by(5) {
            if let Some(event) = history.events.get(step) {
                svg.text("small dim", (layout.x(step), y), &event.to_string());
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_wrapped_and_a_very_long_one_ends_in_dots() {
        assert_eq!(wrap("one two", 40), ["one two"]);
        assert_eq!(wrap(&"x".repeat(50), 20), ["x".repeat(20), "x".repeat(20), "x".repeat(10)]);
        let long = wrap(&"word ".repeat(100), 20);
        assert_eq!(long.len(), CODE_LINES_MAX);
        assert!(long[0] == "word word word word" && long[2].ends_with("..."), "{long:?}");
    }
}
