//! A cursor over a whole lane, and a copy of the same bytes: the loops of `counterfoil bench replay`.
#![forbid(unsafe_code)]

use counterfoil::{Keep, Rank, Tier};
use counterfoil_benches::append::open;
use counterfoil_benches::replay::{LOG_BYTES, SIZES, copy, replay};
use counterfoil_benches::scratch::Scratch;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn replays(criterion: &mut Criterion) {
    let scratch = Scratch::new().expect("a scratch directory");
    for log_bytes in LOG_BYTES {
        for size in SIZES {
            let records = (log_bytes / size).max(1);
            let mut group = criterion.benchmark_group(format!("replay/{}KiB/{size}", log_bytes >> 10));
            group.throughput(Throughput::Bytes((records * size) as u64));
            let mut wire = vec![0; size];
            let source = vec![3; records * size];
            group.bench_function("floor", |bencher| bencher.iter(|| copy(&source, &mut wire)));
            for tier in [Tier::Volatile, Tier::ProcessCrashSafe] {
                let mut log = open(&scratch, tier, Keep::All).expect("a log");
                for number in 0..records {
                    let mut claim = log.try_claim(Rank(1), 0, size).expect("space for the records");
                    claim.payload_mut().fill(number as u8);
                    claim.commit();
                }
                group.bench_function(tier.word(), |bencher| bencher.iter(|| replay(&mut log, &mut wire)));
            }
            group.finish();
        }
    }
}

criterion_group!(benches, replays);
criterion_main!(benches);
