//! Alternating batches of ping-pong and their ratios.

use std::hint::black_box;
use std::time::{Duration, Instant};

use counterfoil_mpi::Comm;
use counterfoil_mpi_benches::pairs::{Pairs, Side};
use counterfoil_mpi_benches::ping_pong::{calibrate_trips, one_way_ns};
use serde::Serialize;

use crate::logged::SpikeError;
use crate::ways::Native;

/// One way of sending and receiving, at one end.
pub(crate) trait Way {
    fn send(&mut self, payload: &[u8], to: u32, tag: i32) -> Result<(), SpikeError>;
    fn receive(&mut self, payload: &mut [u8], from: u32, tag: i32) -> Result<(), SpikeError>;
    /// Receives, after the last batch, everything that was sent to this rank. A message left on a freed communicator can be taken for
    /// one of the next communicator, which may get the same number.
    fn end(&mut self, _peer: u32) -> Result<(), SpikeError> {
        Ok(())
    }
}

/// Number of round trips, and of the tags that they use in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trips {
    count: u64,
    tags: u64,
}

/// A batch of round trips by one way. The loop is compiled for each way, so that no call in it is indirect.
pub(crate) trait Batch {
    fn run(&mut self, rank: u32, payload: &mut [u8], trips: Trips) -> Result<Duration, SpikeError>;
    fn end(&mut self, rank: u32) -> Result<(), SpikeError>;
}

impl<W: Way> Batch for W {
    fn run(&mut self, rank: u32, payload: &mut [u8], trips: Trips) -> Result<Duration, SpikeError> {
        let peer = 1 - rank;
        let start = Instant::now();
        for trip in 0..trips.count {
            let tag = (trip % trips.tags) as i32;
            if rank == 0 {
                self.send(black_box(payload), peer, tag)?;
                self.receive(black_box(payload), peer, tag)?;
            } else {
                self.receive(black_box(payload), peer, tag)?;
                self.send(black_box(payload), peer, tag)?;
            }
        }
        Ok(start.elapsed())
    }

    fn end(&mut self, rank: u32) -> Result<(), SpikeError> {
        Way::end(self, 1 - rank)
    }
}

/// Number and length of the batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) rounds: u32,
    pub(crate) batch: Duration,
    pub(crate) tags: u64,
}

/// A line of the report.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) size: usize,
    pub(crate) way: &'static str,
    /// Median time of one way, half a round trip, in nanoseconds.
    pub(crate) ns: f64,
    /// The same for the native calls.
    pub(crate) native_ns: f64,
    /// Median of the ratios of measured to native batches, pair by pair.
    pub(crate) ratio: f64,
    pub(crate) ratio_p25: f64,
    pub(crate) ratio_p75: f64,
    /// Ratio of the first deciles: the cost when no other process competes for the processors.
    pub(crate) floor_ratio: f64,
}

/// Measures `way`. Every round has a native batch and one of `way`, whose order alternates.
pub(crate) fn run(
    world: &Comm,
    rank: u32,
    plan: &Plan,
    size: usize,
    (name, way): (&'static str, &mut dyn Batch),
) -> Result<Row, SpikeError> {
    let mut payload: Vec<u8> = (0..size).map(|at| at as u8 ^ rank as u8).collect();
    let mut native = Native(world.dup()?);
    let count = calibrate_trips(world, 1, plan.batch, |count| {
        native.run(rank, &mut payload, Trips { count, tags: plan.tags })
    })?;
    let trips = Trips { count, tags: plan.tags };
    way.run(rank, &mut payload, trips)?;
    let mut pairs = Pairs::default();
    for round in 0..plan.rounds {
        pairs.measure(round, |side| {
            let took = match side {
                Side::Measured => way.run(rank, &mut payload, trips),
                Side::Baseline => native.run(rank, &mut payload, trips),
            };
            took.map(|took| one_way_ns(took, count))
        })?;
    }
    way.end(rank)?;
    Ok(row(size, name, &pairs))
}

fn row(size: usize, way: &'static str, pairs: &Pairs) -> Row {
    Row {
        size,
        way,
        ns: pairs.measured(0.5),
        native_ns: pairs.baseline(0.5),
        ratio: pairs.ratio(0.5),
        ratio_p25: pairs.ratio(0.25),
        ratio_p75: pairs.ratio(0.75),
        floor_ratio: pairs.measured(0.1) / pairs.baseline(0.1),
    }
}
