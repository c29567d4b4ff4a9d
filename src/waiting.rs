//! Tasks waiting for uncommitted records.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use counterfoil_log_core::{Rank, Ssn};

/// Tasks of one log waiting at the end of a lane.
///
/// A commit doesn't look at them: the writer does, when it chooses to. The second to take the lock sees the other's
/// work: the writer sees a registered task, or the task, reading its lane once more, sees the committed records.
#[derive(Debug, Default)]
pub(crate) struct WaitingReaders(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    /// One for each registration, at most.
    tasks: Vec<Task>,
    registrations: u64,
    /// The log was dropped: nothing more is committed.
    has_ended: bool,
}

#[derive(Debug)]
struct Task {
    registration: u64,
    lane: Rank,
    /// Awaited SSN.
    position: Ssn,
    waker: Waker,
}

impl List {
    fn remove(&mut self, registration: u64) -> Option<Task> {
        let at = self.tasks.iter().position(|task| task.registration == registration)?;
        Some(self.tasks.swap_remove(at))
    }
}

impl WaitingReaders {
    /// Wakes the tasks waiting for a record below the lane's `end`, its next SSN.
    pub(crate) fn wake(&self, end: impl Fn(Rank) -> Ssn) {
        let mut list = self.lock();
        if list.tasks.is_empty() {
            return;
        }
        let all = std::mem::take(&mut list.tasks);
        let (woken, waiting): (Vec<Task>, Vec<Task>) = all.into_iter().partition(|task| task.position < end(task.lane));
        list.tasks = waiting;
        drop(list);
        woken.into_iter().for_each(|task| task.waker.wake());
    }

    /// Wakes all tasks: there will be no further record.
    fn end(&self) {
        let mut list = self.lock();
        list.has_ended = true;
        let woken = std::mem::take(&mut list.tasks);
        drop(list);
        woken.into_iter().for_each(|task| task.waker.wake());
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The log's handle.
///
/// Wakes all tasks when dropped.
#[derive(Debug, Default)]
pub(crate) struct Readers(pub(crate) Arc<WaitingReaders>);

impl Drop for Readers {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A cursor's entry among the waiting tasks.
///
/// Removed when dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    readers: Arc<WaitingReaders>,
    number: u64,
}

impl Registration {
    pub(crate) fn new(readers: Arc<WaitingReaders>) -> Registration {
        let mut list = readers.lock();
        list.registrations += 1;
        let number = list.registrations;
        drop(list);
        Registration { readers, number }
    }

    /// Has `waker` woken after a record `position` of the lane is committed.
    ///
    /// It replaces an earlier one. Returns `false` if the log was dropped: nothing would wake it.
    pub(crate) fn wait(&self, lane: Rank, position: Ssn, waker: &Waker) -> bool {
        let task = Task { registration: self.number, lane, position, waker: waker.clone() };
        let mut list = self.readers.lock();
        if list.has_ended {
            return false;
        }
        let before = list.remove(self.number);
        list.tasks.push(task);
        // In this order: a task may own its cursor, whose drop removes its entry.
        drop(list);
        drop(before);
        true
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let task = self.readers.lock().remove(self.number);
        drop(task);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Debug, Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_is_woken_once_its_record_is_committed_and_only_then() {
        let readers = Arc::new(WaitingReaders::default());
        let [one, two] = [1, 2].map(|_| Arc::new(Count::default()));
        let counts = || [&one, &two].map(|count| count.0.load(Ordering::Relaxed));
        let registrations = [1, 2].map(|_| Registration::new(readers.clone()));
        assert!(registrations[0].wait(Rank(1), Ssn(5), &one.clone().into()));
        assert!(registrations[1].wait(Rank(2), Ssn(5), &two.clone().into()));
        let end = |of_1: u64, of_2: u64| move |lane: Rank| Ssn(if lane == Rank(1) { of_1 } else { of_2 });
        readers.wake(end(5, 5));
        assert_eq!(counts(), [0, 0]);
        readers.wake(end(6, 5));
        assert_eq!(counts(), [1, 0]);
        readers.wake(end(9, 5));
        assert_eq!(counts(), [1, 0], "it has left");
        readers.wake(end(9, 9));
        assert_eq!((counts(), readers.lock().tasks.len()), ([1, 1], 0));
    }

    #[test]
    fn a_cursor_has_one_place_and_leaves_it_when_it_is_dropped() {
        let readers = Arc::new(WaitingReaders::default());
        let [old, new] = [1, 2].map(|_| Arc::new(Count::default()));
        let registration = Registration::new(readers.clone());
        for position in 1..100 {
            assert!(registration.wait(Rank(1), Ssn(position), &old.clone().into()));
        }
        assert!(registration.wait(Rank(1), Ssn(100), &new.clone().into()));
        assert_eq!(readers.lock().tasks.len(), 1);
        readers.wake(|_| Ssn(101));
        assert_eq!((old.0.load(Ordering::Relaxed), new.0.load(Ordering::Relaxed)), (0, 1));
        assert!(registration.wait(Rank(1), Ssn(101), &new.into()));
        drop(registration);
        assert!(readers.lock().tasks.is_empty());
    }

    #[test]
    fn the_end_of_the_log_wakes_all_and_takes_no_further_task() {
        let (log, count) = (Readers::default(), Arc::new(Count::default()));
        let registration = Registration::new(log.0.clone());
        assert!(registration.wait(Rank(1), Ssn(7), &count.clone().into()));
        drop(log);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(!registration.wait(Rank(1), Ssn(7), &count.into()));
    }
}
