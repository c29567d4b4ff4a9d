//! Alternating batches and their ratios.

use std::time::Duration;

use counterfoil_mpi_benches::pairs::{Pairs, Side};
use counterfoil_mpi_benches::ping_pong::calibrate_trips;
use counterfoil_mpi_core::{Comm, MpiError};
use serde::Serialize;

use crate::pattern::Pattern;
use crate::ways::{Buffers, Failed, Trips, Way, batch};

/// Batch number and length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Number of batch pairs, and of control pairs.
    pub(crate) rounds: u32,
    /// Minimum duration of a native batch.
    pub(crate) batch: Duration,
    /// Minimum number of trips in a batch.
    pub(crate) trips_min: u64,
    pub(crate) tags: u32,
}

/// A line of the report.
///
/// Times are for one message: for ping-pong, half a round trip.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) pattern: &'static str,
    /// Message size in bytes.
    pub(crate) size: usize,
    pub(crate) way: &'static str,
    /// Median of the native batches.
    pub(crate) native_ns: f64,
    /// Median of the measured batches.
    pub(crate) logged_ns: f64,
    /// Median and quartiles of the measured/native ratios, pair by pair.
    pub(crate) ratio: f64,
    pub(crate) ratio_p25: f64,
    pub(crate) ratio_p75: f64,
    /// Ratio of the sums of all measured and all native batches: unlike in the median, rare delays count.
    pub(crate) ratio_of_sums: f64,
    /// Median and quartiles of the control's ratios: native/native.
    pub(crate) control: f64,
    pub(crate) control_p25: f64,
    pub(crate) control_p75: f64,
}

/// Measurement failure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MeasureError {
    #[error(transparent)]
    Mpi(#[from] MpiError),
    #[error(transparent)]
    Call(#[from] Failed),
}

/// Measures `way`.
///
/// A round is a pair (native, `way`) and a pair (native, native); the order alternates from round to round.
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
    let mut time_batch = |way, count| {
        let trips = Trips { pattern, count, tags: plan.tags };
        // SAFETY: `world` lives, so MPI is up; every batch receives all its messages, and both ranks run the same
        // batches.
        unsafe { batch(way, rank, &mut buffers, trips) }
    };
    let trips = calibrate_trips(world, plan.trips_min, plan.batch, |trips| {
        time_batch(Way::Native, trips).map_err(MeasureError::from)
    })?;
    time_batch(way, trips)?;
    let (mut pairs, mut control) = (Pairs::default(), Pairs::default());
    for round in 0..plan.rounds {
        for (pairs, way) in [(&mut pairs, way), (&mut control, Way::Native)] {
            pairs.measure(round, |side| {
                let way = if side == Side::Measured { way } else { Way::Native };
                time_batch(way, trips).map(|took| took.as_secs_f64() * 1e9 / (pattern.legs() * trips) as f64)
            })?;
        }
    }
    Ok(Row {
        pattern: pattern.name(),
        size,
        way: way.name(),
        native_ns: pairs.baseline(0.5),
        logged_ns: pairs.measured(0.5),
        ratio: pairs.ratio(0.5),
        ratio_p25: pairs.ratio(0.25),
        ratio_p75: pairs.ratio(0.75),
        ratio_of_sums: pairs.ratio_of_sums(),
        control: control.ratio(0.5),
        control_p25: control.ratio(0.25),
        control_p75: control.ratio(0.75),
    })
}
