//! Takeover of logs in shared memory whose ranks ended without MPI_Finalize: writes them into the log directory.

use std::collections::BTreeMap;
use std::fs;

use counterfoil::{Contents, Epoch, Log, Options, Tier};
use counterfoil_profile::job::TAKEN_OVER;
use counterfoil_settings::RunSettings;

/// Outcome per rank: number of records, or why the log can't be taken over.
pub(super) type TakenOver = BTreeMap<u32, Result<u64, String>>;

/// Takes over the logs of ended ranks, except where `is_done` returns `true`.
///
/// Does nothing in other tiers or without a log directory.
pub(super) fn take_over(settings: &RunSettings, ranks: u32, is_done: impl Fn(u32) -> bool) -> TakenOver {
    let mut taken = TakenOver::new();
    let (Tier::ProcessCrashSafe, Some(shared), Some(_)) = (settings.tier, &settings.shm_dir, &settings.log_dir) else {
        return taken;
    };
    for entry in fs::read_dir(shared).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rank) = name.to_str().and_then(|name| name.strip_prefix("log.")?.parse::<u32>().ok()) else {
            continue;
        };
        if !is_done(rank) {
            taken.insert(rank, recover_and_store(options(settings, rank, ranks.max(rank + 1))));
        }
    }
    taken
}

/// Returns the options with which the library created the rank's log.
fn options(settings: &RunSettings, rank: u32, ranks: u32) -> Options {
    // Nothing is appended.
    Options { prefault_ahead_bytes: 0, ..settings.log_options(rank, ranks) }
}

fn recover_and_store(options: Options) -> Result<u64, String> {
    let (mut log, found) = Log::recover(options).map_err(|error| error.to_string())?;
    let contents = Contents { application: Vec::new(), tables: vec![(TAKEN_OVER.to_owned(), Vec::new())] };
    log.checkpoint(Epoch::AFTER_RUN, contents).map_err(|error| error.to_string())?;
    Ok(found.lanes.iter().map(|lane| (lane.last.0 + 1).saturating_sub(lane.kept_from.0)).sum())
}

#[cfg(test)]
mod tests {
    use counterfoil::{Keep, Rank, create_private_dir};
    use counterfoil_log_io::{BackendChoice, Directory, DirectoryAccess, StoreView};

    use super::*;

    #[test]
    fn records_committed_by_a_dead_rank_are_taken_over() {
        let place = tempfile::tempdir().unwrap();
        let (shared, logs) = (place.path().join("shared"), place.path().join("logs"));
        create_private_dir(&shared).unwrap();
        create_private_dir(&logs).unwrap();
        let settings = RunSettings {
            tier: Tier::ProcessCrashSafe,
            keep: Keep::All,
            budget: 1 << 20,
            shm_dir: Some(shared.clone()),
            log_dir: Some(logs.clone()),
            ..RunSettings::default()
        };
        for rank in [0, 1] {
            let mut log = Log::create(Options { store: None, ..settings.log_options(rank, 2) }).unwrap();
            for message in 0..100u64 {
                let mut claim = log.claim(Rank(1 - rank), 16, 8).unwrap();
                claim.payload_mut().copy_from_slice(&message.to_le_bytes());
                claim.commit();
            }
            // Like a killed process, without closing the log properly.
            drop(log);
        }
        let volatile = RunSettings { tier: Tier::Volatile, ..settings.clone() };
        assert!(take_over(&volatile, 2, |_| false).is_empty());
        let taken = take_over(&settings, 2, |rank| rank == 0);
        assert_eq!(taken, TakenOver::from([(1, Ok(100))]));
        assert!(!logs.join("rank-0").exists());
        let (mut backend, _) =
            Directory::open(&logs.join("rank-1"), BackendChoice::Pwrite, DirectoryAccess::ReadOnly).unwrap();
        let image = StoreView::new(&mut *backend).unwrap().image(Epoch::AFTER_RUN).unwrap();
        assert_eq!((image.lanes[0].peer, image.lanes[0].next.0), (Rank(0), 101));
        assert!(image.tables.iter().any(|(name, _)| name == TAKEN_OVER));
        // A damaged log is reported.
        fs::write(shared.join("log.0"), "x").unwrap();
        let refused = take_over(&settings, 2, |rank| rank == 1);
        assert!(refused[&0].as_ref().unwrap_err().contains("log.0"), "{refused:?}");
    }
}
