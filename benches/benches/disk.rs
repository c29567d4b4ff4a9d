//! Blocks written, stores opened and lanes read back, and naked transfers of as many bytes: the loops of `counterfoil
//! bench spill|recover|disk-replay`.
#![forbid(unsafe_code)]

use std::time::Duration;

use counterfoil::{BackendChoice, Ssn};
use counterfoil_benches::disk::recover::Stored;
use counterfoil_benches::disk::replay::{recover, replay};
use counterfoil_benches::disk::spill::{Memory, Writer};
use counterfoil_benches::disk::{BLOCKS, DEPTH, DiskOptions, Floor, Turn};
use counterfoil_benches::scratch::Scratch;
use counterfoil_log_io::chunk_writes_max;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime};

/// Bytes in a turn.
const BYTES: u64 = 32 << 20;
/// Payload in bytes.
const SIZE: usize = 4096;

/// Benchmarks turns.
///
/// Counts only the turn itself, not its preparation and cleanup.
fn turns<E: std::fmt::Debug>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    mut turn: impl FnMut() -> Result<Turn, E>,
) {
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|count| (0..count).map(|_| turn().expect("a turn").wall()).sum::<Duration>());
    });
}

fn on_disk(criterion: &mut Criterion) {
    let scratch = Scratch::new_in(&DiskOptions::default().dir).expect("a scratch directory");
    let memory = Memory::filled(SIZE, BYTES, Ssn::FIRST).expect("records in memory");
    for block in BLOCKS {
        let mut floor = Floor::new(block, chunk_writes_max(block)).expect("a naked ring");
        let naked = scratch.fresh_dir().expect("a directory").join("naked");
        let mut group = criterion.benchmark_group(format!("spill/{}KiB", block >> 10));
        group.sample_size(15).throughput(Throughput::Bytes(BYTES));
        turns(&mut group, "floor", || floor.write(&naked, BYTES));
        for choice in [BackendChoice::IoUring, BackendChoice::Pwrite] {
            let mut writer = Writer::create(&scratch, (choice, block), true).expect("a store");
            turns(&mut group, &format!("{choice:?}"), || writer.turn(&memory));
        }
        group.finish();

        let stored = Stored::create(&scratch, (BackendChoice::Auto, block), true, (SIZE, BYTES)).expect("a store");
        let files = stored.segments().expect("its segments");
        let mut floor = Floor::new(block, DEPTH).expect("a naked ring");
        let mut group = criterion.benchmark_group(format!("read/{}KiB", block >> 10));
        group.sample_size(15).throughput(Throughput::Bytes(stored.bytes()));
        turns(&mut group, "floor", || floor.read(&files));
        turns(&mut group, "recover", || stored.open());
        let mut log = recover(&stored, block).expect("a log");
        let mut wire = vec![0; SIZE];
        turns(&mut group, "replay", || Turn::of(|| replay(&mut log, &mut wire)));
        group.finish();
    }
}

criterion_group!(benches, on_disk);
criterion_main!(benches);
