//! Writes by `pwrite`, several at a time: works everywhere.
//!
//! A disk that is given one write at a time is idle between two of them. So a few threads make the writes; the last one
//! before a flush is made by the caller, which has nothing better to do then.

use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::files::{OpenFile, Writer};
use crate::gathered::{Gathered, heads_max};
use crate::transfer::{PAUSE, Progress, Step};
use crate::{BackendKind, Buffer, PAGE_BYTES};

/// The most threads that write.
const THREADS_MAX: usize = 8;

/// Threads that write, begun when there is a second write before a flush.
#[derive(Debug)]
pub(crate) struct Pwrite {
    buffer_bytes: usize,
    /// The most writes that may be begun and not complete.
    buffers: usize,
    free: Vec<Buffer>,
    /// Pages for the fronts of chunks, and how many of these may be begun and not complete.
    heads: Vec<Buffer>,
    heads_max: usize,
    /// The newest write: the caller makes it, if it flushes before it begins another one.
    held: Option<Write>,
    threads: Option<Threads>,
    /// Writes that threads have.
    in_flight: usize,
    /// The first failure since the last flush.
    failed: Option<io::Error>,
}

#[derive(Debug)]
struct Write {
    file: Arc<OpenFile>,
    at: u64,
    what: Gathered,
}

#[derive(Debug)]
struct Written {
    buffer: Buffer,
    result: io::Result<()>,
}

impl Write {
    fn make(self) -> Written {
        let Write { file, at, what } = self;
        let result = what.write_in_full(&*file, at);
        let result = result.map_err(|error| file.write_error(at, what.len(), &error));
        Written { buffer: what.into_buffer(), result }
    }
}

impl Pwrite {
    pub(crate) fn new(buffers: usize, buffer_bytes: usize) -> Pwrite {
        Pwrite {
            buffer_bytes,
            buffers,
            free: Buffer::several(buffers, buffer_bytes),
            heads: Vec::new(),
            heads_max: heads_max(buffer_bytes),
            held: None,
            threads: None,
            in_flight: 0,
            failed: None,
        }
    }

    /// Gives a write to a thread; makes it where there is none.
    fn give_away(&mut self, write: Write) {
        if self.threads.is_none() {
            self.threads = Threads::begin(THREADS_MAX.min(self.buffers + self.heads_max - 1));
        }
        let unsent = match &self.threads {
            Some(threads) => threads.send(write),
            None => Some(write),
        };
        match unsent {
            None => self.in_flight += 1,
            Some(write) => self.complete(write.make()),
        }
    }

    fn complete(&mut self, Written { mut buffer, result }: Written) {
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
        buffer.set_len(0);
        if self.free.len() < self.buffers && buffer.capacity() == self.buffer_bytes {
            self.free.push(buffer);
        } else if self.heads.len() < self.heads_max && buffer.capacity() == PAGE_BYTES {
            self.heads.push(buffer);
        }
    }

    /// Waits for one of the writes that threads have.
    fn wait(&mut self) {
        match self.threads.as_ref().and_then(|threads| threads.written.recv().ok()) {
            Some(written) => {
                self.in_flight -= 1;
                self.complete(written);
            }
            // They have panicked, all of them.
            None => {
                self.in_flight = 0;
                self.failed.get_or_insert_with(|| io::Error::other("the threads that write have ended"));
            }
        }
    }

    fn finish(&mut self) {
        if let Some(write) = self.held.take() {
            self.complete(write.make());
        }
        while self.in_flight > 0 {
            self.wait();
        }
    }
}

impl Writer for Pwrite {
    fn kind(&self) -> BackendKind {
        BackendKind::Pwrite
    }

    fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    fn buffer(&mut self) -> io::Result<Buffer> {
        while let Some(written) = self.threads.as_ref().and_then(|threads| threads.written.try_recv().ok()) {
            self.in_flight -= 1;
            self.complete(written);
        }
        loop {
            if let Some(buffer) = self.free.pop() {
                return Ok(buffer);
            }
            if self.in_flight + usize::from(self.held.is_some()) < self.buffers || self.in_flight == 0 {
                return Ok(Buffer::new(self.buffer_bytes));
            }
            self.wait();
        }
    }

    fn head(&mut self) -> io::Result<Buffer> {
        // How many are in flight is limited in `begin`.
        Ok(self.heads.pop().unwrap_or_else(|| Buffer::new(PAGE_BYTES)))
    }

    fn begin(&mut self, file: &Arc<OpenFile>, at: u64, what: Gathered) -> io::Result<()> {
        let write = Write { file: Arc::clone(file), at, what };
        if self.buffers == 1 {
            self.complete(write.make());
            return Ok(());
        }
        if let Some(before) = self.held.replace(write) {
            while self.in_flight + 1 >= self.buffers + self.heads_max {
                self.wait();
            }
            self.give_away(before);
        }
        Ok(())
    }

    fn settle(&mut self, _file: &Arc<OpenFile>) -> io::Result<()> {
        self.finish();
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.finish();
        self.failed.take().map_or(Ok(()), Err)
    }

    fn sync(&mut self, file: &Arc<OpenFile>) -> io::Result<()> {
        // Not tried again: a second sync may succeed though the bytes are lost.
        Ok(rustix::fs::fdatasync(&**file)?)
    }
}

impl Drop for Pwrite {
    fn drop(&mut self) {
        // What was begun is done before the directory's lock is given up.
        self.finish();
    }
}

/// Threads that take writes from one queue. They end when this is dropped.
#[derive(Debug)]
struct Threads {
    writes: Option<Sender<Write>>,
    written: Receiver<Written>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    /// As many of them as the system has, up to `count`; `None` where it has none.
    fn begin(count: usize) -> Option<Threads> {
        let (writes, queue) = channel();
        let (done, written) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = Vec::new();
        for _ in 0..count {
            let (queue, done) = (Arc::clone(&queue), done.clone());
            let writing = move || serve(&queue, &done);
            match std::thread::Builder::new().name("counterfoil-write".to_owned()).spawn(writing) {
                Ok(thread) => threads.push(thread),
                Err(_) => break,
            }
        }
        if threads.is_empty() { None } else { Some(Threads { writes: Some(writes), written, threads }) }
    }

    /// Gives the write back where no thread is left.
    fn send(&self, write: Write) -> Option<Write> {
        match &self.writes {
            Some(writes) => writes.send(write).err().map(|unsent| unsent.0),
            None => Some(write),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.writes = None;
        for thread in self.threads.drain(..) {
            // Its panic was printed where it happened.
            let _ = thread.join();
        }
    }
}

fn serve(queue: &Mutex<Receiver<Write>>, done: &Sender<Written>) {
    loop {
        // One thread waits for the next write, the others for the lock.
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(write) = next else { return };
        if done.send(write.make()).is_err() {
            return;
        }
    }
}

/// Writes all of `bytes` at `at`: as many calls as it takes.
pub(crate) fn write_in_full(file: impl AsFd, at: u64, bytes: &[u8]) -> io::Result<()> {
    let mut progress = Progress::new(bytes.len());
    loop {
        let done = progress.done();
        match progress.advance(rustix::io::pwrite(file.as_fd(), &bytes[done..], at + done as u64)) {
            Step::Done => return Ok(()),
            Step::Again { progressed: true } => {}
            Step::Again { progressed: false } => std::thread::sleep(PAUSE),
            Step::Failed(error) => return Err(error),
        }
    }
}
