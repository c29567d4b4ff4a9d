//! Giving records back, as in `counterfoil bench release`: acknowledgements of 32 records, and the collection of chunks
//! that hold one record each or a thousand.
#![forbid(unsafe_code)]
// The macros of criterion make functions that nobody documents.
#![allow(missing_docs)]

use std::time::{Duration, Instant};

use counterfoil::ack::Ack;
use counterfoil::{Epoch, Keep, Log, Options, Phase, Rank, Ssn};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

const PEER: Rank = Rank(1);
const COVERS: u64 = 32;
const CHUNKS: u64 = 128;
const CHUNK_BYTES: usize = 64 << 10;

fn acknowledgements(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("release/acknowledge");
    group.throughput(Throughput::Elements(COVERS));
    group.bench_function("floor", |bencher| {
        bencher.iter_custom(|ops| {
            let mut tail = 0;
            let start = Instant::now();
            for number in 0..ops * COVERS {
                *std::hint::black_box(&mut tail) = number;
            }
            start.elapsed()
        });
    });
    group.bench_function("log", |bencher| {
        let mut log = open(Keep::Acked);
        bencher.iter_custom(|ops| {
            let mut time = Duration::ZERO;
            for _ in 0..ops {
                let mut last = Ssn::ZERO;
                for _ in 0..COVERS {
                    last = append(&mut log, 64);
                }
                let start = Instant::now();
                acknowledge(&mut log, last);
                time += start.elapsed();
            }
            time
        });
    });
    group.finish();
}

fn collections(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("release/advance");
    group.throughput(Throughput::Elements(CHUNKS));
    for (name, records) in [("floor: 1 record in a chunk", 1), ("1000 records in a chunk", 1000)] {
        let collect = |(mut log, upto): (Log, Ssn)| {
            log.receiver_covered(PEER, Epoch(2), upto).expect("what was sent");
            (log.collect(), log)
        };
        group.bench_function(name, |bencher| {
            bencher.iter_batched(|| filled(records), collect, BatchSize::PerIteration);
        });
    }
    group.finish();
}

/// A log with chunks of so many records, and up to where [`CHUNKS`] of them are to be covered.
fn filled(records: u64) -> (Log, Ssn) {
    let mut log = open(Keep::Checkpoint);
    // A chunk has a header of 112 bytes and room for a commit word; records take multiples of 16, with a header of 16.
    let payload = (CHUNK_BYTES - 112 - 16) / records as usize / 16 * 16 - 16;
    let mut last = Ssn::ZERO;
    for _ in 0..(CHUNKS + 1) * records {
        last = append(&mut log, payload);
    }
    acknowledge(&mut log, last);
    (log, Ssn(last.0 - records))
}

fn open(keep: Keep) -> Log {
    let mut options = Options::new(Rank(0), 2);
    (options.keep, options.chunk_bytes) = (keep, CHUNK_BYTES);
    Log::create(options).expect("a log")
}

fn append(log: &mut Log, payload: usize) -> Ssn {
    let mut claim = log.try_claim(PEER, 0, payload).expect("room within the budget");
    claim.payload_mut().fill(1);
    claim.commit()
}

fn acknowledge(log: &mut Log, upto: Ssn) {
    log.acknowledge(PEER, Ack { ssn: upto, epoch: Epoch::FIRST }, Phase::default()).expect("what was sent");
}

criterion_group!(benches, acknowledgements, collections);
criterion_main!(benches);
