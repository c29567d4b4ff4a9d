//! A file of a simulated disk: what everybody sees, what is durable, and what happened in between.

use std::sync::{Arc, LazyLock};

use crate::PAGE_BYTES;

type Page = Arc<[u8; PAGE_BYTES]>;

static ZEROS: LazyLock<Page> = LazyLock::new(|| Arc::new([0; PAGE_BYTES]));
const PAGE: u64 = PAGE_BYTES as u64;

/// Pages are shared between what is seen and what is durable, and with copies of the disk, until one of them is written.
#[derive(Clone, Debug)]
pub(super) struct File {
    seen: Content,
    durable: Content,
    changes: Vec<Change>,
    /// It was never synced: a power cut may take from its length.
    is_new: bool,
}

#[derive(Clone, Debug)]
struct Content {
    pages: Vec<Page>,
    len: u64,
}

/// What was done to a file.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write(u64, Arc<[u8]>),
    Punch(u64, u64),
    Truncate(u64),
}

impl File {
    pub(super) fn preallocated(bytes: u64) -> File {
        let content = Content { pages: vec![ZEROS.clone(); bytes.div_ceil(PAGE) as usize], len: bytes };
        File { seen: content.clone(), durable: content, changes: Vec::new(), is_new: true }
    }

    pub(super) fn durable(bytes: &[u8]) -> File {
        let mut file = File::preallocated(bytes.len() as u64);
        file.seen.write(0, bytes, |_| true);
        file.sync();
        file
    }

    pub(super) fn len(&self) -> u64 {
        self.seen.len
    }

    /// Bytes that it takes from the disk: pages of zeros that were punched count, too, as they would on some file systems.
    pub(super) fn allocated(&self) -> u64 {
        self.seen.pages.len() as u64 * PAGE
    }

    /// Fills `into`; false where the file ends before.
    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> bool {
        if at.checked_add(into.len() as u64).is_none_or(|end| end > self.seen.len) {
            return false;
        }
        let mut done = 0;
        while done < into.len() {
            let place = at as usize + done;
            let (page, from) = (place / PAGE_BYTES, place % PAGE_BYTES);
            let now = (PAGE_BYTES - from).min(into.len() - done);
            into[done..done + now].copy_from_slice(&self.seen.pages[page][from..from + now]);
            done += now;
        }
        true
    }

    pub(super) fn change(&mut self, change: Change) {
        self.seen.apply(&change, |_| true);
        self.changes.push(change);
    }

    pub(super) fn sync(&mut self) {
        self.durable = self.seen.clone();
        self.changes.clear();
        self.is_new = false;
    }

    /// What a power cut leaves of it.
    pub(super) fn crash(&self, chance: &mut dyn FnMut() -> u64) -> File {
        let mut content = self.durable.clone();
        for change in &self.changes {
            match (chance() % 8, change) {
                (0 | 1, _) => {}
                (2..=4, _) | (_, Change::Truncate(_)) => content.apply(change, |_| true),
                // From somewhere to somewhere, whole sectors or single bytes.
                (kind, Change::Write(_, bytes)) => content.apply(change, subset(kind, bytes.len(), chance)),
                (kind, Change::Punch(_, len)) => content.apply(change, subset(kind, *len as usize, chance)),
            }
        }
        if self.is_new && chance().is_multiple_of(4) {
            let pages = chance() % (content.pages.len() as u64 + 1);
            content.apply(&Change::Truncate((pages * PAGE).min(content.len)), |_| true);
        }
        File { seen: content.clone(), durable: content, changes: Vec::new(), is_new: false }
    }
}

/// Which bytes of a change survive.
fn subset(kind: u64, len: usize, chance: &mut dyn FnMut() -> u64) -> impl Fn(usize) -> bool + use<> {
    let (one, other) = (chance() as usize % (len + 1), chance() as usize % (len + 1));
    let (start, end) = (one.min(other), one.max(other));
    let (sectors, bits, inverted) = (chance(), chance(), chance() & 1 == 1);
    move |at| {
        let survives = match kind {
            // Sectors.
            5 => sectors >> ((at / 512) % 64) & 1 == 1,
            // Bytes inside of a range.
            6 => (start..end).contains(&at) && bits.rotate_left((at / 64) as u32) >> (at % 64) & 1 == 1,
            // A range.
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
                let behind = (len % PAGE) as usize;
                if let Some(last) = self.pages.last_mut().filter(|_| behind > 0) {
                    Arc::make_mut(last)[behind..].fill(0);
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
