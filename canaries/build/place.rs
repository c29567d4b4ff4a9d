//! Mistakes in a source: each is made if the thread has it planted.

use std::ops::Range;
use std::path::PathBuf;

use serde::Deserialize;

/// Place in a rule's source for a mistake: either `wrong` or `with` is given.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edit {
    /// Path of the source from the rules' directory.
    pub(super) file: PathBuf,
    /// Text found there once: an expression, or statements.
    pub(super) right: String,
    /// The replacement while the mistake is planted.
    pub(super) wrong: Option<String>,
    /// Text replacing `right` altogether, with a test by `planted!`, where `right` is neither an expression nor
    /// statements.
    pub(super) with: Option<String>,
}

/// Returns the source with all edits.
///
/// Edits for several mistakes may share a place.
///
/// # Errors
/// An edit whose text isn't found exactly once, or an overlap with another edit.
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

/// A part to be edited in a source.
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

/// Returns the place of the text, or its number of occurrences if it isn't one.
fn find(source: &str, text: &str) -> Result<Range<usize>, usize> {
    match source.match_indices(text).collect::<Vec<_>>()[..] {
        [(start, _)] => Ok(start..start + text.len()),
        ref all => Err(all.len()),
    }
}
