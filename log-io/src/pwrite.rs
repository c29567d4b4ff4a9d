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
use crate::gathered::{Gathered, PLACES_MAX, heads_max, write_together};
use crate::transfer::{PAUSE, Progress, Step};
use crate::{BackendKind, Buffer, PAGE_BYTES};

/// The most threads that write.
const THREADS_MAX: usize = 8;
/// Neighbours that wait for a thread are written by one call, up to these bytes: each call costs two threads a turn.
const TOGETHER_BYTES_MAX: usize = 1 << 20;

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
    /// Where the next one begins if it is this one's neighbour.
    fn end(&self) -> u64 {
        self.at + self.what.len() as u64
    }

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
    let mut writes = Vec::new();
    loop {
        // One thread waits for the next write, the others for the lock.
        let behind = take(&queue.lock().unwrap_or_else(PoisonError::into_inner), &mut writes);
        if writes.is_empty() {
            return;
        }
        for write in make_together(&mut writes).into_iter().chain(behind.map(Write::make)) {
            if done.send(write).is_err() {
                return;
            }
        }
    }
}

/// Waits for a write, and takes its neighbours with it that are there already; none where there will be no more. Returns one that was
/// taken and is no neighbour.
fn take(queue: &Receiver<Write>, writes: &mut Vec<Write>) -> Option<Write> {
    let first = queue.recv().ok()?;
    let (mut bytes, mut places, mut end) = (first.what.len(), first.what.places_max(), first.end());
    let file = Arc::clone(&first.file);
    writes.push(first);
    while bytes < TOGETHER_BYTES_MAX
        && let Ok(next) = queue.try_recv()
    {
        bytes += next.what.len();
        places += next.what.places_max();
        let joins = Arc::ptr_eq(&file, &next.file) && next.at == end;
        if !joins || bytes > TOGETHER_BYTES_MAX || places > PLACES_MAX {
            return Some(next);
        }
        end = next.end();
        writes.push(next);
    }
    None
}

/// Makes neighbouring writes with one call. Where that fails each is made alone, which tells which of them it is.
fn make_together(writes: &mut Vec<Write>) -> Vec<Written> {
    if let [first, _, ..] = &writes[..] {
        let whats: Vec<&Gathered> = writes.iter().map(|write| &write.what).collect();
        if write_together(&whats, &*first.file, first.at).is_ok() {
            return writes
                .drain(..)
                .map(|write| Written { buffer: write.what.into_buffer(), result: Ok(()) })
                .collect();
        }
    }
    writes.drain(..).map(Write::make).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn write(file: &Arc<OpenFile>, page: usize, pages: usize, byte: u8) -> Write {
        let mut buffer = Buffer::new(pages * PAGE_BYTES);
        buffer.bytes_mut().fill(byte);
        buffer.set_len(pages * PAGE_BYTES);
        Write { file: Arc::clone(file), at: (page * PAGE_BYTES) as u64, what: buffer.into() }
    }

    /// What a thread takes at once, as (first page, pages), and what it takes beside.
    fn taken(queue: &Receiver<Write>) -> (Vec<(u64, usize)>, Option<u64>, Vec<Write>) {
        let mut writes = Vec::new();
        let behind = take(queue, &mut writes);
        let places = writes.iter().map(|write| (write.at / PAGE_BYTES as u64, write.what.len() / PAGE_BYTES)).collect();
        (places, behind.map(|write| write.at / PAGE_BYTES as u64), writes)
    }

    #[test]
    fn neighbours_that_wait_are_written_together_and_nothing_else_is() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = ["a", "b"].map(|name| {
            let path = directory.path().join(name);
            let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
            (path, Arc::new(OpenFile::new(name, file.into())))
        });
        let [(path, a), (_, b)] = &files;
        let (sender, queue) = channel();
        // Two neighbours, a gap, another file where the first one would go on, and more than is written together.
        let most = TOGETHER_BYTES_MAX / PAGE_BYTES;
        for write in [write(a, 0, 1, 1), write(a, 1, 2, 2), write(a, 4, 1, 3), write(a, 5, 1, 4), write(b, 6, 1, 5)] {
            sender.send(write).expect("a queue");
        }
        let (places, behind, mut writes) = taken(&queue);
        assert_eq!((places, behind), (vec![(0, 1), (1, 2)], Some(4)));
        assert!(make_together(&mut writes).iter().all(|written| written.result.is_ok()) && writes.is_empty());
        let bytes = std::fs::read(path).expect("the file");
        assert_eq!(bytes.chunks(PAGE_BYTES).map(|page| page[0]).collect::<Vec<_>>(), [1, 2, 2]);
        assert_eq!(taken(&queue).1, Some(6));
        for write in [write(a, 0, most - 1, 6), write(a, most - 1, 1, 7), write(a, most, 1, 8)] {
            sender.send(write).expect("a queue");
        }
        assert_eq!(taken(&queue).0, [(0, most - 1), (most as u64 - 1, 1)]);
        drop(sender);
        assert_eq!(taken(&queue).0, [(most as u64, 1)]);
        assert!(taken(&queue).0.is_empty());
    }

    #[test]
    fn of_neighbours_that_fail_together_each_says_so_itself() {
        let file: std::fs::File = std::fs::File::open("/dev/null").expect("a file that can't be written to");
        let file = Arc::new(OpenFile::new("segment", file.into()));
        let written = make_together(&mut vec![write(&file, 0, 1, 0), write(&file, 1, 1, 0)]);
        let errors: Vec<String> = written.into_iter().map(|written| written.result.unwrap_err().to_string()).collect();
        assert!(errors[0].starts_with("segment: writing 4096 bytes at 0:"), "{errors:?}");
        assert!(errors[1].starts_with("segment: writing 4096 bytes at 4096:"), "{errors:?}");
    }
}
