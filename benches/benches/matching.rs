//! Numbering received messages: receives are posted first, and end in several orders.
//!
//! Times are for one receive; from 1,000 receives to 1,000,000 they grow at most by the logarithm beyond the floor,
//! which keeps as much for each receive in one stream, and decides nothing.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::hint::black_box;

use counterfoil_benches::measure::timed;
use counterfoil_mpi_logger::{Arrival, Matching, PostedReceive};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};

/// Numbers of receives; the last only for orders in which every second receive ends before all others.
const COUNTS: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
const EVERY_SECOND: &str = "every second first";

/// Pattern of a receive, and the message that it takes.
type Receive = (Option<i32>, Option<i32>, Arrival);
type Kind = fn(usize) -> Receive;

/// Kinds of receives, by number.
const KINDS: [(&str, Kind); 4] = [
    ("one stream", |_| receive(Some(1), Some(1), 1, 1)),
    ("any source", |_| receive(None, Some(1), 1, 1)),
    // Each message has its own stream, and waits for all receives posted before.
    ("any source, many streams", |n| receive(None, None, n as i32 % 1000, n as i32)),
    // Every second receive is a wildcard preceding the next one.
    ("mixed", |n| {
        if n.is_multiple_of(2) { receive(None, None, 1, 1) } else { receive(Some(1), Some(n as i32), 1, n as i32) }
    }),
];

fn receive(source: Option<i32>, tag: Option<i32>, from: i32, of: i32) -> Receive {
    (source, tag, Arrival { source: from, tag: of, bytes: 8 })
}

/// Returns the order in which `count` receives end.
fn order(name: &str, count: usize) -> Vec<usize> {
    match name {
        "as posted" => (0..count).collect(),
        "reverse" => (0..count).rev().collect(),
        EVERY_SECOND => (1..count).step_by(2).chain((0..count).step_by(2)).collect(),
        // A step coprime to the counts.
        _ => (0..count).map(|n| n * 7_919 % count).collect(),
    }
}

/// Storage for pending receives: kept from run to run, as in a communicator, or new for each.
trait Run: Default {
    /// Posts the receives and ends them in this order.
    fn run(&mut self, kind: Kind, order: &[usize]);
}

/// Numbers messages.
#[derive(Default)]
struct Numbering {
    matching: Matching,
    posted: Vec<(PostedReceive, Arrival)>,
    numbered: Vec<Arrival>,
}

impl Run for Numbering {
    fn run(&mut self, kind: Kind, order: &[usize]) {
        let Numbering { matching, posted, numbered } = self;
        posted.clear();
        numbered.clear();
        posted.extend((0..order.len()).map(|n| {
            let (source, tag, arrival) = kind(n);
            (matching.post(source, tag), arrival)
        }));
        for at in order {
            let (posted, arrival) = posted[*at];
            matching.end(posted, Some(arrival), numbered);
        }
        assert!(numbered.len() == order.len() && matching.is_idle(), "a message has no number");
    }
}

/// Keeps a ticket and a length for each receive, as `Matching` does, and hands the messages on in posting order.
#[derive(Default)]
struct Floor {
    kept: VecDeque<(u64, usize)>,
    posted: Vec<(PostedReceive, Arrival)>,
    numbered: Vec<Arrival>,
}

impl Run for Floor {
    fn run(&mut self, kind: Kind, order: &[usize]) {
        let Floor { kept, posted, numbered } = self;
        kept.clear();
        posted.clear();
        numbered.clear();
        let one = Matching::default().post(Some(1), Some(1));
        posted.extend((0..order.len()).map(|n| {
            kept.push_back((n as u64, 0));
            (one, kind(n).2)
        }));
        for at in order {
            kept[*at].1 = posted[*at].1.bytes;
        }
        for ((_, bytes), (_, arrival)) in kept.iter().zip(&*posted) {
            numbered.push(Arrival { bytes: *bytes, ..*arrival });
        }
        black_box(numbered);
    }
}

/// Measures receives ending in this order; the time is for one.
///
/// `new` for runs that don't keep their memory.
fn bench<R: Run>(group: &mut BenchmarkGroup<'_, WallTime>, kind: Kind, end: &str, count: usize, new: bool) {
    let order = order(end, count);
    let name = if new { format!("{end}, new memory/{count}") } else { format!("{end}/{count}") };
    group.bench_function(name, |bencher| {
        let mut kept = R::default();
        if !new {
            kept.run(kind, &order);
        }
        bencher.iter_custom(|ops| {
            let runs = ops.div_ceil(count as u64);
            let took = timed(|| {
                (0..runs).for_each(|_| if new { R::default().run(kind, &order) } else { kept.run(kind, &order) });
            });
            took.mul_f64(ops as f64 / (runs * count as u64) as f64)
        });
    });
}

/// Measures receives of which every second one ends before all others, at all numbers, in kept memory and in new
/// memory.
fn bench_every_second<R: Run>(group: &mut BenchmarkGroup<'_, WallTime>, kind: Kind) {
    for new in [false, true] {
        COUNTS.iter().for_each(|&count| bench::<R>(group, kind, EVERY_SECOND, count, new));
    }
}

fn matching(criterion: &mut Criterion) {
    for (name, kind) in KINDS {
        let mut group = criterion.benchmark_group(format!("matching/{name}"));
        for end in ["as posted", "reverse", "scattered"] {
            COUNTS[..3].iter().for_each(|&count| bench::<Numbering>(&mut group, kind, end, count, false));
        }
        bench_every_second::<Numbering>(&mut group, kind);
        group.finish();
    }
}

fn floor(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("matching/floor");
    bench_every_second::<Floor>(&mut group, KINDS[0].1);
    group.finish();
}

criterion_group!(benches, matching, floor);
criterion_main!(benches);
