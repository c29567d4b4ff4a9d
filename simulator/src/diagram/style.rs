//! Colours and dashes.

use super::history::Fate;

/// Class, coloured property, and its colours on a light and on a dark background.
const COLOURS: [(&str, &str, &str, &str); 21] = [
    ("paper", "fill", "#ffffff", "#15191f"),
    ("ink", "fill", "#1f2328", "#e6edf3"),
    ("dim", "fill", "#656d76", "#8b949e"),
    ("wrong", "fill", "#c4162a", "#ff6b6b"),
    ("limit", "stroke", "#c4162a", "#ff6b6b"),
    ("gap", "stroke", "#c3c9d0", "#3d444d"),
    ("execution-0", "stroke", "#1f2328", "#e6edf3"),
    ("execution-1", "stroke", "#d9730d", "#f0a050"),
    ("execution-2", "stroke", "#0f8a8a", "#39c5bb"),
    ("execution-3", "stroke", "#a0388f", "#e08ad5"),
    ("first", "stroke", "#57606a", "#9da7b3"),
    ("replay", "stroke", "#0969da", "#58a6ff"),
    ("unfinished", "stroke", "#8c959f", "#6e7681"),
    ("duplicate", "stroke", "#9a6700", "#e3b341"),
    ("dead", "stroke", "#8250df", "#bc8cff"),
    ("orphan", "stroke", "#1a7f37", "#56d364"),
    ("lost", "stroke", "#c4162a", "#ff6b6b"),
    ("cross", "stroke", "#c4162a", "#ff6b6b"),
    ("back", "fill", "#1a7f37", "#56d364"),
    ("jump", "stroke", "#1a7f37", "#56d364"),
    ("mark", "stroke", "#1f2328", "#e6edf3"),
];

/// Rules independent of the background.
const SHAPES: &str = "\
text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;font-size:11px}
.title{font-size:15px;font-weight:600}
.node{font-size:12px;font-weight:600;text-anchor:end}
.code{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:9px}
.small{font-size:9px;text-anchor:middle}
.number{font-size:8px;text-anchor:middle}
line,path{fill:none;stroke-width:1.2}
.line{stroke-width:2.4}
.gap{stroke-dasharray:1 4}
.limit{stroke-dasharray:5 3}
.jump{stroke-dasharray:2 2.5}
.cross{stroke-width:2.6}
.duplicate,.tip-duplicate{stroke-dasharray:6 3}
.dead{stroke-dasharray:2 2}
.orphan{stroke-dasharray:7 2 2 2}
.lost{stroke-dasharray:4 3}
.unfinished{stroke-dasharray:2 2;stroke-width:1.5}
.tip{stroke-dasharray:none;stroke-width:1}
.mark{stroke-width:1.6}
";

impl Fate {
    pub(super) fn class(self) -> &'static str {
        match self {
            Fate::First => "first",
            Fate::Replay => "replay",
            Fate::Unfinished => "unfinished",
            Fate::Duplicate => "duplicate",
            Fate::Dead => "dead",
            Fate::Orphan => "orphan",
            Fate::Lost => "lost",
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Fate::First => "first transmission",
            Fate::Replay => "replay",
            Fate::Unfinished => "under way or held at the end",
            Fate::Duplicate => "dropped: duplicate",
            Fate::Dead => "dropped: of a dead incarnation",
            Fate::Orphan => "dropped: orphan",
            Fate::Lost => "lost with a connection",
        }
    }
}

/// Returns the class of a line segment, cycling through four shades.
pub(super) fn execution(number: u32) -> String {
    format!("line execution-{}", number % 4)
}

/// Returns the style sheet: light, and dark for readers that prefer it.
pub(super) fn sheet() -> String {
    let rules = |dark: bool| {
        let rule = |&(class, property, on_light, on_dark): &(&str, &str, &str, &str)| {
            let colour = if dark { on_dark } else { on_light };
            // Shapes filled with a line's colour: arrowheads, marks.
            let solid = if property == "stroke" { format!(".solid.{class}{{fill:{colour}}}\n") } else { String::new() };
            format!(".{class}{{{property}:{colour}}}\n{solid}")
        };
        let hollow = if dark { "#15191f" } else { "#ffffff" };
        format!("{}.hollow{{fill:{hollow}}}\n", COLOURS.iter().map(rule).collect::<String>())
    };
    format!("{SHAPES}{}@media (prefers-color-scheme:dark){{\n{}}}\n", rules(false), rules(true))
}
