//! Answers of the thread that writes the store.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use counterfoil_log_io::StoreError;

type Answer = Result<(), Arc<StoreError>>;
type Slot = Arc<(Mutex<Option<Answer>>, Condvar)>;

/// An answer that can be waited for.
#[derive(Clone, Debug)]
pub(crate) struct Reply(Slot);

/// Who owes an answer. One that is dropped without a word, by a thread that panicked, says [`StoreError::Gone`]: nobody
/// waits for ever.
#[derive(Debug)]
pub(super) struct Debt(Slot);

/// A debt, and what waits for it to be paid.
pub(super) fn reply() -> (Debt, Reply) {
    let slot = Slot::default();
    (Debt(slot.clone()), Reply(slot))
}

impl Debt {
    pub(super) fn pay(self, answer: Answer) {
        self.put(answer);
    }

    /// The first answer counts.
    fn put(&self, answer: Answer) {
        let (slot, arrived) = &*self.0;
        slot.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(answer);
        arrived.notify_all();
    }
}

impl Drop for Debt {
    fn drop(&mut self) {
        self.put(Err(Arc::new(StoreError::Gone)));
    }
}

impl Reply {
    pub(crate) fn wait(&self) -> Answer {
        let (slot, arrived) = &*self.0;
        let mut answer = slot.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*answer {
                Some(result) => return result.clone(),
                None => answer = arrived.wait(answer).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}
