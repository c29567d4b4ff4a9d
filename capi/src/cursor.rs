//! Records of a channel, in order.

use std::ptr;

use counterfoil::{Cursor, Rank, Ssn};

use crate::boundary::{Failure, boundary, object, out};
use crate::log::{counterfoil_log, with_log};
use crate::result::counterfoil_result;

/// A position in the messages to a peer.
///
/// Made by `counterfoil_cursor_open`, freed by `counterfoil_cursor_free`. It may outlive its log, and be read in
/// another thread.
pub struct counterfoil_cursor(Cursor);

/// A record, as it was committed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct counterfoil_record {
    /// Sequence number of the message.
    pub ssn: u64,
    /// The caller's own bytes, such as a header.
    pub prefix: *const u8,
    pub prefix_len: usize,
    pub payload: *const u8,
    pub payload_len: usize,
}

/// Opens a cursor on the messages to `peer` from sequence number `from` on, for transmission and replay.
///
/// # Safety
/// `log` was made by this library; `cursor` is a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_cursor_open(
    log: *mut counterfoil_log,
    peer: u32,
    from: u64,
    cursor: *mut *mut counterfoil_cursor,
) -> counterfoil_result {
    // SAFETY: as for this function.
    unsafe {
        with_log(log, |log| {
            out("cursor", cursor)?;
            let opened = log.cursor(Rank(peer), Ssn(from))?;
            *cursor = Box::into_raw(Box::new(counterfoil_cursor(opened)));
            Ok(())
        })
    }
}

/// Returns the next record, and passes it; `COUNTERFOIL_RESULT_END` if nothing more is committed: more may come.
///
/// The bytes are valid until the next call with this cursor.
///
/// # Safety
/// `cursor` was made by this library; `record` is a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_cursor_next(
    cursor: *mut counterfoil_cursor,
    record: *mut counterfoil_record,
) -> counterfoil_result {
    boundary(|| {
        // SAFETY: as for this function.
        let cursor = unsafe { object("cursor", cursor)? };
        out("record", record)?;
        let Some(found) = cursor.0.read()? else {
            return Err(Failure::new(counterfoil_result::End, "nothing more is committed"));
        };
        let (prefix, payload) = (found.prefix(), found.payload());
        let found = counterfoil_record {
            ssn: found.ssn().0,
            prefix: prefix.as_ptr(),
            prefix_len: prefix.len(),
            payload: payload.as_ptr(),
            payload_len: payload.len(),
        };
        // SAFETY: as for this function.
        unsafe { ptr::write(record, found) };
        Ok(())
    })
}

/// Frees a cursor.
///
/// Null is ignored.
///
/// # Safety
/// `cursor` is null or was made by this library, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn counterfoil_cursor_free(cursor: *mut counterfoil_cursor) {
    if !cursor.is_null() {
        // A panic has no result to become.
        let _ = boundary(|| {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(cursor) });
            Ok(())
        });
    }
}
