//! Replies of the store's thread.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use counterfoil_log_io::StoreError;

type Outcome = Result<(), Arc<StoreError>>;

/// State shared by both halves.
#[derive(Debug, Default)]
struct Slot {
    state: Mutex<State>,
    is_set: Condvar,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Outcome>,
    /// The waiting task.
    waker: Option<Waker>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The receiving half: a reply, awaitable any number of times.
#[derive(Debug)]
pub(crate) struct Reply(Arc<Slot>);

/// The sending half.
///
/// Dropping it unused, as in a panic of the store's thread, completes it with [`StoreError::WriterEnded`], so that
/// [`Reply::wait`] always returns.
#[derive(Debug)]
pub(super) struct ReplySender(Arc<Slot>);

/// Creates a one-shot channel.
pub(super) fn channel() -> (ReplySender, Reply) {
    let slot = Arc::<Slot>::default();
    (ReplySender(slot.clone()), Reply(slot))
}

impl ReplySender {
    pub(super) fn complete(self, outcome: Outcome) {
        self.set(outcome);
    }

    /// Keeps the first outcome; later ones have no effect.
    fn set(&self, outcome: Outcome) {
        let mut state = self.0.lock();
        state.outcome.get_or_insert(outcome);
        let waker = state.waker.take();
        drop(state);
        self.0.is_set.notify_all();
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Drop for ReplySender {
    fn drop(&mut self) {
        self.set(Err(Arc::new(StoreError::WriterEnded)));
    }
}

impl Reply {
    pub(crate) fn wait(&self) -> Outcome {
        let mut state = self.0.lock();
        loop {
            match &state.outcome {
                Some(result) => return result.clone(),
                None => state = self.0.is_set.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Returns the outcome; if there is none yet, `waker` is woken when there is.
    ///
    /// It replaces an earlier one.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Outcome> {
        let mut state = self.0.lock();
        if let Some(result) = &state.outcome {
            return Poll::Ready(result.clone());
        }
        state.waker = Some(waker.clone());
        Poll::Pending
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.0.lock().outcome.is_some()
    }
}

/// Task waiting for a write's result.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteWaker(Arc<Mutex<Option<Waker>>>);

impl WriteWaker {
    /// Has `waker` woken after the next result.
    ///
    /// It replaces an earlier one.
    pub(super) fn set(&self, waker: &Waker) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(waker.clone());
    }

    pub(super) fn wake(&self) {
        let waker = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Wakes the task when the store's thread ends, also by a panic: then there is no further result.
#[derive(Debug)]
pub(super) struct WakeAtEnd(pub(super) WriteWaker);

impl Drop for WakeAtEnd {
    fn drop(&mut self) {
        self.0.wake();
    }
}
