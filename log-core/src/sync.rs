//! Atomics: std's by default, loom's under `--cfg counterfoil_loom`, shuttle's if `--cfg counterfoil_shuttle` is added.
//!
//! The flags are not named `loom` and `shuttle` so as never to reach a dependency. Everything shared by two threads in
//! this crate goes through this module, so that the models run the shipped code.

#[cfg(not(counterfoil_loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(counterfoil_shuttle)]
pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(all(counterfoil_loom, not(counterfoil_shuttle)))]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

// Not modelled: the reference count keeping the pool alive, and the lane registry, used only by reports and never while
// a modelled word is accessed.
pub(crate) use std::sync::{Arc, Mutex};

// Modelled: a lane's writer decides by the lane's handle count.
#[cfg(counterfoil_loom)]
pub(crate) use counted::{CountedArc, CountedWeak};
#[cfg(not(counterfoil_loom))]
pub(crate) use std::sync::{Arc as CountedArc, Weak as CountedWeak};

/// `Arc` and `Weak` with a reference count visible to loom, accessed with std's orderings.
///
/// (Loom's own `Arc` has no `Weak`.)
#[cfg(counterfoil_loom)]
mod counted {
    use std::ops::Deref;
    use std::sync::{Arc, Weak};

    use super::{AtomicUsize, Ordering};

    #[derive(Debug)]
    pub(crate) struct Counted<T> {
        count: AtomicUsize,
        value: T,
    }

    #[derive(Debug)]
    pub(crate) struct CountedArc<T>(Arc<Counted<T>>);

    /// Weak handle for the registry.
    ///
    /// The short-lived handles from its upgrades are not counted.
    #[derive(Debug)]
    pub(crate) struct CountedWeak<T>(Weak<Counted<T>>);

    impl<T> CountedArc<T> {
        pub(crate) fn new(value: T) -> CountedArc<T> {
            CountedArc(Arc::new(Counted { count: AtomicUsize::new(1), value }))
        }

        pub(crate) fn strong_count(this: &CountedArc<T>) -> usize {
            this.0.count.load(Ordering::Relaxed)
        }

        pub(crate) fn downgrade(this: &CountedArc<T>) -> CountedWeak<T> {
            CountedWeak(Arc::downgrade(&this.0))
        }
    }

    impl<T> Clone for CountedArc<T> {
        fn clone(&self) -> CountedArc<T> {
            self.0.count.fetch_add(1, Ordering::Relaxed);
            CountedArc(self.0.clone())
        }
    }

    impl<T> Drop for CountedArc<T> {
        fn drop(&mut self) {
            self.0.count.fetch_sub(1, Ordering::Release);
        }
    }

    impl<T> Deref for CountedArc<T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0.value
        }
    }

    impl<T> CountedWeak<T> {
        pub(crate) fn strong_count(&self) -> usize {
            self.0.strong_count()
        }

        pub(crate) fn upgrade(&self) -> Option<Arc<Counted<T>>> {
            self.0.upgrade()
        }
    }

    impl<T> Deref for Counted<T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.value
        }
    }
}
