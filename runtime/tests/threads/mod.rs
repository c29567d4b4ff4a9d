//! Communicator between threads of one process, for tests of programs and collectives.
//!
//! Implements MPI's matching rules without log and transport. Every error panics.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use counterfoil::Epoch;
use counterfoil_runtime::Error;
use counterfoil_runtime::communicator::{
    APPLICATION_CONTEXT, COLLECTIVE_CONTEXT, CallError, CollectiveSubstrate, Communicator, InternalTag, Request, Status,
};

/// Longest wait for a message, after which a deadlock is assumed.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Runs `program` on `size` ranks, a thread each, and returns their results.
pub(crate) fn run_ranks<T, F>(size: u32, program: F) -> Vec<T>
where
    T: Send,
    F: Fn(&mut ThreadCommunicator) -> T + Sync,
{
    let inboxes: Arc<[Inbox]> = (0..size).map(|_| Inbox::default()).collect();
    thread::scope(|scope| {
        let program = &program;
        let start = |rank| {
            let mut comm = ThreadCommunicator::new(rank, inboxes.clone());
            scope.spawn(move || {
                let result = program(&mut comm);
                comm.assert_no_request_left();
                result
            })
        };
        let threads: Vec<_> = (0..size).map(start).collect();
        let results = threads.into_iter().map(|thread| thread.join().expect("a rank panicked")).collect();
        for (rank, inbox) in inboxes.iter().enumerate() {
            let left: Vec<Status> = inbox.lock().messages.iter().map(|message| message.status).collect();
            assert!(left.is_empty(), "rank {rank} never received {left:?}");
        }
        results
    })
}

/// Messages arrived at a rank but not received.
#[derive(Default)]
struct Inbox {
    arrived: Mutex<Arrived>,
    news: Condvar,
}

#[derive(Default)]
struct Arrived {
    messages: Vec<Message>,
    /// Number of messages ever arrived.
    count: u64,
}

struct Message {
    status: Status,
    context: u32,
    payload: Bytes,
}

#[derive(Clone, Copy)]
struct Pattern {
    source: Option<u32>,
    tag: Option<i32>,
    context: u32,
}

enum Pending {
    Posted(Pattern),
    Complete(Status, Bytes),
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.lock().expect("another rank panicked")
    }
}

impl Arrived {
    fn find(&self, pattern: &Pattern) -> Option<usize> {
        self.messages.iter().position(|message| {
            pattern.context == message.context
                && pattern.source.is_none_or(|source| source == message.status.source)
                && pattern.tag.is_none_or(|tag| tag == message.status.tag)
        })
    }
}

/// One rank's end in a group of threads.
pub(crate) struct ThreadCommunicator {
    rank: u32,
    inboxes: Arc<[Inbox]>,
    /// By number, in post order.
    pending: BTreeMap<u64, Pending>,
    next_request: u64,
    next_collective: u64,
    epoch: Epoch,
}

impl ThreadCommunicator {
    fn new(rank: u32, inboxes: Arc<[Inbox]>) -> ThreadCommunicator {
        let pending = BTreeMap::new();
        ThreadCommunicator { rank, inboxes, pending, next_request: 0, next_collective: 0, epoch: Epoch::FIRST }
    }

    fn assert_no_request_left(&self) {
        assert!(self.pending.is_empty(), "rank {} ended with requests that it never waited for", self.rank);
    }

    fn request(&mut self, pending: Pending) -> Request {
        let id = self.next_request;
        self.next_request += 1;
        self.pending.insert(id, pending);
        Request::new(id)
    }

    fn deposit(&mut self, to: u32, context: u32, tag: i32, payload: &[u8]) -> Request {
        let (source, len) = (self.rank, payload.len());
        let payload = Bytes::copy_from_slice(payload);
        let inbox = &self.inboxes[to as usize];
        let mut arrived = inbox.lock();
        arrived.messages.push(Message { status: Status { source, tag, len }, context, payload });
        arrived.count += 1;
        drop(arrived);
        inbox.news.notify_one();
        self.request(Pending::Complete(Status { source: to, tag, len }, Bytes::new()))
    }

    fn pattern(&self, call: &'static str, source: Option<u32>, tag: Option<i32>) -> Result<Pattern, CallError> {
        source.map_or(Ok(()), |source| CallError::check_rank(call, source, self.size()))?;
        tag.map_or(Ok(()), |tag| CallError::check_tag(call, tag))?;
        Ok(Pattern { source, tag, context: APPLICATION_CONTEXT })
    }

    /// Matches posted receives, oldest first, with arrived messages, oldest first; then calls `ready`, until it returns
    /// `Some`.
    ///
    /// With `patience` zero, calls it only once.
    fn poll<T>(
        &mut self,
        patience: Duration,
        mut ready: impl FnMut(&BTreeMap<u64, Pending>, &Arrived) -> Option<T>,
    ) -> Option<T> {
        let inbox = &self.inboxes[self.rank as usize];
        let mut arrived = inbox.lock();
        loop {
            for pending in self.pending.values_mut() {
                if let Pending::Posted(pattern) = pending
                    && let Some(found) = arrived.find(pattern)
                {
                    let message = arrived.messages.remove(found);
                    *pending = Pending::Complete(message.status, message.payload);
                }
            }
            let answer = ready(&self.pending, &arrived);
            if answer.is_some() || patience.is_zero() {
                return answer;
            }
            let seen = arrived.count;
            let waited = inbox.news.wait_timeout_while(arrived, patience, |arrived| arrived.count == seen);
            let (next, timeout) = waited.expect("another rank panicked");
            assert!(!timeout.timed_out(), "rank {} waits for a message that nobody sends", self.rank);
            arrived = next;
        }
    }

    fn find(&mut self, pattern: Pattern, patience: Duration) -> Option<Status> {
        self.poll(patience, |_, arrived| arrived.find(&pattern).map(|found| arrived.messages[found].status))
    }

    fn is_complete(&mut self, id: u64, patience: Duration) -> bool {
        let complete = self.poll(patience, |pending, _| match pending.get(&id) {
            Some(Pending::Posted(_)) => None,
            Some(Pending::Complete(..)) => Some(()),
            None => panic!("there is no request {id}"),
        });
        complete.is_some()
    }
}

impl Communicator for ThreadCommunicator {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        u32::try_from(self.inboxes.len()).expect("few ranks")
    }

    fn isend(&mut self, to: u32, tag: i32, payload: &[u8]) -> Result<Request, Error> {
        CallError::check_rank("isend", to, self.size())?;
        CallError::check_tag("isend", tag)?;
        Ok(self.deposit(to, APPLICATION_CONTEXT, tag, payload))
    }

    fn irecv(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Request, Error> {
        let pattern = self.pattern("irecv", source, tag)?;
        Ok(self.request(Pending::Posted(pattern)))
    }

    fn wait(&mut self, request: Request) -> Result<(Status, Bytes), Error> {
        self.is_complete(request.id(), WAIT_MAX);
        match self.pending.remove(&request.id()) {
            Some(Pending::Complete(status, payload)) => Ok((status, payload)),
            _ => panic!("request {request:?} is not complete"),
        }
    }

    fn test(&mut self, request: &Request) -> Result<bool, Error> {
        Ok(self.is_complete(request.id(), Duration::ZERO))
    }

    fn probe(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Status, Error> {
        let pattern = self.pattern("probe", source, tag)?;
        Ok(self.find(pattern, WAIT_MAX).expect("it waits until there is one"))
    }

    fn iprobe(&mut self, source: Option<u32>, tag: Option<i32>) -> Result<Option<Status>, Error> {
        let pattern = self.pattern("iprobe", source, tag)?;
        Ok(self.find(pattern, Duration::ZERO))
    }

    fn checkpoint(&mut self, _state: &[u8]) -> Result<Epoch, Error> {
        self.assert_no_request_left();
        self.epoch = self.epoch.next().expect("few checkpoints");
        Ok(self.epoch)
    }

    fn restore(&mut self) -> Result<Option<Bytes>, Error> {
        Ok(None)
    }

    fn iteration(&mut self, _n: u64) -> Result<(), Error> {
        Ok(())
    }

    fn substrate(&mut self) -> &mut dyn CollectiveSubstrate {
        self
    }
}

impl CollectiveSubstrate for ThreadCommunicator {
    fn isend_internal(&mut self, to: u32, tag: InternalTag, payload: &[u8]) -> Result<Request, Error> {
        CallError::check_rank("isend_internal", to, self.size())?;
        Ok(self.deposit(to, COLLECTIVE_CONTEXT, tag.wire(), payload))
    }

    fn irecv_internal(&mut self, source: u32, tag: InternalTag) -> Result<Request, Error> {
        CallError::check_rank("irecv_internal", source, self.size())?;
        let pattern = Pattern { source: Some(source), tag: Some(tag.wire()), context: COLLECTIVE_CONTEXT };
        Ok(self.request(Pending::Posted(pattern)))
    }

    fn begin_collective(&mut self) -> InternalTag {
        let tag = InternalTag::new(self.next_collective);
        self.next_collective += 1;
        tag
    }
}
