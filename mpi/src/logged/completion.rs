//! Completion of any, some or all of several operations in one call.

use super::pending::Pending;
use crate::error::{OperationError, Outcome};
use crate::immediate::ImmediateOperation;

fn operations<'p>(pending: &[&'p Pending]) -> Vec<&'p dyn ImmediateOperation> {
    pending.iter().map(|pending| pending.operation()).collect()
}

/// Returns a complete operation's index and outcome.
///
/// `None` if no operation is pending or, without `wait`, none is complete.
///
/// # Errors
/// [`OperationError`]: no operation was completed.
pub(super) fn any(pending: &[&Pending], wait: bool) -> Result<Option<(usize, Outcome)>, OperationError> {
    let stored = pending.iter().enumerate().find_map(|(at, pending)| Some((at, pending.take_outcome()?)));
    match pending.first() {
        Some(first) if stored.is_none() => first.carrier().complete_any(&operations(pending), wait),
        _ => Ok(stored),
    }
}

/// Returns the indices and outcomes of all complete operations, by index; with `wait`, at least one, if any is pending.
///
/// # Errors
/// [`OperationError`]: no operation was completed.
pub(super) fn some(pending: &[&Pending], wait: bool) -> Result<Vec<(usize, Outcome)>, OperationError> {
    let stored = |(at, pending): (usize, &&Pending)| Some((at, pending.take_outcome()?));
    let mut completed: Vec<_> = pending.iter().enumerate().filter_map(stored).collect();
    let Some(first) = pending.first() else { return Ok(completed) };
    let wait = wait && completed.is_empty();
    completed.extend(first.carrier().complete_some(&operations(pending), wait)?);
    completed.sort_unstable_by_key(|(index, _)| *index);
    Ok(completed)
}

/// Returns each operation's outcome; `None`, without `wait`, if one is still pending.
///
/// An outcome is `None` if another operation's failure ended the call first.
///
/// # Errors
/// [`OperationError`]: no operation was completed.
pub(super) fn all(pending: &[&Pending], wait: bool) -> Result<Option<Vec<Option<Outcome>>>, OperationError> {
    let Some(first) = pending.first() else { return Ok(Some(Vec::new())) };
    let Some(completed) = first.carrier().complete_all(&operations(pending), wait)? else { return Ok(None) };
    let stored = pending.iter().zip(completed);
    Ok(Some(stored.map(|(pending, completed)| pending.take_outcome().or(completed)).collect()))
}
