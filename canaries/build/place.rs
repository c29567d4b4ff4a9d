//! Mistakes in a source: each is made where the thread has it planted.

use std::ops::Range;
use std::path::PathBuf;

use serde::Deserialize;

/// Place in a rule's source where a mistake is made: either `wrong` or `with` is given.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edit {
    /// Path of the source from the directory of the rules.
    pub(super) file: PathBuf,
    /// Text that is there once: an expression, or statements.
    pub(super) right: String,
    /// What happens instead if the mistake is planted.
    pub(super) wrong: Option<String>,
    /// Where that is neither an expression nor statements: text that replaces `right` altogether, and tests by
    /// `planted!`.
    pub(super) with: Option<String>,
}

/// Returns the source with all edits. Edits of several mistakes may have one place.
///
/// # Errors
/// An edit whose text isn't there just once, or that overlaps another one.
pub(super) fn edited(source: &str, edits: &[(&str, &Edit)]) -> Result<String, String> {
    let mut places: Vec<Place<'_>> = Vec::new();
    for (name, edit) in edits {
        let at =
            find(source, &edit.right).map_err(|times| format!("{name}: `{}` is there {times} times", edit.right))?;
        match places.iter_mut().find(|place| place.at == at) {
            Some(place) => place.edits.push((name, edit)),
            None => places.push(Place { at, edits: vec![(name, edit)] }),
        }
    }
    places.sort_by_key(|place| place.at.start);
    let mut text = String::with_capacity(2 * source.len());
    let mut done = 0;
    for place in &places {
        if place.at.start < done {
            return Err(format!("{}: `{}` overlaps another edit", place.edits[0].0, &source[place.at.clone()]));
        }
        text.push_str(&source[done..place.at.start]);
        text.push_str(&place.text(&source[place.at.clone()])?);
        done = place.at.end;
    }
    text.push_str(&source[done..]);
    Ok(text)
}

/// Part of a source that is edited.
struct Place<'a> {
    at: Range<usize>,
    edits: Vec<(&'a str, &'a Edit)>,
}

impl Place<'_> {
    fn text(&self, right: &str) -> Result<String, String> {
        if let [(_, Edit { with: Some(with), wrong: None, .. })] = &self.edits[..] {
            return Ok(with.clone());
        }
        let mut text = String::new();
        for (name, edit) in &self.edits {
            match edit {
                Edit { wrong: Some(wrong), with: None, .. } => {
                    text += &format!("if planted!({name}) {{ {wrong} }} else ")
                }
                _ => return Err(format!("{name}: `{right}` needs either `wrong`, or, as the only edit there, `with`")),
            }
        }
        text += &format!("{{ {right} }}");
        // An expression may be an operand.
        Ok(if right.ends_with(';') { text } else { format!("({text})") })
    }
}

/// Returns where the text is, or how many times it is there instead of once.
fn find(source: &str, text: &str) -> Result<Range<usize>, usize> {
    match source.match_indices(text).collect::<Vec<_>>()[..] {
        [(start, _)] => Ok(start..start + text.len()),
        ref all => Err(all.len()),
    }
}
