//! Advice for errors of a full log or store: the demo's option for more space.

use counterfoil::{AppendError, CheckpointError, OpenError, StoreError};
use counterfoil_runtime::Error;
use counterfoil_runtime::local::JoinError;
use counterfoil_workloads::Error as WorkloadError;

/// Formats a rank's error; appends the relevant demo option if the log or its store is full.
pub(crate) fn with_advice(error: &(dyn std::error::Error + 'static)) -> String {
    let join = error.downcast_ref::<JoinError>().and_then(|error| match error {
        JoinError::Start(error) => Some(error),
        _ => None,
    });
    let workload = error.downcast_ref::<WorkloadError>().and_then(|error| match error {
        WorkloadError::Communicator(error) => Some(error),
        _ => None,
    });
    let advice = match error.downcast_ref::<Error>().or(join).or(workload) {
        Some(Error::StillFull { source: AppendError::Full(_), .. }) => {
            Some("--budget sets the memory limit; --checkpoint-every takes checkpoints, which free memory")
        }
        error => error.and_then(store_error).and_then(store_advice),
    };
    match advice {
        Some(advice) => format!("{error} ({advice})"),
        None => error.to_string(),
    }
}

fn store_advice(error: &StoreError) -> Option<&'static str> {
    match error {
        StoreError::DiskFull { .. } => Some("--checkpoint-dir or --keep-files selects another disk"),
        StoreError::Budget { .. } => Some("--disk-budget sets disk_bytes_max; --checkpoint-every takes checkpoints"),
        StoreError::Failed { first } => store_advice(first),
        _ => None,
    }
}

/// Returns the store's error inside `error`, if there is one.
fn store_error(error: &Error) -> Option<&StoreError> {
    match error {
        Error::Checkpoint(CheckpointError::Store(error)) => Some(error),
        Error::Checkpoint(CheckpointError::Open(error)) => open_store_error(error),
        Error::Open(error) => open_store_error(error),
        Error::Append { source, .. } | Error::StillFull { source, .. } => match source {
            AppendError::DiskRefused(refused) => Some(&refused.source),
            _ => None,
        },
        _ => None,
    }
}

fn open_store_error(error: &OpenError) -> Option<&StoreError> {
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
    fn errors_of_a_full_store_name_the_option_and_other_errors_do_not() {
        let full = StoreError::DiskFull { dir: Some("/disk/rank-0".into()), needed: 16 << 20, available: 4 << 20 };
        let full: Error = CheckpointError::Store(Arc::new(full)).into();
        let text = with_advice(&full);
        assert!(text.contains("the disk is full: 16.0 MiB needed, 4.0 MiB left in /disk/rank-0;"), "{text}");
        assert!(text.contains("--checkpoint-dir"), "{text}");
        let budget = StoreError::Budget { needed: 4096, used: 1, max: 2 };
        let budget: Error = CheckpointError::Open(Arc::new(OpenError::Store(budget))).into();
        assert!(with_advice(&budget).contains("--disk-budget"));
        assert!(with_advice(&JoinError::Start(budget)).contains("--disk-budget"));
        assert!(with_advice(&WorkloadError::Communicator(full)).contains("--checkpoint-dir"));
        assert!(!with_advice(&Error::RequestsMax { max: 1 }).contains("--"));
    }
}
