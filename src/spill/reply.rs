//! Replies of the store's thread.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use counterfoil_log_io::StoreError;

type Outcome = Result<(), Arc<StoreError>>;
type Slot = Arc<(Mutex<Option<Outcome>>, Condvar)>;

/// The receiving half: a reply that can be awaited, any number of times.
#[derive(Clone, Debug)]
pub(crate) struct Reply(Slot);

/// The sending half. Dropping it unused, as a panic of the store's thread does, sends [`StoreError::WriterEnded`], so that
/// [`Reply::wait`] always returns.
#[derive(Debug)]
pub(super) struct ReplySender(Slot);

/// Creates a one-shot channel.
pub(super) fn channel() -> (ReplySender, Reply) {
    let slot = Slot::default();
    (ReplySender(slot.clone()), Reply(slot))
}

impl ReplySender {
    pub(super) fn send(self, outcome: Outcome) {
        self.set(outcome);
    }

    /// Keeps the first outcome; later ones have no effect.
    fn set(&self, outcome: Outcome) {
        let (slot, is_set) = &*self.0;
        slot.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(outcome);
        is_set.notify_all();
    }
}

impl Drop for ReplySender {
    fn drop(&mut self) {
        self.set(Err(Arc::new(StoreError::WriterEnded)));
    }
}

impl Reply {
    pub(crate) fn wait(&self) -> Outcome {
        let (slot, is_set) = &*self.0;
        let mut outcome = slot.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*outcome {
                Some(result) => return result.clone(),
                None => outcome = is_set.wait(outcome).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}
