//! The checkpoint file of one rank.
//!
//! It holds all that a replacement needs to go on from there: the program's own bytes, the protocol's tables (opaque),
//! the lanes with every record that is still kept (otherwise two failures lose what only a dead log held), messages that
//! were received and not yet taken, and the counters of trace and collectives.
//!
//! ```text
//! header   magic u64 | version u32 | rank u32 | ranks u32 | epoch u32
//! section  kind u32 | length u64 | bytes            any number, in the order in which they were written
//! trailer  magic u32 | length of the file u64 | crc32c over everything before it u32
//! ```
//!
//! All numbers are little-endian. A file is written under a temporary name, synced, renamed, and the directory
//! synced: under its own name there is only ever a whole one. The one before it is removed after that.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use counterfoil::Epoch;
use serde::{Deserialize, Serialize};

use crate::matching::Message;
use crate::trace::TraceCounters;

mod read;
#[cfg(test)]
mod tests;

/// The version of the format that this program writes, and the only one that it reads.
pub const CHECKPOINT_VERSION: u32 = 1;

const MAGIC: u64 = u64::from_le_bytes(*b"CFcheckp");
const END_MAGIC: u32 = u32::from_le_bytes(*b"CFnd");
const HEADER_BYTES: usize = 24;
const SECTION_BYTES: usize = 12;
const TRAILER_BYTES: usize = 16;

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Section {
    Application = 1,
    Tables = 2,
    Counters = 3,
    Lane = 4,
    Record = 5,
    Unexpected = 6,
}

impl Section {
    const ALL: [Section; 6] =
        [Section::Application, Section::Tables, Section::Counters, Section::Lane, Section::Record, Section::Unexpected];

    fn from_number(number: u32) -> Option<Section> {
        Section::ALL.into_iter().find(|section| *section as u32 == number)
    }
}

/// Why a checkpoint cannot be written or read. What was there before is still there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The operating system refused: no room, no permission.
    #[error("cannot {action} the checkpoint {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Not what was written: cut short, or changed.
    #[error("the checkpoint {} is damaged at byte {offset}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// Another version of the format.
    #[error(
        "the checkpoint {} has version {found}, and this program reads version {CHECKPOINT_VERSION}",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// Another rank's, or of a job with another number of ranks.
    #[error("the checkpoint {} is of rank {rank} of {ranks}", path.display())]
    OtherRank {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        rank: u32,
        /// Of how many.
        ranks: u32,
    },
}

impl CheckpointError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CheckpointError + use<> {
        let path = path.to_owned();
        move |source| CheckpointError::Io { action, path, source }
    }
}

/// Counters of the runtime that a re-execution goes on from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// The trace's own.
    pub trace: TraceCounters,
    /// Collective calls so far.
    pub collectives: u64,
    /// The iteration that the program is in; 0 before the first.
    pub iteration: u64,
    /// Messages logged so far, and their payload bytes.
    pub logged: (u64, u64),
}

/// A lane as a checkpoint holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneImage {
    /// The destination.
    pub peer: u32,
    /// The number that the next message gets.
    pub next_ssn: u64,
    /// What was still kept, in order and without gaps.
    pub records: Vec<RecordImage>,
}

/// A record of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordImage {
    /// Its number.
    pub ssn: u64,
    /// The wire header with which it was logged.
    pub prefix: Bytes,
    /// The payload.
    pub payload: Bytes,
}

/// A checkpoint that was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The epoch that it begins.
    pub epoch: Epoch,
    /// The program's own bytes.
    pub application: Bytes,
    /// The protocol's tables.
    pub tables: Bytes,
    /// The runtime's counters.
    pub counters: Counters,
    /// The lanes, by destination.
    pub lanes: Vec<LaneImage>,
    /// Received and not taken, in order of arrival.
    pub unexpected: Vec<Message>,
}

/// Writes one checkpoint, part by part, without holding it in memory. Dropped before
/// [`CheckpointWriter::commit`], it leaves nothing.
#[derive(Debug)]
pub struct CheckpointWriter {
    directory: PathBuf,
    temporary: PathBuf,
    path: PathBuf,
    file: Option<BufWriter<File>>,
    crc: u32,
    bytes: u64,
}

fn file_name(rank: u32, epoch: Epoch) -> String {
    format!("r{rank}.e{}", epoch.0)
}

fn parse_file_name(name: &str) -> Option<(u32, Epoch)> {
    let (rank, epoch) = name.strip_prefix('r')?.split_once(".e")?;
    Some((rank.parse().ok()?, Epoch(epoch.parse().ok()?)))
}

impl CheckpointWriter {
    /// Begins the checkpoint of `rank` that begins `epoch`, in `directory`.
    ///
    /// # Errors
    /// [`CheckpointError::Io`].
    pub fn create(directory: &Path, rank: u32, ranks: u32, epoch: Epoch) -> Result<CheckpointWriter, CheckpointError> {
        let name = file_name(rank, epoch);
        let temporary = directory.join(format!("{name}.part"));
        // An incarnation that was killed while it wrote may have left one.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(CheckpointError::io("remove an unfinished part of", &temporary)(error));
            }
            _ => {}
        }
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(CheckpointError::io("create", &temporary))?;
        let mut writer = CheckpointWriter {
            directory: directory.to_owned(),
            temporary,
            path: directory.join(name),
            file: Some(BufWriter::with_capacity(256 << 10, file)),
            crc: 0,
            bytes: 0,
        };
        writer.put(&MAGIC.to_le_bytes())?;
        for field in [CHECKPOINT_VERSION, rank, ranks, epoch.0] {
            writer.put(&field.to_le_bytes())?;
        }
        Ok(writer)
    }

    /// The program's own bytes.
    ///
    /// # Errors
    /// [`CheckpointError::Io`], here and below.
    pub fn application(&mut self, state: &[u8]) -> Result<(), CheckpointError> {
        self.section(Section::Application, &[state])
    }

    /// The protocol's tables.
    ///
    /// # Errors
    /// [`CheckpointError::Io`].
    pub fn tables(&mut self, tables: &[u8]) -> Result<(), CheckpointError> {
        self.section(Section::Tables, &[tables])
    }

    /// The runtime's counters.
    ///
    /// # Errors
    /// [`CheckpointError::Io`].
    pub fn counters(&mut self, counters: &Counters) -> Result<(), CheckpointError> {
        let bytes = postcard::to_stdvec(counters)
            .map_err(|error| CheckpointError::io("write", &self.path)(io::Error::other(error)))?;
        self.section(Section::Counters, &[&bytes])
    }

    /// Begins the lane to `peer`: the records that follow are its own.
    ///
    /// # Errors
    /// [`CheckpointError::Io`].
    pub fn lane(&mut self, peer: u32, next_ssn: u64) -> Result<(), CheckpointError> {
        self.section(Section::Lane, &[&peer.to_le_bytes(), &next_ssn.to_le_bytes()])
    }

    /// A record of the lane that was begun last.
    ///
    /// # Errors
    /// [`CheckpointError::Io`].
    pub fn record(&mut self, ssn: u64, prefix: &[u8], payload: &[u8]) -> Result<(), CheckpointError> {
        let prefix_len = (prefix.len() as u32).to_le_bytes();
        self.section(Section::Record, &[&ssn.to_le_bytes(), &prefix_len, prefix, payload])
    }

    /// A message that was received and not taken.
    ///
    /// # Errors
    /// [`CheckpointError::Io`].
    pub fn unexpected(&mut self, message: &Message) -> Result<(), CheckpointError> {
        let (source, tag) = (message.source.to_le_bytes(), message.tag.to_le_bytes());
        let (comm, ssn) = (message.comm.to_le_bytes(), message.ssn.to_le_bytes());
        self.section(Section::Unexpected, &[&source, &tag, &comm, &ssn, &message.payload])
    }

    /// Makes it durable under its own name, then removes this rank's older ones.
    ///
    /// # Errors
    /// [`CheckpointError::Io`]; the older ones are still there if this one isn't durable.
    pub fn commit(mut self) -> Result<(), CheckpointError> {
        self.put(&END_MAGIC.to_le_bytes())?;
        self.put(&(self.bytes + 12).to_le_bytes())?;
        self.put(&self.crc.to_le_bytes())?;
        let buffered = self.file.take().expect("the file is open until `commit`, which consumes the writer");
        let file =
            buffered.into_inner().map_err(|error| CheckpointError::io("write", &self.temporary)(error.into_error()))?;
        file.sync_all().map_err(CheckpointError::io("sync", &self.temporary))?;
        fs::rename(&self.temporary, &self.path).map_err(CheckpointError::io("rename", &self.temporary))?;
        let directory = File::open(&self.directory).map_err(CheckpointError::io("open", &self.directory))?;
        directory.sync_all().map_err(CheckpointError::io("sync the directory of", &self.path))?;
        let own = self.path.file_name().and_then(|name| name.to_str()).and_then(parse_file_name);
        if let Some((rank, epoch)) = own {
            for (older, path) in checkpoints_of(&self.directory, rank)? {
                if older < epoch {
                    fs::remove_file(&path).map_err(CheckpointError::io("remove the older", &path))?;
                }
            }
        }
        Ok(())
    }

    fn section(&mut self, kind: Section, parts: &[&[u8]]) -> Result<(), CheckpointError> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        self.put(&(kind as u32).to_le_bytes())?;
        self.put(&(len as u64).to_le_bytes())?;
        parts.iter().try_for_each(|part| self.put(part))
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), CheckpointError> {
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.bytes += bytes.len() as u64;
        let file = self.file.as_mut().expect("the file is open until `commit`, which consumes the writer");
        file.write_all(bytes).map_err(CheckpointError::io("write", &self.temporary))
    }
}

impl Drop for CheckpointWriter {
    fn drop(&mut self) {
        // After a commit there is nothing under this name.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// The checkpoints of `rank` in `directory`, in no particular order.
fn checkpoints_of(directory: &Path, rank: u32) -> Result<Vec<(Epoch, PathBuf)>, CheckpointError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(CheckpointError::io("look for", directory))? {
        let entry = entry.map_err(CheckpointError::io("look for", directory))?;
        match entry.file_name().to_str().and_then(parse_file_name) {
            Some((of, epoch)) if of == rank => found.push((epoch, entry.path())),
            _ => {}
        }
    }
    Ok(found)
}

/// Reads the newest checkpoint of `rank` in `directory`; `None` if it has none.
///
/// # Errors
/// [`CheckpointError`]. A damaged checkpoint is never passed over for an older one: what peers keep was decided by the
/// newest.
pub fn read_newest(directory: &Path, rank: u32, ranks: u32) -> Result<Option<Image>, CheckpointError> {
    let newest = checkpoints_of(directory, rank)?.into_iter().max();
    newest.map(|(epoch, path)| read::read(&path, rank, ranks, epoch)).transpose()
}
