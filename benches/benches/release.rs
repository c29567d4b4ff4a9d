//! Record release, as in `counterfoil bench release`: acknowledgements of 32 records, and collecting chunks with one
//! record or a thousand.
#![forbid(unsafe_code)]

use counterfoil_benches::release::{acknowledge, advance, naked_store};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const COVERS: u64 = 32;

fn acknowledgements(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("release/acknowledge");
    group.throughput(Throughput::Elements(COVERS));
    group.bench_function("floor", |bencher| bencher.iter_custom(|ops| naked_store(ops * COVERS)));
    group.bench_function("log", |bencher| bencher.iter_custom(|ops| acknowledge(ops * COVERS, COVERS)));
    group.finish();
}

fn collections(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("release/advance");
    group.throughput(Throughput::Elements(1));
    for (name, records) in [("floor: 1 record in a chunk", 1), ("1000 records in a chunk", 1000)] {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|chunks| (0..chunks).map(|_| advance(records).expect("a log")).sum());
        });
    }
    group.finish();
}

criterion_group!(benches, acknowledgements, collections);
criterion_main!(benches);
