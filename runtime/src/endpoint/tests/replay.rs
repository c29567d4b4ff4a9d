//! Ranks replayed alone, from an ended job's logs.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;

use counterfoil_protocols::api::Protocol;
use counterfoil_protocols::{RULES, pessimistic};
use rustix::fs::{SeekFrom, seek};

use super::*;
use crate::endpoint::Endpoint;
use crate::local::RankEndpoint;
use crate::replay::{RecordEnd, ReplayOptions, ReplayTransport, can_replay, start_replay};
use crate::transport::Transport;

fn replay_of(job: &ThreadJob, rank: u32) -> Result<RankEndpoint<ReplayTransport>, Error> {
    let options =
        ReplayOptions { rank, settings: job.settings.clone(), log_directory: job.job.paths().logs(), history: None };
    start_replay(&options, |transport| transport)
}

/// Returns a file's parts with memory, by their offsets: the others are holes.
fn parts(path: &Path) -> BTreeMap<u64, Vec<u8>> {
    let file = fs::File::open(path).unwrap();
    let (mut parts, mut at) = (BTreeMap::new(), 0);
    while let Ok(start) = seek(&file, SeekFrom::Data(at)) {
        at = seek(&file, SeekFrom::Hole(start)).unwrap();
        let mut bytes = vec![0; (at - start) as usize];
        file.read_exact_at(&mut bytes, start).unwrap();
        parts.insert(start, bytes);
    }
    parts
}

fn files(directory: &Path) -> BTreeMap<PathBuf, BTreeMap<u64, Vec<u8>>> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.clone(), parts(&path))).collect()
}

#[test]
fn each_rank_does_the_same_alone_under_each_rule_that_repeats() {
    let rules: Vec<_> = RULES.into_iter().filter(can_replay).collect();
    assert!(rules.len() >= 2 && rules.contains(&pessimistic::RULE), "{rules:?}");
    for rule in rules {
        for death in [None, Some(20), Some(35)] {
            let job = ThreadJob::new(RankSettings { rule, ..settings(Tier::ProcessCrashSafe) });
            let ran = job.run(|endpoint, incarnation| {
                let death = death.filter(|_| endpoint.rank() == 1 && incarnation == 0);
                let mut killable = Killable::new(endpoint, death);
                let result = program(&mut killable, false);
                killable.end(result)
            });
            let (results, _) = ran.unwrap();
            let before = files(&job.job.paths().logs());
            for (rank, result) in (0..).zip(&results) {
                // Two at once.
                let mut replays = [replay_of(&job, rank).unwrap(), replay_of(&job, rank).unwrap()];
                for endpoint in &mut replays {
                    let replayed = program(endpoint, false).unwrap();
                    assert_eq!(replayed, *result, "{rule:?}, rank {rank}, death {death:?}");
                    endpoint.finish(Vec::new()).unwrap();
                    assert!(endpoint.tally().sends_repeated > 0);
                }
            }
            assert_eq!(files(&job.job.paths().logs()), before, "the files stay as they are");
        }
    }
}

/// Sends 3 messages to the other rank, receives as many, and tests once for another.
fn exchange(comm: &mut dyn Communicator) -> Result<Vec<u8>, Error> {
    let other = 1 - comm.rank();
    for number in 0..3_u8 {
        comm.send(other, 7, &[number, comm.rank() as u8])?;
        comm.recv(ANY_SOURCE, Some(7))?;
    }
    comm.iprobe(ANY_SOURCE, Some(8))?;
    comm.send(other, 9, &[])?;
    comm.recv(Some(other), Some(9))?;
    Ok(Vec::new())
}

#[test]
fn a_replay_says_what_differs_and_where_the_record_ends() {
    let job = ThreadJob::new(RankSettings { ranks: 2, ..settings(Tier::ProcessCrashSafe) });
    job.run(|endpoint, _| exchange(endpoint).map(End::Result)).unwrap();
    let replay = || replay_of(&job, 1).unwrap();
    let ended = |mut endpoint: RankEndpoint<ReplayTransport>| {
        exchange(&mut endpoint).unwrap();
        endpoint
    };
    let ends = |error: Error| RecordEnd::of(&error).unwrap_or_else(|| panic!("{error}"));

    assert_eq!(ends(ended(replay()).recv(ANY_SOURCE, ANY_TAG).unwrap_err()), RecordEnd::Wait);
    assert_eq!(ends(ended(replay()).send(0, 7, &[]).unwrap_err()), RecordEnd::Send { to: 0, ssn: 5 });
    // Nothing is found, and that is recorded with the next message only.
    assert_eq!(ends(ended(replay()).iprobe(ANY_SOURCE, ANY_TAG).unwrap_err()), RecordEnd::Outcome);

    for (tag, bytes) in [(7, &[1, 1][..]), (8, &[0, 1]), (7, &[0])] {
        let error = replay().send(0, tag, bytes).unwrap_err();
        assert!(error.is_divergence() && RecordEnd::of(&error).is_none(), "{error}");
    }
    let mut endpoint = replay();
    endpoint.send(0, 7, &[0, 1]).unwrap();
    endpoint.recv(ANY_SOURCE, Some(7)).unwrap();
    // The second receive's outcome was message 2.
    let error = endpoint.recv(ANY_SOURCE, Some(9)).unwrap_err();
    assert!(error.is_divergence() || RecordEnd::of(&error) == Some(RecordEnd::Wait), "{error}");
}

#[test]
fn a_damaged_log_and_a_rule_without_repetition_are_refused() {
    let job = ThreadJob::new(RankSettings { ranks: 2, ..settings(Tier::ProcessCrashSafe) });
    job.run(|endpoint, _| exchange(endpoint).map(End::Result)).unwrap();
    let path = job.job.paths().logs().join("log.0");
    let parts = parts(&path);
    // The third message's payload.
    let found = parts
        .iter()
        .find_map(|(start, bytes)| Some(start + bytes.windows(2).rposition(|window| window == [2, 0])? as u64));
    let write = |byte: u8| {
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[byte], found.unwrap()).unwrap();
    };
    write(0x42);
    let damaged = replay_of(&job, 0).unwrap_err();
    assert!(matches!(damaged, Error::Damaged { .. }), "{damaged}");
    write(2);
    replay_of(&job, 0).unwrap();
    for (rule, tier) in
        [(job.settings.rule, Tier::Volatile), (counterfoil_protocols::unlogged::RULE, job.settings.tier)]
    {
        let settings = RankSettings { rule, tier, ..job.settings.clone() };
        let options = ReplayOptions { rank: 0, settings, log_directory: job.job.paths().logs(), history: None };
        let refused = start_replay(&options, |transport| transport).unwrap_err();
        assert!(matches!(refused, Error::NoReplay { .. }), "{refused}");
    }
}

#[test]
fn a_wildcard_takes_nothing_that_is_not_on_record() {
    let job = ThreadJob::new(RankSettings { ranks: 2, ..settings(Tier::ProcessCrashSafe) });
    // Rank 1 ends without the message sent by rank 0.
    let ran = job.run(|endpoint, _| {
        if endpoint.rank() == 0 {
            endpoint.send(1, 7, b"late")?;
            endpoint.recv(Some(1), Some(8))?;
        } else {
            let _ = endpoint.irecv(ANY_SOURCE, Some(9))?;
            endpoint.send(0, 8, &[])?;
        }
        Ok(End::Result(Vec::new()))
    });
    ran.unwrap();
    let mut endpoint = replay_of(&job, 1).unwrap();
    let request = endpoint.irecv(ANY_SOURCE, ANY_TAG).unwrap();
    endpoint.send(0, 8, &[]).unwrap();
    // The message has arrived here, and the receive waits on.
    endpoint.recv(Some(0), Some(7)).unwrap();
    assert_eq!(RecordEnd::of(&endpoint.wait(request).unwrap_err()), Some(RecordEnd::Wait));
}

/// Cancels receives without a message.
fn cancel<T: Transport, P: Protocol>(endpoint: &mut Endpoint<T, P>) -> Result<Vec<u8>, Error> {
    for source in [ANY_SOURCE, Some(0), ANY_SOURCE] {
        let request = endpoint.irecv(source, Some(9))?;
        assert!(endpoint.cancel(request)?.is_none());
    }
    endpoint.send(0, 8, &[])?;
    Ok(Vec::new())
}

#[test]
fn cancelled_receives_are_cancelled_again() {
    let job = ThreadJob::new(RankSettings { ranks: 2, ..settings(Tier::ProcessCrashSafe) });
    let ran = job.run(|endpoint, _| match endpoint.rank() {
        0 => endpoint.recv(Some(1), Some(8)).map(|_| End::Result(Vec::new())),
        _ => cancel(endpoint).map(End::Result),
    });
    ran.unwrap();
    let mut endpoint = replay_of(&job, 1).unwrap();
    cancel(&mut endpoint).unwrap();
    endpoint.finish(Vec::new()).unwrap();
}

#[test]
fn a_rank_without_a_log_is_refused() {
    let job = ThreadJob::new(RankSettings { ranks: 2, ..settings(Tier::ProcessCrashSafe) });
    job.run(|endpoint, _| exchange(endpoint).map(End::Result)).unwrap();
    for file in ["local.0", "log.1"] {
        let (path, away) = (job.job.paths().logs().join(file), job.job.paths().logs().join("away"));
        fs::rename(&path, &away).unwrap();
        for rank in 0..2 {
            assert!(matches!(replay_of(&job, rank), Err(Error::Open(OpenError::NoLog { .. }))), "{file}, rank {rank}");
        }
        fs::rename(&away, &path).unwrap();
    }
}
