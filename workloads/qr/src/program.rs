//! The factorization, as run by each process.

use counterfoil_log_core::StateMemoryError;

use crate::layout::Layout;
use crate::matrix::Matrix;
use crate::panel::{self, Reflectors};
use crate::recover::write_upper;
use crate::state::State;

/// Communication within a process's row and column.
///
/// Messages from one process to another arrive in order.
pub trait Communication {
    /// Failure of a call, or of the state's memory.
    type Error: From<StateMemoryError>;

    /// Notes the beginning of an iteration, the state's [`done`](State::done).
    ///
    /// By default it does nothing.
    ///
    /// # Errors
    /// Communication errors.
    fn begin_iteration(&mut self, state: &State) -> Result<(), Self::Error> {
        let _ = state;
        Ok(())
    }

    /// Sums `values` up over the process column, with the result on all its processes.
    ///
    /// # Errors
    /// Communication errors.
    fn sum_column(&mut self, values: &mut [f64]) -> Result<(), Self::Error>;

    /// Sends `values` to another process column in the same process row.
    ///
    /// # Errors
    /// Communication errors.
    fn send_in_row(&mut self, column: usize, values: &[f64]) -> Result<(), Self::Error>;

    /// Receives `values` from another process column in the same process row.
    ///
    /// # Errors
    /// Communication errors.
    fn receive_in_row(&mut self, column: usize, values: &mut [f64]) -> Result<(), Self::Error>;
}

/// Factors the matrix, from the iteration on given by `state`.
///
/// In each iteration the owners of a panel factor it and send the reflectors along their process rows; each process
/// applies them to its block columns and checksums. No `communication` call meets a partly applied iteration: after an
/// error in any call, [`State::undo`] can go back to any of the last [`Layout::window`] iterations.
///
/// # Errors
/// The first one from `communication`, or the [memory](State::settle).
pub fn factor<C: Communication>(layout: &Layout, state: &mut State, communication: &mut C) -> Result<(), C::Error> {
    loop {
        let panel = state.done();
        if let Some(before) = layout.sums_before(panel)
            && state.protected(layout) < panel
        {
            sum_up(layout, state, (before, panel), communication)?;
        }
        if panel >= layout.panels() {
            return Ok(());
        }
        communication.begin_iteration(state)?;
        if layout.takes_part(state.place().column, panel) {
            iterate(layout, state, panel, communication)?;
        } else {
            state.skip(layout)?;
        }
    }
}

/// Carries out an iteration.
fn iterate<C: Communication>(
    layout: &Layout,
    state: &mut State,
    panel: usize,
    communication: &mut C,
) -> Result<(), C::Error> {
    let (place, owner) = (state.place(), layout.column_of(panel));
    let reflectors = if owner == place.column {
        let mut block = state.begin_panel(panel);
        let weights = &state.weights()[layout.columns(panel)];
        let sum = |values: &mut [f64]| communication.sum_column(values);
        let reflectors = panel::factor(layout, (place.row, panel), &mut block, weights, sum)?;
        state.end_panel(panel, block)?;
        let others = (0..layout.grid().columns).filter(|column| *column != owner);
        for column in others.filter(|column| layout.takes_part(*column, panel)) {
            communication.send_in_row(column, reflectors.vectors.values())?;
            communication.send_in_row(column, reflectors.factor.values())?;
        }
        reflectors
    } else {
        let first = layout.rows_above(place.row, panel * layout.size().block);
        let count = layout.reflectors(panel);
        let mut vectors = Matrix::zeros(layout.local_rows(place.row) - first, count);
        let mut factor = Matrix::zeros(count, count);
        communication.receive_in_row(owner, vectors.values_mut())?;
        communication.receive_in_row(owner, factor.values_mut())?;
        Reflectors { vectors, factor }
    };
    let mut sums = state.products(layout, panel, &reflectors.vectors);
    // The same for all processes in a column.
    if sums.columns() > 0 {
        communication.sum_column(sums.values_mut())?;
    }
    Ok(state.apply(layout, panel, reflectors, &sums)?)
}

/// Sums up each stripe's block columns before an iteration, except in stripes already complete at the previous sums.
fn sum_up<C: Communication>(
    layout: &Layout,
    state: &mut State,
    (before, panel): (usize, usize),
    communication: &mut C,
) -> Result<(), C::Error> {
    let column = state.place().column;
    // Once: new memory costs more than the sums.
    let empty = || Matrix::zeros(layout.local_rows(state.place().row), layout.size().block);
    let mut part = empty();
    let stripes = || layout.stripes().iter().enumerate().filter(|(_, stripe)| stripe.last() >= before);
    for (_, stripe) in stripes() {
        for block in stripe.members.clone().filter(|block| layout.column_of(*block) == column) {
            if write_upper(&mut part, layout, state, block, panel) {
                communication.send_in_row(stripe.holders[0], part.values())?;
            }
        }
    }
    let mut sums = Vec::new();
    for (number, stripe) in stripes().filter(|(_, stripe)| stripe.holders[0] == column) {
        let mut sum = empty();
        for block in stripe.members.clone() {
            if block == stripe.members.start {
                communication.receive_in_row(layout.column_of(block), sum.values_mut())?;
            } else {
                communication.receive_in_row(layout.column_of(block), part.values_mut())?;
                sum.add(1.0, &part);
            }
        }
        sums.push((number, sum));
    }
    sums.into_iter().for_each(|(number, sum)| state.store_sum(number, panel, sum));
    Ok(state.end_sums(layout, panel)?)
}
