//! A file on the simulated disk: its current content, its durable content, and the changes in between.

use std::sync::{Arc, LazyLock};

use counterfoil_log_io::PAGE_BYTES;

use crate::random::Random;

type Page = Arc<[u8; PAGE_BYTES]>;

static ZEROS: LazyLock<Page> = LazyLock::new(|| Arc::new([0; PAGE_BYTES]));
const PAGE: u64 = PAGE_BYTES as u64;

/// A file.
///
/// The two contents, and copies of the disk, share each page until one of them writes it.
#[derive(Clone, Debug)]
pub(super) struct File {
    current: Content,
    durable: Content,
    changes: Vec<Change>,
    /// The file was never synced: a power cut may shorten it.
    is_new: bool,
}

#[derive(Clone, Debug)]
struct Content {
    pages: Vec<Page>,
    len: u64,
}

/// A file change, by offset and length.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write(u64, Arc<[u8]>),
    Punch(u64, u64),
    Truncate(u64),
}

impl File {
    pub(super) fn preallocated(bytes: u64) -> File {
        let content = Content { pages: vec![ZEROS.clone(); bytes.div_ceil(PAGE) as usize], len: bytes };
        File { current: content.clone(), durable: content, changes: Vec::new(), is_new: true }
    }

    pub(super) fn durable(bytes: &[u8]) -> File {
        let mut file = File::preallocated(bytes.len() as u64);
        file.current.write(0, bytes, |_| true);
        file.sync();
        file
    }

    pub(super) fn len(&self) -> u64 {
        self.current.len
    }

    /// Returns the bytes used by the file on disk, punched pages included, as on some file systems.
    pub(super) fn allocated(&self) -> u64 {
        self.current.pages.len() as u64 * PAGE
    }

    /// Fills `into` from offset `at`; returns `false` if the file ends before.
    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> bool {
        if at.checked_add(into.len() as u64).is_none_or(|end| end > self.current.len) {
            return false;
        }
        let mut done = 0;
        while done < into.len() {
            let place = at as usize + done;
            let (page, from) = (place / PAGE_BYTES, place % PAGE_BYTES);
            let now = (PAGE_BYTES - from).min(into.len() - done);
            into[done..done + now].copy_from_slice(&self.current.pages[page][from..from + now]);
            done += now;
        }
        true
    }

    pub(super) fn change(&mut self, change: Change) {
        self.current.apply(&change, |_| true);
        self.changes.push(change);
    }

    pub(super) fn sync(&mut self) {
        self.durable = self.current.clone();
        self.changes.clear();
        self.is_new = false;
    }

    /// Returns the file after a power cut.
    pub(super) fn crash(&self, random: Random<'_>) -> File {
        let mut content = self.durable.clone();
        for change in &self.changes {
            match (random() % 8, change) {
                (0 | 1, _) => {}
                (2..=4, _) | (_, Change::Truncate(_)) => content.apply(change, |_| true),
                // Part of the change.
                (kind, Change::Write(_, bytes)) => content.apply(change, subset(kind, bytes.len(), random)),
                (kind, Change::Punch(_, len)) => content.apply(change, subset(kind, *len as usize, random)),
            }
        }
        if self.is_new && random().is_multiple_of(4) {
            let pages = random() % (content.pages.len() as u64 + 1);
            content.apply(&Change::Truncate((pages * PAGE).min(content.len)), |_| true);
        }
        File { current: content.clone(), durable: content, changes: Vec::new(), is_new: false }
    }
}

/// Draws the surviving bytes in a change: the predicate takes an offset in the change.
fn subset(kind: u64, len: usize, random: Random<'_>) -> impl Fn(usize) -> bool + use<> {
    let (one, other) = (random() as usize % (len + 1), random() as usize % (len + 1));
    let (start, end) = (one.min(other), one.max(other));
    let (sectors, bits, inverted) = (random(), random(), random() & 1 == 1);
    move |at| {
        let survives = match kind {
            // Whole sectors.
            5 => sectors >> ((at / 512) % 64) & 1 == 1,
            // Single bytes in a range.
            6 => (start..end).contains(&at) && bits.rotate_left((at / 64) as u32) >> (at % 64) & 1 == 1,
            // A whole range.
            _ => (start..end).contains(&at),
        };
        survives != inverted
    }
}

impl Content {
    fn apply(&mut self, change: &Change, survives: impl Fn(usize) -> bool) {
        match change {
            Change::Write(at, bytes) => self.write(*at, bytes, survives),
            Change::Punch(at, len) => self.punch(*at, *len, survives),
            Change::Truncate(len) => {
                let len = (*len).min(self.len);
                self.len = len;
                self.pages.truncate(len.div_ceil(PAGE) as usize);
                let tail = (len % PAGE) as usize;
                if let Some(last) = self.pages.last_mut().filter(|_| tail > 0) {
                    Arc::make_mut(last)[tail..].fill(0);
                }
            }
        }
    }

    fn write(&mut self, at: u64, bytes: &[u8], survives: impl Fn(usize) -> bool) {
        let end = at + bytes.len() as u64;
        if end > self.len {
            self.pages.resize(end.div_ceil(PAGE) as usize, ZEROS.clone());
            self.len = end;
        }
        for (index, chunk) in bytes.chunks(PAGE_BYTES).enumerate() {
            let page = Arc::make_mut(&mut self.pages[at as usize / PAGE_BYTES + index]);
            for (offset, &byte) in chunk.iter().enumerate() {
                if survives(index * PAGE_BYTES + offset) {
                    page[offset] = byte;
                }
            }
        }
    }

    fn punch(&mut self, at: u64, len: u64, survives: impl Fn(usize) -> bool) {
        let len = len.min(self.len.saturating_sub(at)) as usize;
        for offset in (0..len).filter(|&offset| survives(offset)) {
            let place = at as usize + offset;
            Arc::make_mut(&mut self.pages[place / PAGE_BYTES])[place % PAGE_BYTES] = 0;
        }
    }
}
