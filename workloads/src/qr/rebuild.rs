//! Lost ranks' states, rebuilt from the others'.

use std::collections::BTreeMap;

use counterfoil_qr::recover::{self, Parts, Replacement};
use counterfoil_qr::{Layout, Matrix, Place, State, slots};
use counterfoil_runtime::communicator::{Communicator, Reduction, Restart};
use counterfoil_runtime::saved::{SavedState, StatePlace};
use zerocopy::IntoBytes;

use super::{place_of, rank_of, receive, send};
use crate::values::long_words;
use crate::{Error, StateError, UnrecoverableError};

/// Tag for a replacement's data.
const TAG: i32 = 3;

/// Returns this rank's state, before the iteration to which all go back.
///
/// Collective. `place`: location of the rank's state, under a rule keeping states in memory.
pub(super) fn rebuild(
    layout: &Layout,
    comm: &mut dyn Communicator,
    restart: Restart,
    place: Option<&StatePlace>,
) -> Result<State, Error> {
    let lost: Vec<Place> = restart.lost.iter().map(|rank| place_of(layout, *rank)).collect();
    recover::check(layout, &lost).map_err(|lost| {
        let ranks =
            lost.columns.iter().map(|column| rank_of(layout, Place { row: lost.row, column: *column })).collect();
        UnrecoverableError { ranks, row: lost.row }
    })?;
    let mut state = match place.filter(|place| place.has_state()) {
        Some(place) => Some(State::found(layout, place.open()?).ok_or(StateError::NotAState { len: 0 })?),
        None => restart.state.map(|saved| load(layout, saved)).transpose()?,
    };
    let mut to = [state.as_ref().map_or(u64::MAX, |state| state.protected(layout) as u64)];
    comm.allreduce_u64(&mut to, Reduction::Min)?;
    let rebuilding = Rebuilding { layout, lost, to: to[0] as usize };
    if let Some(state) = &mut state {
        state.undo(layout, rebuilding.to)?;
    }
    if place.is_some() {
        // Repeated work may round differently. No process goes on while one still has its earlier state, which could be
        // found after a failure.
        comm.barrier()?;
    }
    match &state {
        Some(state) => rebuilding.send_all(comm, state)?,
        None => state = Some(rebuilding.receive_all(comm)?),
    }
    state.ok_or_else(|| StateError::NotAState { len: 0 }.into())
}

/// Reads a saved state.
fn load(layout: &Layout, mut saved: SavedState) -> Result<State, Error> {
    let shape = saved.read().map_err(counterfoil_runtime::Error::from)?;
    let state = State::from_parts(layout, &long_words(&shape), |len| {
        let mut array = vec![0.0_f64; len];
        saved.read_into(array.as_mut_bytes())?;
        Ok::<_, counterfoil_runtime::Error>(array.into())
    })?;
    Ok(state.ok_or(StateError::NotAState { len: shape.len() })?)
}

/// Recovery, as known to all ranks.
struct Rebuilding<'l> {
    layout: &'l Layout,
    lost: Vec<Place>,
    /// Iteration before which all states are.
    to: usize,
}

impl Rebuilding<'_> {
    fn is_lost(&self, place: Place) -> bool {
        self.lost.contains(&place)
    }

    /// Returns the first survivor.
    fn first(&self) -> Option<Place> {
        self.layout.places().find(|place| !self.is_lost(*place))
    }

    /// Returns the first survivor with T for a panel.
    fn holder(&self, panel: usize) -> Option<Place> {
        self.layout.places().find(|place| !self.is_lost(*place) && self.layout.takes_part(place.column, panel))
    }

    /// Returns the survivors in a lost rank's process row.
    fn row_of(&self, lost: Place) -> impl Iterator<Item = Place> + '_ {
        self.layout.places().filter(move |place| place.row == lost.row && !self.is_lost(*place))
    }

    /// Sends the lost ranks this one's contributions.
    fn send_all(&self, comm: &mut dyn Communicator, state: &State) -> Result<(), Error> {
        let own = state.place();
        for lost in &self.lost {
            let to = rank_of(self.layout, *lost);
            if self.first() == Some(own) {
                send(comm, to, TAG, state.weights())?;
            }
            for panel in (0..self.to).filter(|panel| self.holder(*panel) == Some(own)) {
                if let Some(factor) = state.factors().get(&panel) {
                    send(comm, to, TAG, factor.values())?;
                }
            }
            if lost.row != own.row {
                continue;
            }
            let mut part = Parts::zeros(self.layout, own.row);
            for slot in slots(self.layout, *lost) {
                part.clear();
                recover::add_contribution(&mut part, self.layout, state, slot, self.to);
                send(comm, to, TAG, part.upper.values())?;
                send(comm, to, TAG, part.vectors.values())?;
            }
        }
        Ok(())
    }

    /// Creates this lost rank's state.
    fn receive_all(&self, comm: &mut dyn Communicator) -> Result<State, Error> {
        let own = place_of(self.layout, comm.rank());
        // One process row has a survivor in each process column but one, or is whole.
        let from = |place: Option<Place>| place.map_or(0, |place| rank_of(self.layout, place));
        let mut weights = vec![0.0; self.layout.size().columns];
        receive(comm, from(self.first()), TAG, &mut weights)?;
        let mut factors = BTreeMap::new();
        for panel in 0..self.to {
            let count = self.layout.reflectors(panel);
            let mut factor = Matrix::zeros(count, count);
            receive(comm, from(self.holder(panel)), TAG, factor.values_mut())?;
            factors.insert(panel, factor);
        }
        let mut replacement = Replacement::new(self.layout, own, weights, factors, self.to);
        // Allocated once: new memory costs more than the sums.
        let (mut sum, mut part) = (Parts::zeros(self.layout, own.row), Parts::zeros(self.layout, own.row));
        for slot in slots(self.layout, own) {
            sum.clear();
            for place in self.row_of(own) {
                receive(comm, rank_of(self.layout, place), TAG, part.upper.values_mut())?;
                receive(comm, rank_of(self.layout, place), TAG, part.vectors.values_mut())?;
                sum.add(&part);
            }
            replacement.store(slot, &mut sum);
        }
        Ok(replacement.finish())
    }
}
