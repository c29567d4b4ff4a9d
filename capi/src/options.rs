//! Limits and choices of a log.

use std::ffi::c_char;

use counterfoil::{Keep, Options, Rank, StoreOptions, Tier};

use crate::boundary::{Failure, boundary, object, path};
use crate::result::counterfoil_result;

/// Limits and choices of a log.
///
/// Made by `counterfoil_options_new`, freed by `counterfoil_options_free`.
pub struct counterfoil_options(pub(crate) Options);

/// Storage of the log, for `COUNTERFOIL_OPTION_TIER`.
#[repr(u32)]
pub enum counterfoil_tier {
    /// Process memory: lost with the process; default.
    Volatile = 0,
    /// A private shared-memory file in `COUNTERFOIL_PATH_DIR`: committed records survive a `kill -9`.
    ProcessCrashSafe = 1,
    /// Memory for new records and a store in `COUNTERFOIL_PATH_STORE` for retained ones.
    NodeLocal = 2,
}

/// Retention of acknowledged messages, for `COUNTERFOIL_OPTION_KEEP`.
#[repr(u32)]
pub enum counterfoil_keep {
    /// Until the acknowledgement: a dead receiver can't be replayed.
    Acked = 0,
    /// Until a durable checkpoint of the receiver covers the message; default.
    Checkpoint = 1,
    /// All messages.
    All = 2,
}

/// An option with a number.
#[repr(u32)]
pub enum counterfoil_option {
    /// A `counterfoil_tier`.
    Tier = 0,
    /// A `counterfoil_keep`.
    Keep = 1,
    /// 1 to free all retained records, and retain nothing any more, once the memory budget is used up; default 0.
    StopsLogging = 2,
    /// Memory for records in bytes; default 64 MiB.
    MemoryBytesMax = 3,
    /// Chunk size in bytes, a power of two from 4 KiB to 1 GiB; default 64 KiB.
    ChunkBytes = 4,
    /// Memory to prefault at the start, in bytes; default 256 KiB.
    PrefaultBytes = 5,
    /// Memory committed by a thread ahead of the writer, in bytes; default 0: no thread.
    PrefaultAheadBytes = 6,
    /// Memory for the local log in bytes; default 16 MiB.
    LocalBytesMax = 7,
    /// Open cursors on a channel: 1 to 64; default 8.
    CursorsMax = 8,
    /// Bytes of a record's prefix and payload; default: limited by the memory only.
    RecordBytesMax = 9,
    /// Bytes on disk; default 4 GiB.
    ///
    /// Needs `COUNTERFOIL_PATH_STORE`, as those below.
    DiskBytesMax = 10,
    /// Segment file size in bytes; default 16 MiB.
    SegmentBytes = 11,
    /// Store block size in bytes; default 256 KiB.
    BlockBytes = 12,
    /// 1 to compress blocks with lz4; default 0.
    Compress = 13,
    /// Newest checkpoints to keep; default 1.
    CheckpointsKept = 14,
}

/// An option with a path.
#[repr(u32)]
pub enum counterfoil_path {
    /// Directory of mode 0700 for shared-memory files, as in `/dev/shm`.
    Dir = 0,
    /// Directory for all ranks' stores, on a disk of this node.
    Store = 1,
}

/// Returns the default options for a log of `rank`, in a job of `ranks`.
#[unsafe(no_mangle)]
pub extern "C" fn counterfoil_options_new(rank: u32, ranks: u32) -> *mut counterfoil_options {
    Box::into_raw(Box::new(counterfoil_options(Options::new(Rank(rank), ranks))))
}

/// Frees options.
///
/// Null is ignored. Logs made with them are unaffected.
///
/// # Safety
/// `options` is null or was made by `counterfoil_options_new`, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_options_free(options: *mut counterfoil_options) {
    if !options.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(options) });
    }
}

/// Sets a numeric option: `option` is a `counterfoil_option`.
///
/// Values are checked when a log is made, except choices, which are checked here.
///
/// # Safety
/// `options` was made by `counterfoil_options_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_options_set(
    options: *mut counterfoil_options,
    option: u32,
    value: u64,
) -> counterfoil_result {
    use counterfoil_option as Name;
    boundary(|| {
        // SAFETY: as for this function.
        let options = &mut unsafe { object("options", options)? }.0;
        let size = usize::try_from(value).map_err(|_| Failure::invalid("value", value))?;
        let store = |options: &mut Options, set: fn(&mut StoreOptions, u64)| match &mut options.store {
            Some(store) => {
                set(store, value);
                Ok(())
            }
            None => Err(Failure::new(counterfoil_result::NoStore, "this option needs COUNTERFOIL_PATH_STORE first")),
        };
        match option {
            number if number == Name::Tier as u32 => options.tier = tier(value)?,
            number if number == Name::Keep as u32 => options.keep = keep_of(value)?,
            number if number == Name::StopsLogging as u32 => options.stops_logging = switch(value)?,
            number if number == Name::MemoryBytesMax as u32 => options.memory_bytes_max = size,
            number if number == Name::ChunkBytes as u32 => options.chunk_bytes = size,
            number if number == Name::PrefaultBytes as u32 => options.prefault_bytes = size,
            number if number == Name::PrefaultAheadBytes as u32 => options.prefault_ahead_bytes = size,
            number if number == Name::LocalBytesMax as u32 => options.local_bytes_max = size,
            number if number == Name::CursorsMax as u32 => options.cursors_max = size,
            number if number == Name::RecordBytesMax as u32 => options.record_bytes_max = size,
            number if number == Name::DiskBytesMax as u32 => {
                store(options, |store, value| store.disk_bytes_max = value)?;
            }
            number if number == Name::SegmentBytes as u32 => {
                store(options, |store, value| store.segment_bytes = value)?;
            }
            number if number == Name::BlockBytes as u32 => {
                store(options, |store, value| store.block_bytes = value as usize)?;
            }
            number if number == Name::Compress as u32 => {
                switch(value)?;
                store(options, |store, value| store.compress = value == 1)?;
            }
            number if number == Name::CheckpointsKept as u32 => {
                store(options, |store, value| store.checkpoints_kept = value as usize)?;
            }
            _ => return Err(Failure::invalid("option", option)),
        }
        Ok(())
    })
}

/// Sets a path option: `option` is a `counterfoil_path`.
///
/// The path is copied.
///
/// # Safety
/// `options` was made by `counterfoil_options_new`, and `value` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_options_set_path(
    options: *mut counterfoil_options,
    option: u32,
    value: *const c_char,
) -> counterfoil_result {
    boundary(|| {
        // SAFETY: as for this function.
        let (options, value) = unsafe { (&mut object("options", options)?.0, path("value", value)?) };
        match option {
            number if number == counterfoil_path::Dir as u32 => options.dir = Some(value),
            number if number == counterfoil_path::Store as u32 => options.store = Some(StoreOptions::new(value)),
            _ => return Err(Failure::invalid("option", option)),
        }
        Ok(())
    })
}

/// Sets the retention, the memory budget, and chunk sizes suiting both: `keep` is a `counterfoil_keep`.
///
/// # Safety
/// `options` was made by `counterfoil_options_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_options_retain(
    options: *mut counterfoil_options,
    keep: u32,
    memory_bytes_max: usize,
) -> counterfoil_result {
    boundary(|| {
        // SAFETY: as for this function.
        let options = unsafe { object("options", options)? };
        options.0.retain(keep_of(keep.into())?, memory_bytes_max);
        Ok(())
    })
}

fn tier(value: u64) -> Result<Tier, Failure> {
    chosen(
        value,
        [
            (counterfoil_tier::Volatile as u64, Tier::Volatile),
            (counterfoil_tier::ProcessCrashSafe as u64, Tier::ProcessCrashSafe),
            (counterfoil_tier::NodeLocal as u64, Tier::NodeLocal),
        ],
    )
}

fn keep_of(value: u64) -> Result<Keep, Failure> {
    chosen(
        value,
        [
            (counterfoil_keep::Acked as u64, Keep::Acked),
            (counterfoil_keep::Checkpoint as u64, Keep::Checkpoint),
            (counterfoil_keep::All as u64, Keep::All),
        ],
    )
}

fn switch(value: u64) -> Result<bool, Failure> {
    chosen(value, [(0, false), (1, true)])
}

/// Returns the choice with a number.
fn chosen<const N: usize, T>(value: u64, choices: [(u64, T); N]) -> Result<T, Failure> {
    let found = choices.into_iter().find(|(number, _)| *number == value);
    found.map(|(_, choice)| choice).ok_or_else(|| Failure::invalid("value", value))
}
