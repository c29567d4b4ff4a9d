//! Appends in a steady state with acknowledgements, and the naked copy: the loops of `counterfoil bench append`.
#![forbid(unsafe_code)]

use counterfoil::{Keep, Tier};
use counterfoil_benches::append::{SIZES, append, floor, open};
use counterfoil_benches::floor::Ring;
use counterfoil_benches::measure::timed;
use counterfoil_benches::scratch::Scratch;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn appends(criterion: &mut Criterion) {
    let scratch = Scratch::new().expect("a scratch directory");
    for size in SIZES {
        let payload = vec![7; size];
        let mut group = criterion.benchmark_group(format!("append/{size}"));
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function("floor", |bencher| {
            let (mut ring, mut number) = (Ring::new(1 << 20), 0);
            bencher.iter_custom(|ops| timed(|| floor(&mut ring, &mut number, ops, &payload)));
        });
        for tier in [Tier::Volatile, Tier::ProcessCrashSafe] {
            group.bench_function(tier.word(), |bencher| {
                let mut log = open(&scratch, tier, Keep::Acked).expect("a log");
                bencher.iter_custom(|ops| timed(|| append(&mut log, ops, &payload)));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, appends);
criterion_main!(benches);
