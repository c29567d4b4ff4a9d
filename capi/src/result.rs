//! Result numbers and their sentences.

use std::ffi::{CStr, c_char};

use counterfoil::{
    AckError, AppendError, CheckpointError, CursorError, DestroyError, LocalLogError, OpenError, PoolError,
    RepeatError, ReplayError,
};

/// Result of a function.
///
/// A number is never used again for something else.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum counterfoil_result {
    /// The function has done its work.
    Ok = 0,
    /// There is no more: a cursor is at the end of what is committed, or no such entry exists.
    End = 7000,
    /// A pointer is null.
    NullParameter = 7001,
    /// A parameter is none of the values that it can have.
    InvalidParameter = 7002,
    /// The library has a bug: the log can't be used any more.
    Panic = 7003,
    /// An option is out of its limits.
    Options = 7004,
    /// A directory is missing, or not private, or a file in it is in the way or can't be used.
    Directory = 7005,
    /// The system has no memory left.
    NoMemory = 7006,
    /// The memory budget is used up: acknowledge and collect, then try again.
    Full = 7007,
    /// Records come faster than the disk takes them: try again.
    SpillBehind = 7008,
    /// The memory budget is used up, and the disk refuses writes.
    DiskRefused = 7009,
    /// The record can never fit.
    TooLong = 7010,
    /// The job has no such rank.
    NoSuchRank = 7011,
    /// The channel has used up its sequence numbers.
    SsnExhausted = 7012,
    /// A claim is open: commit or abort it first.
    ClaimOpen = 7013,
    /// No claim is open.
    NoClaim = 7014,
    /// The acknowledgement is of a message that was never sent, or of an earlier epoch.
    Acknowledgement = 7015,
    /// The records are no longer kept.
    Gone = 7016,
    /// Too many cursors of the channel are open.
    TooManyCursors = 7017,
    /// The store failed, or has damaged data.
    Store = 7018,
    /// The log was freed, and the cursor has passed all its records.
    Ended = 7019,
    /// The log has no store: set COUNTERFOIL_PATH_STORE.
    NoStore = 7020,
    /// The repeated message differs from the one on record.
    Diverged = 7021,
    /// The channel isn't rewound, or has been repeated to its end.
    NotRewound = 7022,
    /// The local log refuses the entry, or has a damaged one.
    LocalLog = 7023,
    /// The files of the log can't be removed.
    Destroy = 7024,
}

/// Returns a sentence for a result; for a number that is none, one that says so.
///
/// Static; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn counterfoil_strerror(result: u32) -> *const c_char {
    sentence(result).as_ptr()
}

/// Returns the sentence documenting a result.
fn sentence(result: u32) -> &'static CStr {
    match result {
        0 => c"The function has done its work.",
        7000 => c"There is no more: a cursor is at the end of what is committed, or no such entry exists.",
        7001 => c"A pointer is null.",
        7002 => c"A parameter is none of the values that it can have.",
        7003 => c"The library has a bug: the log can't be used any more.",
        7004 => c"An option is out of its limits.",
        7005 => c"A directory is missing, or not private, or a file in it is in the way or can't be used.",
        7006 => c"The system has no memory left.",
        7007 => c"The memory budget is used up: acknowledge and collect, then try again.",
        7008 => c"Records come faster than the disk takes them: try again.",
        7009 => c"The memory budget is used up, and the disk refuses writes.",
        7010 => c"The record can never fit.",
        7011 => c"The job has no such rank.",
        7012 => c"The channel has used up its sequence numbers.",
        7013 => c"A claim is open: commit or abort it first.",
        7014 => c"No claim is open.",
        7015 => c"The acknowledgement is of a message that was never sent, or of an earlier epoch.",
        7016 => c"The records are no longer kept.",
        7017 => c"Too many cursors of the channel are open.",
        7018 => c"The store failed, or has damaged data.",
        7019 => c"The log was freed, and the cursor has passed all its records.",
        7020 => c"The log has no store: set COUNTERFOIL_PATH_STORE.",
        7021 => c"The repeated message differs from the one on record.",
        7022 => c"The channel isn't rewound, or has been repeated to its end.",
        7023 => c"The local log refuses the entry, or has a damaged one.",
        7024 => c"The files of the log can't be removed.",
        _ => c"this is no result of Counterfoil",
    }
}

impl From<&AppendError> for counterfoil_result {
    fn from(error: &AppendError) -> counterfoil_result {
        match error {
            AppendError::Full(_) => Self::Full,
            AppendError::SpillBehind(_) => Self::SpillBehind,
            AppendError::DiskRefused(_) => Self::DiskRefused,
            AppendError::TooLong { .. } => Self::TooLong,
            AppendError::NoSuchRank { .. } => Self::NoSuchRank,
            AppendError::SsnExhausted { .. } => Self::SsnExhausted,
            // `NoMemory`, and what a later version adds.
            _ => Self::NoMemory,
        }
    }
}

impl From<&OpenError> for counterfoil_result {
    fn from(error: &OpenError) -> counterfoil_result {
        match error {
            OpenError::Options(_) | OpenError::Pool(PoolError::Options(_)) => Self::Options,
            OpenError::Pool(PoolError::Alloc(_)) => Self::NoMemory,
            OpenError::Local(_) => Self::LocalLog,
            OpenError::NoStore => Self::NoStore,
            OpenError::Store(_) | OpenError::Resume(_) | OpenError::StoreCuts | OpenError::StoreLane { .. } => {
                Self::Store
            }
            _ => Self::Directory,
        }
    }
}

impl From<&ReplayError> for counterfoil_result {
    fn from(error: &ReplayError) -> counterfoil_result {
        match error {
            ReplayError::Cursor(error) => error.into(),
            ReplayError::Ended => Self::Ended,
            _ => Self::Store,
        }
    }
}

impl From<&CursorError> for counterfoil_result {
    fn from(error: &CursorError) -> counterfoil_result {
        match error {
            CursorError::Gone { .. } => Self::Gone,
            // `TooMany`, and what a later version adds.
            _ => Self::TooManyCursors,
        }
    }
}

impl From<&CheckpointError> for counterfoil_result {
    fn from(error: &CheckpointError) -> counterfoil_result {
        match error {
            CheckpointError::NoStore => Self::NoStore,
            CheckpointError::Open(error) => (&**error).into(),
            CheckpointError::Cursor(error) => error.into(),
            _ => Self::Store,
        }
    }
}

impl From<&AckError> for counterfoil_result {
    fn from(_: &AckError) -> counterfoil_result {
        Self::Acknowledgement
    }
}

impl From<&RepeatError> for counterfoil_result {
    fn from(error: &RepeatError) -> counterfoil_result {
        match error {
            RepeatError::Diverged(_) => Self::Diverged,
            // `NotRewound`, and what a later version adds.
            _ => Self::NotRewound,
        }
    }
}

impl From<&LocalLogError> for counterfoil_result {
    fn from(_: &LocalLogError) -> counterfoil_result {
        Self::LocalLog
    }
}

impl From<&DestroyError> for counterfoil_result {
    fn from(_: &DestroyError) -> counterfoil_result {
        Self::Destroy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_result_has_the_sentence_that_documents_it() {
        let source = include_str!("result.rs");
        let lines: Vec<&str> = source.lines().map(str::trim).collect();
        let begin = lines.iter().position(|line| line.starts_with("pub enum")).unwrap();
        let end = begin + lines[begin..].iter().position(|line| *line == "}").unwrap();
        let (documented, _) = lines[begin + 1..end].as_chunks::<2>();
        assert!(documented.len() > 20);
        for [doc, variant] in documented {
            let number: u32 = variant.trim_end_matches(',').split(" = ").nth(1).unwrap().parse().unwrap();
            assert_eq!(sentence(number).to_str().unwrap(), doc.trim_start_matches("/// "));
        }
        assert!(sentence(1).to_str().unwrap().starts_with("this is no"));
    }
}
