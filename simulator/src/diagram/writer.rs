//! Writes SVG.
//!
//! All text and non-numeric attribute values go through [`escape`].

use std::fmt::Write;

/// Point, in pixels from the upper left corner.
pub(super) type Point = (f64, f64);

/// Elements of a picture, in drawing order.
#[derive(Debug, Default)]
pub(super) struct Svg {
    body: String,
}

impl Svg {
    /// Appends `arguments`, which are well-formed markup.
    ///
    /// Writing to a string can't fail.
    fn push(&mut self, arguments: std::fmt::Arguments<'_>) {
        let _ = self.body.write_fmt(arguments);
        self.body.push('\n');
    }

    /// Groups everything drawn by `inside`, with a class and, where it isn't empty, an id.
    pub(super) fn group(&mut self, id: &str, class: &str, inside: impl FnOnce(&mut Svg)) {
        let id = if id.is_empty() { String::new() } else { format!(" id=\"{}\"", escape(id)) };
        self.push(format_args!("<g{id} class=\"{}\">", escape(class)));
        inside(self);
        self.push(format_args!("</g>"));
    }

    /// Groups as [`group`](Svg::group) does, clipped to a box from `from` to `to`.
    pub(super) fn clipped(&mut self, (from, to): (Point, Point), inside: impl FnOnce(&mut Svg)) {
        let (width, height) = (to.0 - from.0, to.1 - from.1);
        self.push(format_args!(
            "<clipPath id=\"plot\"><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/></clipPath>",
            from.0, from.1
        ));
        self.push(format_args!("<g clip-path=\"url(#plot)\">"));
        inside(self);
        self.push(format_args!("</g>"));
    }

    pub(super) fn line(&mut self, class: &str, from: Point, to: Point) {
        self.push(format_args!(
            "<line class=\"{}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            escape(class),
            from.0,
            from.1,
            to.0,
            to.1
        ));
    }

    /// Draws a cubic curve.
    pub(super) fn curve(&mut self, class: &str, [a, b, c, d]: [Point; 4]) {
        self.push(format_args!(
            "<path class=\"{}\" d=\"M{:.1} {:.1}C{:.1} {:.1} {:.1} {:.1} {:.1} {:.1}\"/>",
            escape(class),
            a.0,
            a.1,
            b.0,
            b.1,
            c.0,
            c.1,
            d.0,
            d.1
        ));
    }

    pub(super) fn polygon(&mut self, class: &str, points: &[Point]) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.push(format_args!("<polygon class=\"{}\" points=\"{}\"/>", escape(class), points.join(" ")));
    }

    pub(super) fn circle(&mut self, class: &str, (x, y): Point, radius: f64) {
        self.push(format_args!("<circle class=\"{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"/>", escape(class)));
    }

    pub(super) fn text(&mut self, class: &str, (x, y): Point, text: &str) {
        self.push(format_args!("<text class=\"{}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(class), escape(text)));
    }

    /// Returns the whole file.
    ///
    /// `title` and `description` are for readers unable to see it.
    pub(super) fn finish(self, (width, height): Point, style: &str, title: &str, description: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\">\n\
             <title>{}</title>\n<desc>{}</desc>\n<style>\n{style}</style>\n\
             <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{}</svg>\n",
            escape(title),
            escape(description),
            self.body
        )
    }
}

/// Escapes text for an element or a double-quoted attribute.
///
/// Characters disallowed in XML are replaced.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\n' | '\t' => escaped.push(character),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("a<b & \"c\" 'd'\u{1}>"), "a&lt;b &amp; &quot;c&quot; &apos;d&apos;\u{fffd}&gt;");
    }
}
