//! Prefaulting ahead of the writer, on a thread of its own.
//!
//! A page fault costs microseconds, an append nanoseconds. A log that keeps its records always needs new memory, so a
//! thread commits chunks ahead of use. It has the lowest priority: where every core is busy it would only take time
//! from the program, and the claim commits its chunk itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use counterfoil_log_core::Pool;

/// Lowest priority of an ordinary thread (`setpriority(2)`).
const NICE: i32 = 19;

/// Thread committing chunks of a pool ahead of its writer.
#[derive(Debug)]
pub(crate) struct Prefaulter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    pool: Arc<Pool>,
    /// Bytes of committed, unused memory to have ready.
    ahead_bytes: usize,
    /// The thread is parked, or about to park.
    is_idle: AtomicBool,
    /// The log is gone.
    is_ending: AtomicBool,
}

impl Prefaulter {
    /// Starts the thread, keeping `ahead_bytes` of `pool` committed beyond the memory in use.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(crate) fn start(pool: Arc<Pool>, ahead_bytes: usize) -> std::io::Result<Prefaulter> {
        let (is_idle, is_ending) = (AtomicBool::new(false), AtomicBool::new(false));
        let shared = Arc::new(Shared { pool, ahead_bytes, is_idle, is_ending });
        let serve = {
            let shared = shared.clone();
            move || shared.serve()
        };
        let thread = std::thread::Builder::new().name("counterfoil-prefault".to_owned()).spawn(serve)?;
        Ok(Prefaulter { shared, thread: Some(thread) })
    }

    /// Wakes the thread if less than half its ready memory is left.
    ///
    /// Takes a few loads, unless it is woken.
    #[inline]
    pub(crate) fn wake_if_low(&self) {
        let Shared { pool, ahead_bytes, is_idle, .. } = &*self.shared;
        if is_idle.load(Ordering::Relaxed) && pool.can_commit_ahead(ahead_bytes / 2) {
            is_idle.store(false, Ordering::Relaxed);
            self.wake();
        }
    }

    fn wake(&self) {
        self.thread.iter().for_each(|thread| thread.thread().unpark());
    }
}

impl Shared {
    fn serve(&self) {
        // Without the permission it competes with the program.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
        while !self.is_ending.load(Ordering::Relaxed) {
            match self.pool.commit_ahead(self.ahead_bytes) {
                Ok(true) => {}
                Ok(false) => {
                    self.is_idle.store(true, Ordering::Relaxed);
                    std::thread::park();
                }
                // The system has no memory; claims report this.
                Err(_) => return,
            }
        }
    }
}

impl Drop for Prefaulter {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Relaxed);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use counterfoil_log_core::PoolOptions;

    use super::*;

    const CHUNK: usize = 64 << 10;

    fn wait_until(what: &str, is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn memory_is_committed_ahead_up_to_the_budget_and_not_beyond() {
        let options = PoolOptions { memory_bytes_max: 8 * CHUNK, prefault_bytes: 0, ..PoolOptions::default() };
        let pool = Pool::volatile(options).unwrap();
        let prefaulter = Prefaulter::start(pool.clone(), 3 * CHUNK).unwrap();
        wait_until("three chunks are ready", || pool.spare_bytes() == 3 * CHUNK);
        let mut lane = counterfoil_log_core::LaneWriter::new(pool.clone(), counterfoil_log_core::Rank(1));
        while lane.claim(0, CHUNK / 3).map(counterfoil_log_core::Claim::commit).is_ok() {
            prefaulter.wake_if_low();
        }
        assert!(pool.resident_bytes() <= 8 * CHUNK && pool.used_bytes() > 6 * CHUNK);
    }

    #[test]
    fn the_thread_ends_with_the_log() {
        let pool = Pool::volatile(PoolOptions::default()).unwrap();
        drop(Prefaulter::start(pool.clone(), 1 << 20).unwrap());
        assert_eq!(Arc::strong_count(&pool), 1);
    }
}
