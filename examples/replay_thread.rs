//! A recorder: another thread reads the log while the rank appends to it, and waits for what is not there yet.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use counterfoil::{Log, Options, Rank, Reader, ReplayError, Ssn};

const PEER: Rank = Rank(1);
const MESSAGES: u64 = 100_000;

/// Wakes a parked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, as an executor does.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Adds up the numbers in a lane until the log is gone.
async fn record(reader: Reader) -> Result<(u64, u64), ReplayError> {
    let mut cursor = reader.open(Ssn::FIRST)?;
    let (mut messages, mut sum) = (0, 0);
    loop {
        match poll_fn(|context| cursor.poll_ready(context)).await {
            Err(ReplayError::Ended) => return Ok((messages, sum)),
            ready => ready?,
        }
        while let Some(record) = cursor.read()? {
            messages += 1;
            sum += record.payload().iter().map(|byte| u64::from(*byte)).sum::<u64>();
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut log = Log::create(Options::new(Rank(0), 2))?;
    let reader = log.reader(PEER)?;
    let recorder = thread::spawn(move || block_on(record(reader)));
    for number in 1..=MESSAGES {
        let mut claim = log.claim(PEER, 0, 8)?;
        claim.payload_mut().copy_from_slice(&number.to_le_bytes());
        claim.commit();
        if number.is_multiple_of(64) {
            log.wake_readers(); // a lock that nobody holds: after a batch, not after each record
        }
    }
    drop(log);
    let (messages, sum) = recorder.join().map_err(|_| "the recorder panicked")??;
    println!("recorded {messages} messages; their bytes add up to {sum}");
    assert_eq!(messages, MESSAGES);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn another_thread_reads_every_record() {
        assert!(super::main().is_ok());
    }
}
