//! A rank's log.

use std::ptr;

use counterfoil::{Ack, Claim, Contents, Epoch, Log, Options, Phase, Rank, Recovered, Ssn};

use crate::boundary::{Failure, boundary, bytes, object, out, store};
use crate::options::counterfoil_options;
use crate::result::counterfoil_result;

/// A rank's log.
///
/// Made by `counterfoil_log_create` or `counterfoil_log_open`, freed by `counterfoil_log_free`.
pub struct counterfoil_log {
    /// The open claim.
    ///
    /// It borrows `log`, and is dropped before any other use of `log`.
    claim: Option<Claim<'static>>,
    /// From a box; null once the log is taken out to be destroyed.
    log: *mut Log,
    /// The program's bytes in the checkpoint opened.
    restored: Vec<u8>,
    /// The local log entry found last.
    entry: Vec<u8>,
    is_broken: bool,
}

/// Result of `counterfoil_log_open`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct counterfoil_recovered {
    /// Channels with records in memory.
    pub channels: u32,
    /// Epoch begun by the newest durable checkpoint; 0 without any.
    pub checkpoint_epoch: u32,
    /// Local log entries.
    pub local_entries: u64,
}

/// Memory and counters of a log.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct counterfoil_stats {
    /// Committed messages.
    pub messages_logged: u64,
    /// Appended record bytes, headers and pads included.
    pub bytes_logged: u64,
    /// Chunk bytes in use.
    pub used_bytes: u64,
    /// Bytes of memory in use or kept for reuse.
    pub resident_bytes: u64,
    /// Memory budget in bytes.
    pub max_bytes: u64,
    /// Memory freed in bytes because their records are on disk.
    pub spilled_bytes: u64,
    /// Local log entries.
    pub local_entries: u64,
    /// 1 if logging was stopped at the budget.
    pub stopped_logging: u32,
}

impl Drop for counterfoil_log {
    fn drop(&mut self) {
        drop(self.claim.take());
        if !self.log.is_null() {
            // SAFETY: from a box, freed once; no claim borrows it any more.
            drop(unsafe { Box::from_raw(self.log) });
        }
    }
}

impl counterfoil_log {
    fn new(log: Log, restored: Vec<u8>) -> counterfoil_log {
        let log = Box::into_raw(Box::new(log));
        counterfoil_log { claim: None, log, restored, entry: Vec::new(), is_broken: false }
    }

    /// Returns the log, while no claim is open.
    fn log(&mut self) -> Result<&mut Log, Failure> {
        if self.claim.is_some() {
            return Err(Failure::new(counterfoil_result::ClaimOpen, "a claim is open: commit or abort it first"));
        }
        // SAFETY: from a box freed with `self` alone; no claim borrows it, and `self` is borrowed for as long.
        Ok(unsafe { &mut *self.log })
    }

    /// Returns the log, if the job has such a rank.
    fn of_peer(&mut self, peer: u32) -> Result<&mut Log, Failure> {
        let log = self.log()?;
        let ranks = log.options().ranks;
        if peer < ranks {
            return Ok(log);
        }
        Err(Failure::new(
            counterfoil_result::NoSuchRank,
            format!("rank {peer} doesn't exist: the job has {ranks} ranks"),
        ))
    }
}

/// Runs a function on a log.
///
/// # Safety
/// `log` is null, or was made by a function of this library, and is used by one thread at a time.
#[inline]
unsafe fn on_log(
    log: *mut counterfoil_log,
    body: impl FnOnce(&mut counterfoil_log) -> Result<(), Failure>,
) -> counterfoil_result {
    let result = boundary(|| {
        // SAFETY: as for this function.
        let log = unsafe { object("log", log)? };
        if log.is_broken {
            return Err(Failure::new(counterfoil_result::Panic, "an earlier call on this log has panicked"));
        }
        body(log)
    });
    if result == counterfoil_result::Panic {
        // SAFETY: as for this function; null doesn't panic.
        unsafe { (*log).is_broken = true };
    }
    result
}

/// Makes a log by `open`.
///
/// # Safety
/// See [`counterfoil_log_open`].
unsafe fn make(
    options: *mut counterfoil_options,
    log: *mut *mut counterfoil_log,
    recovered: *mut counterfoil_recovered,
    open: impl FnOnce(Options) -> Result<(Log, Recovered), Failure>,
) -> counterfoil_result {
    boundary(|| {
        out("log", log)?;
        // SAFETY: as for this function.
        let options = unsafe { object("options", options)? }.0.clone();
        let (opened, found) = open(options)?;
        let summary = counterfoil_recovered {
            channels: found.lanes.len() as u32,
            checkpoint_epoch: found.checkpoint.as_ref().map_or(0, |restored| restored.epoch.0),
            local_entries: found.local_entries as u64,
        };
        let restored = found.checkpoint.map_or_else(Vec::new, |restored| restored.contents.application);
        // SAFETY: as for this function.
        unsafe {
            *log = Box::into_raw(Box::new(counterfoil_log::new(opened, restored)));
            store(recovered, summary);
        }
        Ok(())
    })
}

/// Creates an empty log; refuses if files of one exist.
///
/// `options` stays the caller's.
///
/// # Safety
/// `options` was made by `counterfoil_options_new`; `log` is a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_create(
    options: *mut counterfoil_options,
    log: *mut *mut counterfoil_log,
) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe { make(options, log, ptr::null_mut(), |options| Ok((Log::create(options)?, Recovered::default()))) }
}

/// Opens a dead process's log: its shared-memory file and its newest durable checkpoint.
///
/// Creates missing parts. `recovered` may be null.
///
/// The channels go on after the dead process's last record: `counterfoil_log_next_ssn`. A rank repeating its execution
/// rewinds them, and repeats its messages.
///
/// # Safety
/// `options` was made by `counterfoil_options_new`; the others are variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_open(
    options: *mut counterfoil_options,
    log: *mut *mut counterfoil_log,
    recovered: *mut counterfoil_recovered,
) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe { make(options, log, recovered, |options| Ok(Log::recover(options)?)) }
}

/// Closes and frees a log.
///
/// Its files stay. An open claim is aborted. Null is ignored.
///
/// # Safety
/// `log` is null or was made by this library, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_free(log: *mut counterfoil_log) {
    if !log.is_null() {
        // A panic has no result to become.
        let _ = boundary(|| {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(log) });
            Ok(())
        });
    }
}

/// Closes and frees a log, and removes its files.
///
/// `log` is freed whatever the result.
///
/// # Safety
/// `log` was made by this library, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_destroy(log: *mut counterfoil_log) -> counterfoil_result {
    boundary(|| {
        out("log", log)?;
        // SAFETY: the caller's promise.
        let mut log = unsafe { Box::from_raw(log) };
        drop(log.claim.take());
        let own = std::mem::replace(&mut log.log, ptr::null_mut());
        // SAFETY: from a box, and not in `log` any more.
        Ok(unsafe { Box::from_raw(own) }.destroy()?)
    })
}

/// Returns the program's bytes from the checkpoint opened with the log; none without one.
///
/// Valid until the log is freed.
///
/// # Safety
/// `log` was made by this library; the others are variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_restored(
    log: *mut counterfoil_log,
    data: *mut *const u8,
    len: *mut usize,
) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe {
        on_log(log, |log| {
            out("data", data)?;
            out("len", len)?;
            (*data, *len) = (log.restored.as_ptr(), log.restored.len());
            Ok(())
        })
    }
}

/// Reserves a record for `peer`: `prefix_len` bytes for the caller's use, such as a header, and `payload_len` bytes.
///
/// The caller writes both where `prefix` and `payload` then point, and calls `counterfoil_log_commit` or
/// `counterfoil_log_abort`, before any other function on this log. Either variable may be null.
///
/// Never waits: `COUNTERFOIL_RESULT_FULL` and `COUNTERFOIL_RESULT_SPILL_BEHIND` ask to try again.
///
/// # Safety
/// `log` was made by this library; the others are variables or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_try_claim(
    log: *mut counterfoil_log,
    peer: u32,
    prefix_len: usize,
    payload_len: usize,
    prefix: *mut *mut u8,
    payload: *mut *mut u8,
) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe {
        on_log(log, |log| {
            // The claim lives as long as the log at most: see `counterfoil_log::claim`.
            let own: &'static mut Log = &mut *ptr::from_mut(log.log()?);
            let claim = log.claim.insert(own.try_claim(Rank(peer), prefix_len, payload_len).map_err(|error| *error)?);
            let (to_prefix, to_payload) = claim.parts_mut();
            store(prefix, to_prefix.as_mut_ptr());
            store(payload, to_payload.as_mut_ptr());
            Ok(())
        })
    }
}

/// Commits the open claim: from now on it is a message.
///
/// `ssn` gets its sequence number, and may be null.
///
/// # Safety
/// `log` was made by this library; `ssn` is a variable or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_commit(log: *mut counterfoil_log, ssn: *mut u64) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe {
        on_log(log, |log| {
            store(ssn, open_claim(log)?.commit().0);
            Ok(())
        })
    }
}

/// Gives the open claim up: no message, and the next one has its sequence number.
///
/// # Safety
/// `log` was made by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_abort(log: *mut counterfoil_log) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe { on_log(log, |log| open_claim(log).map(drop)) }
}

fn open_claim(log: &mut counterfoil_log) -> Result<Claim<'static>, Failure> {
    log.claim.take().ok_or_else(|| Failure::new(counterfoil_result::NoClaim, "no claim is open"))
}

/// Appends a message to `peer`: claim, copy and commit in one.
///
/// Waits for the disk, if records come faster than it takes them, and never for acknowledgements:
/// `COUNTERFOIL_RESULT_FULL`. `ssn` may be null.
///
/// # Safety
/// `log` was made by this library; `prefix` and `payload` have so many bytes, or are null if there are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_append(
    log: *mut counterfoil_log,
    peer: u32,
    prefix: *const u8,
    prefix_len: usize,
    payload: *const u8,
    payload_len: usize,
    ssn: *mut u64,
) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe {
        on_log(log, |log| {
            let (prefix, payload) = (bytes("prefix", prefix, prefix_len)?, bytes("payload", payload, payload_len)?);
            let mut claim = log.log()?.claim(Rank(peer), prefix_len, payload_len).map_err(|error| *error)?;
            let (to_prefix, to_payload) = claim.parts_mut();
            to_prefix.copy_from_slice(prefix);
            to_payload.copy_from_slice(payload);
            store(ssn, claim.commit().0);
            Ok(())
        })
    }
}

/// Returns the sequence number of the next message to `peer`: 1 before the first.
///
/// # Safety
/// `log` was made by this library; `ssn` is a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_next_ssn(
    log: *mut counterfoil_log,
    peer: u32,
    ssn: *mut u64,
) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe { store_ssn((log, peer), ssn, |log| log.next_ssn(Rank(peer))) }
}

/// Returns the lowest sequence number to `peer` that may still be kept.
///
/// # Safety
/// `log` was made by this library; `ssn` is a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_kept_from(
    log: *mut counterfoil_log,
    peer: u32,
    ssn: *mut u64,
) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe { store_ssn((log, peer), ssn, |log| log.kept_from(Rank(peer))) }
}

/// Returns the last sequence number acknowledged by `peer`; 0 before the first.
///
/// # Safety
/// `log` was made by this library; `ssn` is a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_acked(
    log: *mut counterfoil_log,
    peer: u32,
    ssn: *mut u64,
) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe { store_ssn((log, peer), ssn, |log| log.acked(Rank(peer))) }
}

/// # Safety
/// `log` was made by this library; `ssn` is a variable.
unsafe fn store_ssn(
    (log, peer): (*mut counterfoil_log, u32),
    ssn: *mut u64,
    of: impl FnOnce(&Log) -> Ssn,
) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe {
        on_log(log, |log| {
            out("ssn", ssn)?;
            *ssn = of(log.of_peer(peer)?).0;
            Ok(())
        })
    }
}

/// Handles an acknowledgement from `peer`: it has received all messages up to `ssn`, the last one in its epoch `epoch`.
///
/// They are released, or retained until covered by a checkpoint, depending on `COUNTERFOIL_OPTION_KEEP`.
///
/// # Safety
/// `log` was made by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_acknowledge(
    log: *mut counterfoil_log,
    peer: u32,
    ssn: u64,
    epoch: u32,
) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe {
        on_log(log, |log| {
            let ack = Ack { ssn: Ssn(ssn), epoch: Epoch(epoch) };
            Ok(log.log()?.acknowledge(Rank(peer), ack, Phase::default())?)
        })
    }
}

/// Handles a durable checkpoint of `peer`, beginning `epoch` and covering the messages up to `upto`: the next
/// `counterfoil_log_collect` frees them.
///
/// # Safety
/// `log` was made by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_receiver_covered(
    log: *mut counterfoil_log,
    peer: u32,
    epoch: u32,
    upto: u64,
) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe { on_log(log, |log| Ok(log.log()?.receiver_covered(Rank(peer), Epoch(epoch), Ssn(upto))?)) }
}

/// Handles a rollback of `peer` to its state after receiving the messages up to `upto`.
///
/// # Safety
/// `log` was made by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_receiver_rolled_back(
    log: *mut counterfoil_log,
    peer: u32,
    upto: u64,
) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe {
        on_log(log, |log| {
            log.of_peer(peer)?.receiver_rolled_back(Rank(peer), Ssn(upto));
            Ok(())
        })
    }
}

/// Frees the records no longer needed by any recovery.
///
/// `chunks` gets the number of freed chunks, and may be null.
///
/// # Safety
/// `log` was made by this library; `chunks` is a variable or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_collect(log: *mut counterfoil_log, chunks: *mut usize) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe {
        on_log(log, |log| {
            store(chunks, log.log()?.collect().chunks);
            Ok(())
        })
    }
}

/// Writes a checkpoint beginning `epoch`, and waits until it survives a power cut: the kept records, the local log, and
/// the program's bytes.
///
/// Needs `COUNTERFOIL_PATH_STORE`. The previous checkpoint is unaffected by a failure.
///
/// # Safety
/// `log` was made by this library; `state` has so many bytes, or is null if there are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_checkpoint(
    log: *mut counterfoil_log,
    epoch: u32,
    state: *const u8,
    len: usize,
) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe {
        on_log(log, |log| {
            let application = bytes("state", state, len)?.to_vec();
            let contents = Contents { application, tables: Vec::new() };
            Ok(log.log()?.checkpoint(Epoch(epoch), contents)?)
        })
    }
}

/// Rewinds the channel to `peer` to the state after its message `last`: the next ones are to be repeated.
///
/// # Safety
/// `log` was made by this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_rewind(log: *mut counterfoil_log, peer: u32, last: u64) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe {
        on_log(log, |log| {
            log.of_peer(peer)?.rewind(Rank(peer), Ssn(last));
            Ok(())
        })
    }
}

/// Repeats a message after a rewind: compares its payload with the one on record.
///
/// `COUNTERFOIL_RESULT_NOT_REWOUND` when all are repeated: append from then on. `ssn` may be null.
///
/// # Safety
/// `log` was made by this library; `payload` has so many bytes, or is null if there are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_repeat(
    log: *mut counterfoil_log,
    peer: u32,
    payload: *const u8,
    payload_len: usize,
    ssn: *mut u64,
) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe {
        on_log(log, |log| {
            store(ssn, log.log()?.repeat(Rank(peer), bytes("payload", payload, payload_len)?)?.0);
            Ok(())
        })
    }
}

/// Appends an entry on this rank's own past to the local log: `kind` below 255 and `key` are the caller's.
///
/// # Safety
/// `log` was made by this library; `data` has so many bytes, or is null if there are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_append_local(
    log: *mut counterfoil_log,
    kind: u8,
    key: u64,
    data: *const u8,
    len: usize,
) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe { on_log(log, |log| Ok(log.log()?.local().append(kind, key, bytes("data", data, len)?)?)) }
}

/// Finds the oldest local log entry with this kind and key; `COUNTERFOIL_RESULT_END` if there is none.
///
/// The bytes are valid until the next such call on the log.
///
/// # Safety
/// `log` was made by this library; the others are variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_find_local(
    log: *mut counterfoil_log,
    kind: u8,
    key: u64,
    data: *mut *const u8,
    len: *mut usize,
) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe {
        on_log(log, |log| {
            out("data", data)?;
            out("len", len)?;
            let entry = log.log()?.local().get(kind, key);
            let entry = entry.ok_or_else(|| Failure::new(counterfoil_result::End, "there is no such entry"))?;
            log.entry = entry.bytes;
            (*data, *len) = (log.entry.as_ptr(), log.entry.len());
            Ok(())
        })
    }
}

/// Returns memory and counters.
///
/// # Safety
/// `log` was made by this library; `stats` is a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_log_stats(
    log: *mut counterfoil_log,
    stats: *mut counterfoil_stats,
) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe {
        on_log(log, |log| {
            out("stats", stats)?;
            let found = log.log()?.stats();
            *stats = counterfoil_stats {
                messages_logged: found.messages_logged,
                bytes_logged: found.bytes_logged,
                used_bytes: found.used_bytes as u64,
                resident_bytes: found.resident_bytes as u64,
                max_bytes: found.max_bytes as u64,
                spilled_bytes: found.spilled_bytes,
                local_entries: found.local_entries as u64,
                stopped_logging: found.stopped_logging.into(),
            };
            Ok(())
        })
    }
}

/// Runs a function on a log while no claim is open.
///
/// # Safety
/// `log` was made by this library.
pub(crate) unsafe fn with_log(
    log: *mut counterfoil_log,
    body: impl FnOnce(&mut Log) -> Result<(), Failure>,
) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe { on_log(log, |log| body(log.log()?)) }
}
