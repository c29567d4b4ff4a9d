//! Batches in turn, and what they come to.

use std::time::Duration;

use counterfoil_mpi::pairs::{Pairs, Turn};
use counterfoil_mpi::ping_pong::trips_of_a_batch;
use counterfoil_mpi::{Comm, MpiError};
use serde::Serialize;

use crate::pattern::Pattern;
use crate::ways::{Buffers, Failed, Trips, Way, batch};

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Pairs of batches, and as many of the control.
    pub(crate) rounds: u32,
    /// How long a naked batch takes at least.
    pub(crate) batch: Duration,
    /// Trips of a batch at least.
    pub(crate) trips_min: u64,
    pub(crate) tags: u32,
}

/// One line of the report. Times are of one message: of a ping-pong half a round trip.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) pattern: &'static str,
    /// Bytes of a message.
    pub(crate) size: usize,
    pub(crate) way: &'static str,
    /// Median of the naked batches.
    pub(crate) native_ns: f64,
    /// Median of the measured ones.
    pub(crate) logged_ns: f64,
    /// Median and quartiles of the ratios of a batch and the naked batch beside it.
    pub(crate) ratio: f64,
    pub(crate) ratio_p25: f64,
    pub(crate) ratio_p75: f64,
    /// The same of naked batches and those beside them.
    pub(crate) control: f64,
    pub(crate) control_p25: f64,
    pub(crate) control_p75: f64,
}

/// Why the measurement ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MeasureError {
    #[error(transparent)]
    Mpi(#[from] MpiError),
    #[error(transparent)]
    Call(#[from] Failed),
}

/// A round is a pair (naked, `way`) and a pair (naked, naked); who comes first in a pair changes from round to round.
pub(crate) fn run(
    world: &Comm,
    rank: u32,
    plan: &Plan,
    pattern: Pattern,
    size: usize,
    way: Way,
) -> Result<Row, MeasureError> {
    let out: Vec<u8> = (0..size).map(|at| at as u8 ^ rank as u8).collect();
    let mut buffers = Buffers { into: out.clone(), out };
    let mut play = |way, count| {
        let trips = Trips { pattern, count, tags: plan.tags };
        // SAFETY: `world` lives, so MPI is up; every batch receives all that it sends, and both ranks make the same ones.
        unsafe { batch(way, rank, &mut buffers, trips) }
    };
    let trips = trips_of_a_batch(world, plan.trips_min, plan.batch, |trips| {
        play(Way::Native, trips).map_err(MeasureError::from)
    })?;
    play(way, trips)?;
    let (mut pairs, mut control) = (Pairs::default(), Pairs::default());
    for round in 0..plan.rounds {
        for (pairs, way) in [(&mut pairs, way), (&mut control, Way::Native)] {
            pairs.take_turns(round, |turn| {
                let way = if turn == Turn::Measured { way } else { Way::Native };
                play(way, trips).map(|took| took.as_secs_f64() * 1e9 / (pattern.legs() * trips) as f64)
            })?;
        }
    }
    Ok(Row {
        pattern: pattern.name(),
        size,
        way: way.name(),
        native_ns: pairs.beside(0.5),
        logged_ns: pairs.measured(0.5),
        ratio: pairs.ratio(0.5),
        ratio_p25: pairs.ratio(0.25),
        ratio_p75: pairs.ratio(0.75),
        control: control.ratio(0.5),
        control_p25: control.ratio(0.25),
        control_p75: control.ratio(0.75),
    })
}
