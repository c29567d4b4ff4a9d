//! The `pwrite` backend, for systems without io_uring.
//!
//! A few threads write, because a disk with one write at a time is idle in between. The caller itself performs the last
//! write before a flush, as it has to wait anyway.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::backend::buffer_pool::BufferPool;
use crate::backend::files::{OpenFile, Writer};
use crate::backend::vectored_write::{IOVECS_MAX, VectoredWrite, chunk_writes_max, write_adjacent};
use crate::format::CHUNKS_MAX;
use crate::{BackendKind, Buffer, PAGE_BYTES};

/// Writing threads, at most.
const THREADS_MAX: usize = 8;
/// Maximum bytes of adjacent queued writes merged into one call: each call costs two thread switches.
const MERGED_BYTES_MAX: usize = 1 << 20;
// Each range in a write has a page or more; a chunk write has one range for each chunk and one for its header.
const _: () = assert!(MERGED_BYTES_MAX / PAGE_BYTES + CHUNKS_MAX < IOVECS_MAX);

/// A pool of writing threads, started with the second write before a flush.
#[derive(Debug)]
pub(crate) struct Pwrite {
    /// Their number limits the writes in flight.
    buffers: BufferPool,
    /// Header pages for chunk writes; their number limits chunk writes in flight.
    header_buffers: BufferPool,
    /// The newest write: the caller performs it if it flushes before it starts another one.
    deferred: Option<Write>,
    threads: Option<Threads>,
    /// Writes queued or performed by the threads.
    in_flight: usize,
    /// The first failure since the last flush.
    failed: Option<io::Error>,
}

#[derive(Debug)]
struct Write {
    file: Arc<OpenFile>,
    at: u64,
    data: VectoredWrite,
}

#[derive(Debug)]
struct Completed {
    buffer: Buffer,
    result: io::Result<()>,
}

impl Write {
    /// Returns the end offset, where an adjacent write begins.
    fn end(&self) -> u64 {
        self.at + self.data.len() as u64
    }

    fn perform(self) -> Completed {
        let Write { file, at, data } = self;
        let result = data.write_in_full(&*file, at);
        let result = result.map_err(|error| file.write_error(at, data.len(), &error));
        Completed { buffer: data.into_buffer(), result }
    }
}

impl Pwrite {
    pub(crate) fn new(buffers: usize, buffer_bytes: usize) -> Pwrite {
        Pwrite {
            buffers: BufferPool::filled(buffers, buffer_bytes),
            header_buffers: BufferPool::new(chunk_writes_max(buffer_bytes), PAGE_BYTES),
            deferred: None,
            threads: None,
            in_flight: 0,
            failed: None,
        }
    }

    /// Queues a write for the threads; performs it if there is no thread.
    fn dispatch(&mut self, write: Write) {
        if self.threads.is_none() {
            self.threads = Threads::begin(THREADS_MAX.min(self.queued_max()));
        }
        let unsent = match &self.threads {
            Some(threads) => threads.enqueue(write),
            None => Some(write),
        };
        match unsent {
            None => self.in_flight += 1,
            Some(write) => self.complete(write.perform()),
        }
    }

    /// Returns the maximum number of writes queued with the threads; one more is deferred.
    fn queued_max(&self) -> usize {
        self.buffers.max() + self.header_buffers.max() - 1
    }

    fn complete(&mut self, Completed { buffer, result }: Completed) {
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
        // A foreign buffer not kept by either pool is dropped.
        let _ = self.buffers.put(buffer).and_then(|buffer| self.header_buffers.put(buffer));
    }

    /// Waits for a write by the threads.
    fn wait(&mut self) {
        match self.threads.as_ref().and_then(|threads| threads.written.recv().ok()) {
            Some(written) => {
                self.in_flight -= 1;
                self.complete(written);
            }
            // All threads have panicked.
            None => {
                self.in_flight = 0;
                self.failed.get_or_insert_with(|| io::Error::other("the threads that write have ended"));
            }
        }
    }

    fn finish(&mut self) {
        if let Some(write) = self.deferred.take() {
            self.complete(write.perform());
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
        self.buffers.buffer_bytes()
    }

    fn buffer(&mut self) -> io::Result<Buffer> {
        while let Some(written) = self.threads.as_ref().and_then(|threads| threads.written.try_recv().ok()) {
            self.in_flight -= 1;
            self.complete(written);
        }
        loop {
            match self.buffers.take() {
                Some(buffer) => return Ok(buffer),
                // The caller has all others, or has dropped some.
                None if self.in_flight == 0 => return Ok(self.buffers.allocate()),
                None => self.wait(),
            }
        }
    }

    fn header_buffer(&mut self) -> io::Result<Buffer> {
        // `begin` limits the writes in flight.
        Ok(self.header_buffers.take().unwrap_or_else(|| self.header_buffers.allocate()))
    }

    fn begin(&mut self, file: &Arc<OpenFile>, at: u64, data: VectoredWrite) -> io::Result<()> {
        let write = Write { file: Arc::clone(file), at, data };
        if self.buffers.max() == 1 {
            self.complete(write.perform());
            return Ok(());
        }
        if let Some(before) = self.deferred.replace(write) {
            while self.in_flight >= self.queued_max() {
                self.wait();
            }
            self.dispatch(before);
        }
        Ok(())
    }

    fn wait_for_file(&mut self, _file: &Arc<OpenFile>) -> io::Result<()> {
        self.finish();
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.finish();
        self.failed.take().map_or(Ok(()), Err)
    }

    fn sync(&mut self, file: &Arc<OpenFile>) -> io::Result<()> {
        // No retry: a second sync may succeed although bytes are lost.
        Ok(rustix::fs::fdatasync(&**file)?)
    }
}

impl Drop for Pwrite {
    fn drop(&mut self) {
        // Writes complete before the directory's lock is released.
        self.finish();
    }
}

/// Threads taking writes from one queue.
///
/// Dropping it ends them.
#[derive(Debug)]
struct Threads {
    writes: Option<Sender<Write>>,
    written: Receiver<Completed>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts up to `count` threads, as many as the system allows; `None` if it allows none.
    fn begin(count: usize) -> Option<Threads> {
        let (writes, queue) = channel();
        let (done, written) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = Vec::new();
        for _ in 0..count {
            let (queue, done) = (Arc::clone(&queue), done.clone());
            let writing = move || run_thread(&queue, &done);
            match std::thread::Builder::new().name("counterfoil-write".to_owned()).spawn(writing) {
                Ok(thread) => threads.push(thread),
                Err(_) => break,
            }
        }
        if threads.is_empty() { None } else { Some(Threads { writes: Some(writes), written, threads }) }
    }

    /// Queues a write; returns it if no thread is left.
    fn enqueue(&self, write: Write) -> Option<Write> {
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
            // The panic hook has printed a panic.
            let _ = thread.join();
        }
    }
}

fn run_thread(queue: &Mutex<Receiver<Write>>, done: &Sender<Completed>) {
    let mut writes = Vec::new();
    loop {
        // One thread waits for the next write, the others for the lock.
        let next = receive_adjacent(&queue.lock().unwrap_or_else(PoisonError::into_inner), &mut writes);
        if writes.is_empty() {
            return;
        }
        for write in perform_adjacent(&mut writes).into_iter().chain(next.map(Write::perform)) {
            if done.send(write).is_err() {
                return;
            }
        }
    }
}

/// Waits for a write, and takes the queued writes adjacent to it; `writes` stays empty if the queue is closed.
///
/// Returns a write that was taken and isn't adjacent.
fn receive_adjacent(queue: &Receiver<Write>, writes: &mut Vec<Write>) -> Option<Write> {
    let first = queue.recv().ok()?;
    let (mut bytes, mut end) = (first.data.len(), first.end());
    let file = Arc::clone(&first.file);
    writes.push(first);
    while bytes < MERGED_BYTES_MAX
        && let Ok(next) = queue.try_recv()
    {
        bytes += next.data.len();
        let joins = Arc::ptr_eq(&file, &next.file) && next.at == end;
        if !joins || bytes > MERGED_BYTES_MAX {
            return Some(next);
        }
        end = next.end();
        writes.push(next);
    }
    None
}

/// Performs adjacent writes with one call.
///
/// If it fails, performs each alone, to find the failing one.
fn perform_adjacent(writes: &mut Vec<Write>) -> Vec<Completed> {
    if let [first, _, ..] = &writes[..] {
        let data: Vec<&VectoredWrite> = writes.iter().map(|write| &write.data).collect();
        if write_adjacent(&data, &*first.file, first.at).is_ok() {
            return writes
                .drain(..)
                .map(|write| Completed { buffer: write.data.into_buffer(), result: Ok(()) })
                .collect();
        }
    }
    writes.drain(..).map(Write::perform).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(file: &Arc<OpenFile>, page: usize, pages: usize, byte: u8) -> Write {
        let mut buffer = Buffer::new(pages * PAGE_BYTES);
        buffer.bytes_mut().fill(byte);
        buffer.set_len(pages * PAGE_BYTES);
        Write { file: Arc::clone(file), at: (page * PAGE_BYTES) as u64, data: buffer.into() }
    }

    /// Returns the writes taken at once by a thread, as (first page, pages), and the page of a non-adjacent one that
    /// was taken.
    fn taken(queue: &Receiver<Write>) -> (Vec<(u64, usize)>, Option<u64>, Vec<Write>) {
        let mut writes = Vec::new();
        let next = receive_adjacent(queue, &mut writes);
        let places = writes.iter().map(|write| (write.at / PAGE_BYTES as u64, write.data.len() / PAGE_BYTES)).collect();
        (places, next.map(|write| write.at / PAGE_BYTES as u64), writes)
    }

    #[test]
    fn only_adjacent_queued_writes_are_written_together() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = ["a", "b"].map(|name| {
            let path = directory.path().join(name);
            let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
            (path, Arc::new(OpenFile::new(name, file.into())))
        });
        let [(path, a), (_, b)] = &files;
        let (sender, queue) = channel();
        // Two adjacent writes, a gap, another file at the next offset, and more bytes than one call writes.
        let most = MERGED_BYTES_MAX / PAGE_BYTES;
        for write in [write(a, 0, 1, 1), write(a, 1, 2, 2), write(a, 4, 1, 3), write(a, 5, 1, 4), write(b, 6, 1, 5)] {
            sender.send(write).expect("a queue");
        }
        let (places, next, mut writes) = taken(&queue);
        assert_eq!((places, next), (vec![(0, 1), (1, 2)], Some(4)));
        assert!(perform_adjacent(&mut writes).iter().all(|written| written.result.is_ok()) && writes.is_empty());
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
    fn adjacent_writes_that_fail_together_report_an_error_each() {
        let file: std::fs::File = std::fs::File::open("/dev/null").expect("a file that can't be written to");
        let file = Arc::new(OpenFile::new("segment", file.into()));
        let written = perform_adjacent(&mut vec![write(&file, 0, 1, 0), write(&file, 1, 1, 0)]);
        let errors: Vec<String> = written.into_iter().map(|written| written.result.unwrap_err().to_string()).collect();
        assert!(errors[0].starts_with("segment: writing 4096 bytes at 0:"), "{errors:?}");
        assert!(errors[1].starts_with("segment: writing 4096 bytes at 4096:"), "{errors:?}");
    }

    fn temporary() -> Arc<OpenFile> {
        let file = tempfile::tempfile().expect("a file");
        Arc::new(OpenFile::new("segment", file.into()))
    }

    fn begin(pwrite: &mut Pwrite, file: &Arc<OpenFile>, page: u64) {
        let mut buffer = pwrite.buffer().expect("a buffer");
        buffer.set_len(PAGE_BYTES);
        pwrite.begin(file, page * PAGE_BYTES as u64, buffer.into()).expect("a write");
    }

    #[test]
    fn a_write_is_deferred_until_the_next_one_unless_there_is_one_buffer() {
        let file = temporary();
        let mut one = Pwrite::new(1, PAGE_BYTES);
        begin(&mut one, &file, 0);
        assert!(one.deferred.is_none() && one.threads.is_none());
        let mut several = Pwrite::new(3, PAGE_BYTES);
        assert_eq!(several.queued_max(), 2 + chunk_writes_max(PAGE_BYTES));
        begin(&mut several, &file, 1);
        assert!(several.deferred.is_some() && several.threads.is_none());
        begin(&mut several, &file, 2);
        assert!(several.deferred.is_some() && several.threads.is_some() && several.in_flight == 1);
        several.flush().expect("writes");
        assert_eq!(several.in_flight, 0);
    }

    #[test]
    fn there_is_a_thread_for_each_write_up_to_eight() {
        let file = temporary();
        for (buffers, buffer_bytes, threads) in [(2, 8 << 20, 2), (3, 8 << 20, 3), (2, 4 << 20, 3), (16, PAGE_BYTES, 8)]
        {
            let mut pwrite = Pwrite::new(buffers, buffer_bytes);
            begin(&mut pwrite, &file, 0);
            begin(&mut pwrite, &file, 1);
            let started = pwrite.threads.as_ref().map(|threads| threads.threads.len());
            assert_eq!(started, Some(threads), "{buffers} buffers of {buffer_bytes} bytes");
        }
    }

    #[test]
    fn no_more_writes_are_queued_than_there_are_buffers() {
        let file = temporary();
        let mut pwrite = Pwrite::new(2, 8 << 20);
        for page in 0..20 {
            // Buffers from elsewhere: only the queue limits them.
            let mut buffer = Buffer::new(PAGE_BYTES);
            buffer.set_len(PAGE_BYTES);
            pwrite.begin(&file, page * PAGE_BYTES as u64, buffer.into()).expect("a write");
            assert!((1..20).contains(&page) == (pwrite.in_flight > 0) && pwrite.in_flight <= 2, "{}", pwrite.in_flight);
        }
        pwrite.flush().expect("writes");
    }

    #[test]
    fn buffers_of_completed_writes_are_used_again() {
        let file = temporary();
        let mut pwrite = Pwrite::new(3, PAGE_BYTES);
        let mut addresses = std::collections::BTreeSet::new();
        for page in 0..200 {
            let mut buffer = pwrite.buffer().expect("a buffer");
            addresses.insert(buffer.bytes_mut().as_ptr().addr());
            buffer.set_len(PAGE_BYTES);
            pwrite.begin(&file, page * PAGE_BYTES as u64, buffer.into()).expect("a write");
        }
        assert!(addresses.len() <= 3, "{} buffers", addresses.len());
    }
}
