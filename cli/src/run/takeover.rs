//! Takeover of logs in shared memory whose ranks ended without MPI_Finalize: writes them into the log directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use counterfoil::{Contents, Epoch, Keep, Log, Options, Rank, StoreOptions, Tier};
use counterfoil_profile::job::TAKEN_OVER;

use crate::config::{Key, Settings, bytes};

/// Outcome per rank: number of records, or why the log can't be taken over.
pub(super) type TakenOver = BTreeMap<u32, Result<u64, String>>;

/// Takes over the logs of ended ranks, except those for which `is_done` returns `true`. Does nothing in other tiers or without a log
/// directory.
pub(super) fn take_over(
    settings: &Settings,
    (shared, log_dir): (&Path, Option<&Path>),
    ranks: u32,
    is_done: impl Fn(u32) -> bool,
) -> TakenOver {
    let mut taken = TakenOver::new();
    let (Some(log_dir), Some("process-crash-safe")) = (log_dir, settings.value(Key::Tier)) else { return taken };
    for entry in fs::read_dir(shared).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rank) = name.to_str().and_then(|name| name.strip_prefix("log.")?.parse::<u32>().ok()) else {
            continue;
        };
        if !is_done(rank) {
            taken.insert(rank, recover_and_store(options(settings, (rank, ranks.max(rank + 1)), shared, log_dir)));
        }
    }
    taken
}

/// Returns the options of the rank's log. They must equal those with which the library created it.
fn options(settings: &Settings, (rank, ranks): (u32, u32), shared: &Path, log_dir: &Path) -> Options {
    let mut options = Options::new(Rank(rank), ranks);
    options.tier = Tier::ProcessCrashSafe;
    let keep = match settings.value(Key::Keep) {
        Some("acked") => Keep::Acked,
        Some("checkpoint") => Keep::Checkpoint,
        _ => Keep::All,
    };
    options.retain(keep, settings.value(Key::Budget).and_then(bytes).unwrap_or(options.memory_bytes_max));
    options.prefault_ahead_bytes = 0; // Nothing is appended.
    options.dir = Some(shared.to_owned());
    options.store = Some(StoreOptions::new(log_dir));
    options
}

fn recover_and_store(options: Options) -> Result<u64, String> {
    let (mut log, found) = Log::recover(options).map_err(|error| error.to_string())?;
    let contents = Contents { application: Vec::new(), tables: vec![(TAKEN_OVER.to_owned(), Vec::new())] };
    log.checkpoint(Epoch::AFTER_RUN, contents).map_err(|error| error.to_string())?;
    Ok(found.lanes.iter().map(|(_, first, last)| (last.0 + 1).saturating_sub(first.0)).sum())
}

#[cfg(test)]
mod tests {
    use counterfoil::create_private_dir;
    use counterfoil_log_io::{BackendChoice, Directory, DirectoryAccess, StoreView};

    use super::*;
    use crate::config::SettingOptions;

    fn settings(tier: &str) -> Settings {
        let variables = |name: &str| match name {
            "COUNTERFOIL_TIER" => Some(tier.into()),
            "COUNTERFOIL_KEEP" => Some("all".into()),
            "COUNTERFOIL_BUDGET" => Some("1MiB".into()),
            _ => None,
        };
        Settings::from(&SettingOptions::default(), variables, None).unwrap()
    }

    #[test]
    fn records_committed_by_a_dead_rank_are_taken_over() {
        let place = tempfile::tempdir().unwrap();
        let (shared, logs) = (place.path().join("shared"), place.path().join("logs"));
        create_private_dir(&shared).unwrap();
        create_private_dir(&logs).unwrap();
        let settings = settings("process-crash-safe");
        for rank in [0, 1] {
            let mut log =
                Log::create(Options { store: None, ..options(&settings, (rank, 2), &shared, &logs) }).unwrap();
            for message in 0..100u64 {
                let mut claim = log.claim(Rank(1 - rank), 16, 8).unwrap();
                claim.payload_mut().copy_from_slice(&message.to_le_bytes());
                claim.commit();
            }
            // Like a killed process, without closing the log properly.
            drop(log);
        }
        let places = || (shared.as_path(), Some(logs.as_path()));
        let volatile = take_over(&self::settings("volatile"), places(), 2, |_| false);
        assert!(volatile.is_empty());
        let taken = take_over(&settings, places(), 2, |rank| rank == 0);
        assert_eq!(taken, TakenOver::from([(1, Ok(100))]));
        assert!(!logs.join("rank-0").exists());
        let (mut backend, _) =
            Directory::open(&logs.join("rank-1"), BackendChoice::Pwrite, DirectoryAccess::ReadOnly).unwrap();
        let image = StoreView::new(&mut *backend).unwrap().image(Epoch::AFTER_RUN).unwrap();
        assert_eq!((image.lanes[0].peer, image.lanes[0].next.0), (Rank(0), 101));
        assert!(image.tables.iter().any(|(name, _)| name == TAKEN_OVER));
        // A damaged log is reported.
        fs::write(shared.join("log.0"), "x").unwrap();
        let refused = take_over(&settings, places(), 2, |rank| rank == 1);
        assert!(refused[&0].as_ref().unwrap_err().contains("log.0"), "{refused:?}");
    }
}
