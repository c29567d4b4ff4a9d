//! Times of death of the job's processes on this host.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::SystemTime;

use rustix::event::epoll;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Events taken at once.
const EVENTS: usize = 16;

/// Records the time of process deaths.
///
/// Where the kernel has no such files (before Linux 5.3), no time is known.
#[derive(Debug)]
pub(super) struct Deaths {
    epoll: Option<Arc<OwnedFd>>,
    /// Watched processes, each with its file.
    watched: BTreeMap<u32, OwnedFd>,
    times: Arc<Mutex<BTreeMap<u32, SystemTime>>>,
}

impl Deaths {
    pub(super) fn new() -> Deaths {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).ok().map(Arc::new);
        let times = Arc::<Mutex<_>>::default();
        if let Some(epoll) = epoll.clone() {
            let times = Arc::clone(&times);
            // It ends with the command.
            thread::spawn(move || note(&epoll, &times));
        }
        Deaths { epoll, watched: BTreeMap::new(), times }
    }

    /// Watches a process on this host from now on.
    pub(super) fn watch(&mut self, pid: u32) {
        let (Some(epoll), Ok(id)) = (&self.epoll, i32::try_from(pid)) else { return };
        let Some(Ok(file)) = Pid::from_raw(id).map(|id| pidfd_open(id, PidfdFlags::empty())) else { return };
        let (data, flags) = (epoll::EventData::new_u64(u64::from(pid)), epoll::EventFlags::IN);
        if epoll::add(epoll, &file, data, flags | epoll::EventFlags::ONESHOT).is_ok() {
            self.watched.insert(pid, file);
        }
    }

    /// Returns a watched process's time of death.
    pub(super) fn time(&self, pid: u32) -> Option<SystemTime> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).get(&pid).copied()
    }
}

/// Records process deaths as they come.
fn note(epoll: &OwnedFd, times: &Mutex<BTreeMap<u32, SystemTime>>) {
    let mut events = Vec::with_capacity(EVENTS);
    loop {
        match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        }
        let now = SystemTime::now();
        let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
        for event in events.drain(..) {
            let pid = u32::try_from(event.data.u64()).expect("the number of a process");
            times.entry(pid).or_insert(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_of_a_death_is_noted() {
        let mut deaths = Deaths::new();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        deaths.watch(child.id());
        thread::sleep(Duration::from_millis(20));
        assert_eq!(deaths.time(child.id()), None);
        let killed = SystemTime::now();
        child.kill().unwrap();
        let time = loop {
            if let Some(time) = deaths.time(child.id()) {
                break time;
            }
            thread::yield_now();
        };
        assert!(time >= killed && time <= SystemTime::now());
        child.wait().unwrap();
    }
}
