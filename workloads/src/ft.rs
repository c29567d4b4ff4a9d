//! FT kernel of the NAS Parallel Benchmarks, from its published specification (Bailey et al., 'The NAS Parallel
//! Benchmarks', report RNR-94-007, section 2.5): a partial differential equation by Fourier transforms in three
//! dimensions.
//!
//! A random field is transformed; each iteration multiplies the transform by a Gaussian and transforms it back, which
//! gives a checksum over 1,024 elements. Planes in the third dimension are distributed; between the transforms along
//! the first two dimensions and along the third, the field is transposed by an all-to-all exchange.

use std::f64::consts::PI;
use std::ops::RangeInclusive;
use std::sync::Arc;

use counterfoil_runtime::communicator::{Communicator, Reduction};
use counterfoil_runtime::transport::CallKind;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};
use zerocopy::IntoBytes;

use crate::random::Random;
use crate::steps::Steps;
use crate::values::{digest, from_message, numbers};
use crate::{Class, Error, Outcome, RanksError, StateError, Value};

/// Name of this workload.
pub const NAME: &str = "ft";

/// The equation's constant.
const ALPHA: f64 = 1e-6;
/// Largest relative deviation from a published checksum.
const TOLERANCE: f64 = 1e-12;
/// Elements in a checksum.
const SAMPLES: usize = 1_024;
/// Checksums in a run.
const CHECKSUMS: usize = 6;

/// The FT kernel.
///
/// | class | field |
/// |---|---|
/// | S | 64 x 64 x 64 |
/// | W | 128 x 128 x 32 |
/// | A | 256 x 256 x 128 |
///
/// Runs on any power of two dividing the first and the third dimension. Every rank's first iteration transforms the
/// random field, the next six have a checksum each.
#[derive(Clone, Debug)]
pub struct Ft {
    class: Class,
    /// Elements in each dimension.
    field: [usize; 3],
    /// Published checksums, real and imaginary part.
    checksums: [[f64; 2]; CHECKSUMS],
}

/// A rank's part of the field, and the transforms along its dimensions.
struct Slab {
    field: [usize; 3],
    rank: usize,
    ranks: usize,
    forward: [Arc<dyn Fft<f64>>; 3],
    inverse: [Arc<dyn Fft<f64>>; 3],
}

/// A rank's state: the transformed field, and the checksums so far.
pub(crate) struct Part {
    slab: Slab,
    transform: Elements,
    checksums: [f64; 2 * CHECKSUMS],
}

/// Elements, the last index first: by place in the third, second and first dimension, or transposed by first, second
/// and third.
type Elements = Vec<Complex<f64>>;

impl Slab {
    fn new(field: [usize; 3], rank: u32, ranks: u32) -> Slab {
        let mut planner = FftPlanner::new();
        let forward = field.map(|len| planner.plan_fft_forward(len));
        let inverse = field.map(|len| planner.plan_fft_inverse(len));
        Slab { field, rank: rank as usize, ranks: ranks as usize, forward, inverse }
    }

    /// Returns the number of this rank's elements.
    fn len(&self) -> usize {
        self.field.iter().product::<usize>() / self.ranks
    }

    /// Returns the random field: planes in the third dimension.
    fn start(&self) -> Elements {
        let mut random = Random::seeded();
        random.skip((2 * self.rank * self.len()) as u64);
        let element = |_| {
            let real = random.next_fraction();
            Complex::new(real, random.next_fraction())
        };
        (0..self.len()).map(element).collect()
    }

    /// Exchanges each plane's two inner dimensions, with `rows` rows of `columns`.
    fn turn_planes(elements: &mut Elements, rows: usize, columns: usize) {
        for plane in elements.chunks_exact_mut(rows * columns) {
            let old = plane.to_vec();
            for (at, element) in plane.iter_mut().enumerate() {
                let (column, row) = (at / rows, at % rows);
                *element = old[row * columns + column];
            }
        }
    }

    /// Transforms planes in the third dimension; returns them transposed, by place in the first dimension.
    fn transform(&self, comm: &mut dyn Communicator, mut elements: Elements) -> Result<Elements, Error> {
        let [nx, ny, nz] = self.field;
        self.forward[0].process(&mut elements);
        Slab::turn_planes(&mut elements, ny, nx);
        self.forward[1].process(&mut elements);
        let (planes, columns) = (nz / self.ranks, nx / self.ranks);
        // Here: place in the third (of `planes`), first and second dimension. There: first (of `columns`), second and
        // third.
        let blocks = (0..nx).flat_map(|x| (0..ny).map(move |y| (x, y)));
        let out = blocks.flat_map(|(x, y)| (0..planes).map(move |z| (z * nx + x) * ny + y)).map(|at| elements[at]);
        let received = self.exchange(comm, out.collect())?;
        let place = |at: usize| {
            let (column, z) = (at / nz, at % nz);
            let (source, z) = (z / planes, z % planes);
            (source * columns * ny + column) * planes + z
        };
        let mut elements: Elements = (0..self.len()).map(|at| received[place(at)]).collect();
        self.forward[2].process(&mut elements);
        Ok(elements)
    }

    /// Inverts [`transform`](Slab::transform), unscaled.
    fn transform_back(&self, comm: &mut dyn Communicator, mut elements: Elements) -> Result<Elements, Error> {
        let [nx, ny, nz] = self.field;
        self.inverse[2].process(&mut elements);
        let (planes, columns) = (nz / self.ranks, nx / self.ranks);
        let places = (0..nz).flat_map(|z| (0..columns * ny).map(move |column| column * nz + z));
        let received = self.exchange(comm, places.map(|at| elements[at]).collect())?;
        let place = |at: usize| {
            let (z, x, y) = (at / (nx * ny), at / ny % nx, at % ny);
            let (source, x) = (x / columns, x % columns);
            ((source * planes + z) * columns + x) * ny + y
        };
        let mut elements: Elements = (0..self.len()).map(|at| received[place(at)]).collect();
        self.inverse[1].process(&mut elements);
        Slab::turn_planes(&mut elements, nx, ny);
        self.inverse[0].process(&mut elements);
        Ok(elements)
    }

    /// Exchanges equal blocks with all ranks.
    fn exchange(&self, comm: &mut dyn Communicator, out: Elements) -> Result<Elements, Error> {
        let received = comm.alltoall(to_numbers(&out).as_bytes())?;
        let expected = "a block of the field from each rank in an all-to-all exchange";
        let numbers = from_message(comm, (self.rank as u32, -1), &received, 2 * self.len(), expected)?;
        Ok(from_numbers(&numbers))
    }

    /// Multiplies a transform by one iteration's Gaussian.
    fn evolve(&self, elements: &mut Elements) {
        let [nx, ny, nz] = self.field;
        let first = self.rank * nx / self.ranks;
        let square = |at: usize, len: usize| {
            let wave = if at < len / 2 { at as f64 } else { at as f64 - len as f64 };
            wave * wave
        };
        for (at, element) in elements.iter_mut().enumerate() {
            let (x, y, z) = (first + at / (ny * nz), at / nz % ny, at % nz);
            *element *= (-4.0 * ALPHA * PI * PI * (square(x, nx) + square(y, ny) + square(z, nz))).exp();
        }
    }

    /// Returns the planes' checksum.
    fn checksum(&self, comm: &mut dyn Communicator, elements: &Elements) -> Result<[f64; 2], Error> {
        let [nx, ny, nz] = self.field;
        let planes = nz / self.ranks;
        let samples = (1..=SAMPLES).map(|sample| [sample % nx, 3 * sample % ny, 5 * sample % nz]);
        let own = samples.filter(|[_, _, z]| z / planes == self.rank);
        let sum: Complex<f64> = own.map(|[x, y, z]| elements[(z % planes * ny + y) * nx + x]).sum();
        let mut sums = [sum.re, sum.im];
        comm.allreduce_f64(&mut sums, Reduction::Sum)?;
        Ok(sums.map(|sum| sum / (nx * ny * nz) as f64))
    }
}

fn to_numbers(elements: &[Complex<f64>]) -> Vec<f64> {
    elements.iter().flat_map(|element| [element.re, element.im]).collect()
}

fn from_numbers(numbers: &[f64]) -> Elements {
    numbers.chunks_exact(2).map(|parts| Complex::new(parts[0], parts[1])).collect()
}

impl Ft {
    /// Creates the kernel with size `class`.
    pub fn new(class: Class) -> Ft {
        let (field, checksums) = match class {
            Class::S => (
                [64, 64, 64],
                [
                    [554.6087004964, 484.5363331978],
                    [554.6385409189, 486.5304269511],
                    [554.6148406171, 488.3910722336],
                    [554.5423607415, 490.1273169046],
                    [554.4255039624, 491.7475857993],
                    [554.2683411902, 493.2597244941],
                ],
            ),
            Class::W => (
                [128, 128, 32],
                [
                    [567.3612178944, 529.3246849175],
                    [563.1436885271, 528.2149986629],
                    [559.4024089970, 527.0996558037],
                    [556.0698047020, 526.0027904925],
                    [553.0898991250, 524.9400845633],
                    [550.4159734538, 523.9212247086],
                ],
            ),
            Class::A => (
                [256, 256, 128],
                [
                    [504.6735008193, 511.4047905510],
                    [505.9412319734, 509.8809666433],
                    [506.9376896287, 509.8144042213],
                    [507.7892868474, 510.1336130759],
                    [508.5233095391, 510.4914655194],
                    [509.1487099959, 510.7917842803],
                ],
            ),
        };
        Ft { class, field, checksums }
    }

    /// Returns `true` if the checksums equal the published ones.
    fn are_known(&self, checksums: &[f64]) -> bool {
        let known = self.checksums.iter().flatten();
        checksums.iter().zip(known).all(|(found, known)| ((found - known) / known).abs() <= TOLERANCE)
    }
}

impl Steps for Ft {
    const NAME: &'static str = NAME;
    const STATE_ID: u32 = 8;

    type Part = Part;

    fn class(&self) -> Class {
        self.class
    }

    fn ranks(&self) -> RangeInclusive<u32> {
        1..=self.field[0].min(self.field[2]) as u32
    }

    fn check_ranks(&self, ranks: u32) -> Result<(), RanksError> {
        RanksError::check_power_of_two(NAME, ranks)
    }

    fn makes(&self, call: CallKind) -> bool {
        !matches!(call, CallKind::Send | CallKind::Receive)
    }

    fn steps(&self) -> u64 {
        1 + CHECKSUMS as u64
    }

    fn message_bytes_max(&self, ranks: u32) -> usize {
        let elements = self.field.iter().product::<usize>() / (ranks * ranks) as usize;
        (elements * size_of::<Complex<f64>>()).max(size_of::<[f64; 2]>())
    }

    fn start(&self, rank: u32, ranks: u32) -> Result<Part, RanksError> {
        Ok(Part { slab: Slab::new(self.field, rank, ranks), transform: Vec::new(), checksums: [0.0; 2 * CHECKSUMS] })
    }

    fn restore(&self, part: &mut Part, _step: u64, body: &[u8]) -> Result<(), StateError> {
        let numbers = numbers(body, 2 * CHECKSUMS + 2 * part.slab.len())?;
        let (checksums, transform) = numbers.split_at(2 * CHECKSUMS);
        part.checksums.copy_from_slice(checksums);
        part.transform = from_numbers(transform);
        Ok(())
    }

    fn encode(&self, part: &Part) -> Vec<u8> {
        part.numbers().as_bytes().to_vec()
    }

    fn step(&self, comm: &mut dyn Communicator, step: u64, part: &mut Part) -> Result<(), Error> {
        let Part { slab, transform, checksums } = part;
        if step == 1 {
            *transform = slab.transform(comm, slab.start())?;
            return Ok(());
        }
        slab.evolve(transform);
        let field = slab.transform_back(comm, transform.clone())?;
        let at = 2 * (step as usize - 2);
        checksums[at..at + 2].copy_from_slice(&slab.checksum(comm, &field)?);
        Ok(())
    }

    fn finish(&self, _: &mut dyn Communicator, part: Part) -> Result<Outcome, Error> {
        Ok(Outcome {
            verified: Some(self.are_known(&part.checksums)),
            value: Value::Number(part.checksums[2 * CHECKSUMS - 2]),
            digest: digest(&part.numbers()),
        })
    }
}

impl Part {
    fn numbers(&self) -> Vec<f64> {
        [&self.checksums[..], &to_numbers(&self.transform)].concat()
    }
}
