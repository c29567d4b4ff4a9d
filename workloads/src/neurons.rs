//! Network of excitatory and inhibitory neurons (FitzHugh and Nagumo's equations), by the fourth-order Runge-Kutta
//! method: five allgathers a step, one for each stage and one for the firing neurons.
//!
//! A neuron's inputs are added in index order, so the result equals the serial computation's bit for bit.

use std::ops::{Range, RangeInclusive};

use counterfoil_runtime::communicator::Communicator;
use counterfoil_runtime::transport::CallKind;
use zerocopy::IntoBytes;

use crate::random::Random;
use crate::steps::Steps;
use crate::values::{digest, from_message, numbers, part, place_sum};
use crate::{Class, Error, Outcome, RanksError, StateError, Value};

/// Name of this workload.
pub const NAME: &str = "neurons";

/// Inputs per neuron.
const INPUTS: usize = 16;
/// Step length.
const STEP: f64 = 0.1;
/// Potential above which a neuron fires.
const THRESHOLD: f64 = 1.0;

/// Network; class S, W, A have 128, 512, 2,048 neurons and 60, 200, 600 steps.
///
/// Every rank's iteration is one step. Runs on any number of ranks up to the neurons.
#[derive(Clone, Debug)]
pub struct Neurons {
    class: Class,
    neurons: usize,
    steps: u64,
}

/// Potential and recovery of a rank's neurons, and how often any of them has fired.
#[derive(Debug)]
pub(crate) struct Part {
    potential: Vec<f64>,
    recovery: Vec<f64>,
    fired: f64,
    links: Vec<Link>,
}

/// Gathers all neurons' potentials.
type Gather<'a> = dyn FnMut(&[f64]) -> Result<Vec<f64>, Error> + 'a;

impl Part {
    /// Returns some neurons out of `all` before the first step.
    fn start(all: usize, neurons: Range<usize>) -> Part {
        let potential = |neuron: usize| 4.0 * Random::from_seed(neuron as u64).next_fraction() - 2.0;
        let (recovery, links) = (vec![0.0; neurons.len()], links(all, neurons.clone()));
        Part { potential: neurons.map(potential).collect(), recovery, fired: 0.0, links }
    }

    /// Returns the rates of change at potentials and recoveries, given all neurons' potentials.
    fn rates(&self, potential: &[f64], recovery: &[f64], all: &[f64]) -> [Vec<f64>; 2] {
        let rates = potential.iter().zip(recovery).zip(self.links.chunks_exact(INPUTS)).map(|((&v, &w), links)| {
            let input: f64 = links.iter().map(|link| link.weight * all[link.from]).sum();
            (v - v * v * v / 3.0 - w + 0.5 + input, 0.08 * (v + 0.7 - 0.8 * w))
        });
        let (potential, recovery) = rates.unzip();
        [potential, recovery]
    }

    /// Makes a step.
    fn step(&mut self, gather: &mut Gather<'_>) -> Result<(), Error> {
        let mut sums = [vec![0.0; self.potential.len()], vec![0.0; self.potential.len()]];
        let mut at = [self.potential.clone(), self.recovery.clone()];
        for (stage, weight) in [1.0, 2.0, 2.0, 1.0].into_iter().enumerate() {
            let all = gather(&at[0])?;
            let rates = self.rates(&at[0], &at[1], &all);
            let next = if stage == 2 { STEP } else { STEP / 2.0 };
            for ((sum, rate), (at, from)) in
                sums.iter_mut().zip(&rates).zip(at.iter_mut().zip([&self.potential, &self.recovery]))
            {
                sum.iter_mut().zip(rate).for_each(|(sum, rate)| *sum += weight * rate);
                at.iter_mut().zip(from).zip(rate).for_each(|((at, from), rate)| *at = from + next * rate);
            }
        }
        let before = self.potential.clone();
        for (values, sum) in [&mut self.potential, &mut self.recovery].into_iter().zip(&sums) {
            values.iter_mut().zip(sum).for_each(|(value, sum)| *value += STEP / 6.0 * sum);
        }
        let fires = |(before, now): (&f64, &f64)| f64::from(u8::from(*before < THRESHOLD && *now >= THRESHOLD));
        let own: Vec<f64> = before.iter().zip(&self.potential).map(fires).collect();
        self.fired += gather(&own)?.iter().sum::<f64>();
        Ok(())
    }

    fn numbers(&self) -> Vec<f64> {
        [&[self.fired], &self.potential[..], &self.recovery].concat()
    }
}

/// A neuron's input.
#[derive(Debug)]
struct Link {
    from: usize,
    weight: f64,
}

/// Returns the inputs of a rank's neurons.
///
/// Every fifth neuron inhibits.
fn links(neurons: usize, part: Range<usize>) -> Vec<Link> {
    let of = |neuron: usize| {
        let mut random = Random::from_seed((neuron + neurons) as u64);
        let mut from: Vec<usize> =
            (0..INPUTS).map(|_| (random.next_fraction() * neurons as f64) as usize % neurons).collect();
        from.sort_unstable();
        from.into_iter().map(|from| Link { from, weight: if from.is_multiple_of(5) { -0.04 } else { 0.02 } })
    };
    part.flat_map(of).collect()
}

impl Neurons {
    /// Creates the network with size `class`.
    pub fn new(class: Class) -> Neurons {
        let (neurons, steps) = match class {
            Class::S => (128, 60),
            Class::W => (512, 200),
            Class::A => (2_048, 600),
        };
        Neurons { class, neurons, steps }
    }

    /// Computes the sum over all neurons, and how often they fired, without messages.
    fn known_answer(&self) -> Result<(u64, f64), Error> {
        let mut whole = Part::start(self.neurons, 0..self.neurons);
        for _ in 0..self.steps {
            whole.step(&mut |own| Ok(own.to_vec()))?;
        }
        Ok((place_sum(0, &whole.potential), whole.fired))
    }

    fn gather(&self, comm: &mut dyn Communicator, own: &[f64]) -> Result<Vec<f64>, Error> {
        let blocks = comm.allgather(own.as_bytes())?;
        let (ranks, expected) = (comm.size(), "one number for each neuron in an allgather");
        let parts = (0..).zip(&blocks).map(|(rank, block)| {
            from_message::<f64>(comm, (rank, -1), block, part(self.neurons, rank, ranks).len(), expected)
        });
        Ok(parts.collect::<Result<Vec<_>, _>>()?.concat())
    }
}

impl Steps for Neurons {
    const NAME: &'static str = NAME;
    const STATE_ID: u32 = 6;

    type Part = Part;

    fn class(&self) -> Class {
        self.class
    }

    fn ranks(&self) -> RangeInclusive<u32> {
        1..=self.neurons as u32
    }

    fn makes(&self, call: CallKind) -> bool {
        !matches!(call, CallKind::Send | CallKind::Receive)
    }

    fn steps(&self) -> u64 {
        self.steps
    }

    fn message_bytes_max(&self, ranks: u32) -> usize {
        part(self.neurons, 0, ranks).len() * size_of::<f64>()
    }

    fn start(&self, rank: u32, ranks: u32) -> Result<Part, RanksError> {
        Ok(Part::start(self.neurons, part(self.neurons, rank, ranks)))
    }

    fn restore(&self, own: &mut Part, _step: u64, body: &[u8]) -> Result<(), StateError> {
        let mut numbers = numbers(body, 1 + 2 * own.potential.len())?;
        own.recovery = numbers.split_off(1 + own.potential.len());
        own.potential = numbers.split_off(1);
        own.fired = numbers[0];
        Ok(())
    }

    fn encode(&self, own: &Part) -> Vec<u8> {
        own.numbers().as_bytes().to_vec()
    }

    fn step(&self, comm: &mut dyn Communicator, _step: u64, own: &mut Part) -> Result<(), Error> {
        own.step(&mut |values| self.gather(comm, values))
    }

    fn finish(&self, comm: &mut dyn Communicator, own: Part) -> Result<Outcome, Error> {
        let all = self.gather(comm, &own.potential)?;
        Ok(Outcome {
            verified: Some((place_sum(0, &all), own.fired) == self.known_answer()?),
            value: Value::Text(format!("{} spikes", own.fired)),
            digest: digest(&own.numbers()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_fires_and_stays_bounded() {
        let network = Neurons::new(Class::S);
        let mut whole = Part::start(network.neurons, 0..network.neurons);
        for _ in 0..1_000 {
            whole.step(&mut |own| Ok(own.to_vec())).unwrap();
        }
        assert!(whole.fired > 100.0, "{}", whole.fired);
        assert!(whole.potential.iter().all(|potential| potential.abs() < 3.0));
    }
}
