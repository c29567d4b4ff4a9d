//! Which option of the demo helps where a log or its store has no room.

use counterfoil::store::StoreError;
use counterfoil::{AppendError, CheckpointError, OpenError};
use counterfoil_runtime::Error;
use counterfoil_runtime::local::JoinError;
use counterfoil_workloads::Error as WorkloadError;

/// What a rank says when it fails: the error and, where there is no room, which option of the demo changes that.
pub(crate) fn with_option(error: &(dyn std::error::Error + 'static)) -> String {
    let join = error.downcast_ref::<JoinError>().and_then(|error| match error {
        JoinError::Start(error) => Some(error),
        _ => None,
    });
    let workload = error.downcast_ref::<WorkloadError>().and_then(|error| match error {
        WorkloadError::Communicator(error) => Some(error),
        _ => None,
    });
    let option = match error.downcast_ref::<Error>().or(join).or(workload) {
        Some(Error::StillFull { source: AppendError::Full(_), .. }) => {
            Some("memory is --budget; --checkpoint-every takes checkpoints, which free it")
        }
        error => error.and_then(of_store).and_then(option),
    };
    match option {
        Some(option) => format!("{error} ({option})"),
        None => error.to_string(),
    }
}

fn option(error: &StoreError) -> Option<&'static str> {
    match error {
        StoreError::DiskFull { .. } => Some("--checkpoint-dir or --keep-files puts it elsewhere"),
        StoreError::Budget { .. } => Some("disk_bytes_max is --disk-budget; --checkpoint-every takes checkpoints"),
        StoreError::Failed { first } => option(first),
        _ => None,
    }
}

/// What the store said, where it was the store.
fn of_store(error: &Error) -> Option<&StoreError> {
    match error {
        Error::Checkpoint(CheckpointError::Store(error)) => Some(error),
        Error::Checkpoint(CheckpointError::Open(error)) => of_opening(error),
        Error::Open(error) => of_opening(error),
        Error::Append { source, .. } | Error::StillFull { source, .. } => match source {
            AppendError::DiskRefused(refused) => Some(&refused.source),
            _ => None,
        },
        _ => None,
    }
}

fn of_opening(error: &OpenError) -> Option<&StoreError> {
    match error {
        OpenError::Store(error) => Some(error),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_store_without_room_names_the_option_and_other_errors_do_not() {
        let full = StoreError::DiskFull { dir: Some("/disk/rank-0".into()), needed: 4096, available: 7 };
        let full: Error = CheckpointError::Store(Arc::new(full)).into();
        let text = with_option(&full);
        assert!(text.contains("the disk is full: 4096 bytes needed, 7 left in /disk/rank-0;"), "{text}");
        assert!(text.contains("--checkpoint-dir"), "{text}");
        let budget = StoreError::Budget { needed: 4096, used: 1, max: 2 };
        let budget: Error = CheckpointError::Open(Arc::new(OpenError::Store(budget))).into();
        assert!(with_option(&budget).contains("--disk-budget"));
        assert!(with_option(&JoinError::Start(budget)).contains("--disk-budget"));
        assert!(with_option(&WorkloadError::Communicator(full)).contains("--checkpoint-dir"));
        assert!(!with_option(&Error::RequestsMax { max: 1 }).contains("--"));
    }
}
