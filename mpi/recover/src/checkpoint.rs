//! Program-level checkpoints: `counterfoil_checkpoint.h`.
//!
//! The program names its memory, says when it is set up, and takes checkpoints from then on. Its replacement begins at
//! the first line, repeats everything before that call with the data kept in the checkpoint, gets the memory back in
//! that call, and continues from there.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use counterfoil_settings::recover::Stream;
use serde::{Deserialize, Serialize};

use crate::clocks::Inside;
use crate::front::{Front, running};
use crate::output;
use crate::process::say;

/// Results of `counterfoil_checkpoint`.
const TAKEN: c_int = 0;
const REFUSED: c_int = 1;
/// Result of `counterfoil_protect` for memory that can't be protected.
const INVALID: c_int = 2;

unsafe extern "C" {
    fn counterfoil_recover_flush();
}

/// Longest incomplete line kept in a checkpoint, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Memory named by the program.
#[derive(Clone, Copy)]
struct Region {
    id: c_int,
    at: usize,
    len: usize,
}

static REGIONS: Mutex<Vec<Region>> = Mutex::new(Vec::new());

/// Header of the program's state; the regions' bytes follow.
#[derive(Serialize, Deserialize)]
struct Saved {
    calls: u64,
    printed: Vec<Printed>,
    /// Ids and lengths.
    regions: Vec<(c_int, u64)>,
    /// Times shown by the clocks.
    clocks: Vec<u64>,
}

/// A rank's output to a stream.
#[derive(Default, Serialize, Deserialize)]
struct Printed {
    len: u64,
    /// Its last bytes, after the last complete line.
    tail: Vec<u8>,
}

/// Returns the ids and lengths of the named memory.
fn lengths() -> BTreeSet<(c_int, usize)> {
    regions().iter().map(|region| (region.id, region.len)).collect()
}

fn regions() -> Vec<Region> {
    REGIONS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Names memory saved in checkpoints, `len` bytes at `at`.
///
/// A second call with an id replaces the first.
///
/// # Safety
/// The memory is valid whenever a checkpoint is taken, and when the program calls `counterfoil_restarted`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn counterfoil_protect(id: c_int, at: *mut c_void, len: usize) -> c_int {
    if at.is_null() && len > 0 {
        return INVALID;
    }
    let mut regions = REGIONS.lock().unwrap_or_else(PoisonError::into_inner);
    regions.retain(|region| region.id != id);
    regions.push(Region { id, at: at.expose_provenance(), len });
    TAKEN
}

/// Declares that the program is set up.
///
/// Returns 1 if the named memory now has a checkpoint's contents, from which the program continues, else 0.
///
/// # Safety
/// The memory named by the program is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn counterfoil_restarted() -> c_int {
    let Some(front) = running().filter(|front| front.replay.is_none()) else { return 0 };
    // SAFETY: a C library function.
    unsafe { counterfoil_recover_flush() };
    let _inside = Inside::enter();
    let state = match front.process.end_prologue() {
        Ok(state) => state,
        Err(error) => front.end_job(1, &format!("counterfoil_restarted: {error}")),
    };
    front.set_up.borrow_mut().get_or_insert_with(|| {
        front.requests.borrow_mut().end_set_up();
        lengths()
    });
    let Some(state) = state else { return 0 };
    front.requests.borrow_mut().resume();
    // SAFETY: as for this function.
    if let Err(why) = unsafe { resume(front, &state) } {
        front.end_job(1, &format!("counterfoil_restarted: {why}"));
    }
    1
}

/// Gives the program its memory back.
///
/// # Safety
/// The memory named by the program is valid, and nothing else refers to it.
unsafe fn resume(front: &Front, state: &[u8]) -> Result<(), String> {
    let (saved, mut bytes) =
        postcard::take_from_bytes::<Saved>(state).map_err(|_| "the checkpoint is of another version".to_owned())?;
    let named = regions();
    for (id, len) in saved.regions {
        let (region, rest) = usize::try_from(len)
            .ok()
            .and_then(|len| bytes.split_at_checked(len))
            .ok_or("the checkpoint is too short")?;
        bytes = rest;
        let into = named.iter().find(|region| region.id == id);
        let into =
            into.ok_or_else(|| format!("the checkpoint has memory {id}, which counterfoil_protect has not named"))?;
        if into.len != region.len() {
            return Err(format!("memory {id} has {} bytes, and {len} in the checkpoint", into.len));
        }
        // SAFETY: as for this function.
        unsafe {
            let at = std::ptr::with_exposed_provenance_mut::<u8>(into.at);
            std::ptr::copy_nonoverlapping(region.as_ptr(), at, region.len());
        }
    }
    front.calls.set(saved.calls);
    front.clocks.resume(&saved.clocks);
    for (stream, printed) in Stream::ALL.into_iter().zip(saved.printed) {
        skip_printed(stream, &printed).map_err(|error| format!("cannot go on with its output: {error}"))?;
    }
    Ok(())
}

/// Takes a checkpoint.
///
/// Returns 0 if it is taken, or none is needed; 1 if it can't be, and the one before stays.
///
/// # Safety
/// The memory named by the program is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn counterfoil_checkpoint() -> c_int {
    let Some(front) = running().filter(|front| front.takes_checkpoints) else { return TAKEN };
    // SAFETY: a C library function.
    unsafe { counterfoil_recover_flush() };
    let _inside = Inside::enter();
    if !front.requests.borrow().are_those_of_set_up() {
        return refuse("a request is pending, or was made after counterfoil_restarted");
    }
    if front.matched.borrow().numbers().next().is_some() {
        return refuse("a message is matched by MPI_Mprobe, and not received");
    }
    if front.set_up.borrow().as_ref().is_some_and(|named| *named != lengths()) {
        return refuse("counterfoil_protect has named other memory after counterfoil_restarted");
    }
    let named = regions();
    let saved = Saved {
        calls: front.calls.get(),
        printed: Stream::ALL.map(|stream| printed(stream).unwrap_or_default()).into(),
        regions: named.iter().map(|region| (region.id, region.len as u64)).collect(),
        clocks: front.clocks.shown(),
    };
    let Ok(mut bytes) = postcard::to_stdvec(&saved) else { return refuse("it can't be encoded") };
    for region in named.iter().filter(|region| region.len > 0) {
        // SAFETY: as for this function.
        bytes.extend_from_slice(unsafe {
            std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(region.at), region.len)
        });
    }
    match front.process.checkpoint_program(&bytes) {
        Ok(()) => TAKEN,
        Err(error) => refuse(&error.to_string()),
    }
}

/// Reports, once for each reason, why no checkpoint was taken.
fn refuse(why: &str) -> c_int {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(why.to_owned()) {
        say(&format!("no checkpoint was taken: {why}"));
    }
    REFUSED
}

/// Returns the file for this process's output to a stream, if there is one.
fn file_of(stream: Stream) -> Option<PathBuf> {
    output::number().map(|_| PathBuf::from(format!("/proc/self/fd/{}", stream.descriptor())))
}

/// Returns this process's output to a stream so far.
fn printed(stream: Stream) -> Option<Printed> {
    let mut file = File::open(file_of(stream)?).ok()?;
    let len = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(LINE_BYTES_MAX))).ok()?;
    let mut end = Vec::new();
    file.take(LINE_BYTES_MAX).read_to_end(&mut end).ok()?;
    // Copied bytes are no longer in the file.
    let tail = end.rsplit(|byte| [b'\n', 0].contains(byte)).next().unwrap_or_default().to_vec();
    Some(Printed { len, tail })
}

/// Continues a stream after the previous process's output: those bytes are copied already, except for the last
/// incomplete line.
fn skip_printed(stream: Stream, printed: &Printed) -> std::io::Result<()> {
    let Some(path) = file_of(stream) else { return Ok(()) };
    let mut file = OpenOptions::new().append(true).open(path)?;
    let begun = file.metadata()?.len();
    let complete = printed.len.saturating_sub(printed.tail.len() as u64);
    if begun < complete {
        file.set_len(complete)?;
    }
    let has = begun.max(complete).saturating_sub(complete);
    file.write_all(printed.tail.get(has as usize..).unwrap_or_default())
}
