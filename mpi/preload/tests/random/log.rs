//! Comparison of a log with the messages its programs report as sent (`tests/c/random/sent.c`).

use std::collections::BTreeMap;
use std::path::Path;

use crate::contributions;
use crate::logged::{self, Logged};

/// Tag shared by several sending threads, so its messages are not in the plan's order (`tests/c/random/random.h`).
const SHARED_TAG: i32 = 60;

/// Mixes a message's hash with its tag and its position in its stream.
fn mix(hash: u64, tag: i32, position: u64) -> u64 {
    let tag = (i64::from(tag) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let state = hash.wrapping_add(tag).wrapping_add(position.wrapping_mul(0xd134_2543_de82_ef95));
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Returns a message count and the sum of their hashes, as printed by the programs.
fn total(hashes: impl Iterator<Item = u64>) -> String {
    let (count, sum) = hashes.fold((0, 0_u64), |(count, sum), hash| (count + 1, sum.wrapping_add(hash)));
    format!("{count}/{sum:016x}")
}

fn messages(streams: &Logged) -> String {
    total(streams.iter().flat_map(|(&(_, tag), stream)| {
        let position = move |number| if tag == SHARED_TAG { 0 } else { number };
        stream.iter().map(move |(&number, payload)| mix(payload.1, tag, position(number)))
    }))
}

/// Checks that a kept log has each channel's messages, and each rank's contributions.
///
/// # Errors
/// The first difference.
pub(crate) fn has_what_was_sent(log: &Path, ranks: u32, printed: &BTreeMap<String, String>) -> Result<(), String> {
    let channels = logged::read(log, ranks);
    let none = Logged::new();
    let check = |name: String, logged: String| match printed.get(&name) {
        Some(sent) if *sent == logged => Ok(()),
        sent => Err(format!("{name} {}, and the log has {logged}", sent.map_or("nothing", |sent| sent))),
    };
    for rank in 0..ranks {
        for to in 0..ranks {
            check(format!("rank {rank} to {to}:"), messages(channels.get(&(rank, to)).unwrap_or(&none)))?;
        }
        let contributed = contributions::read(log, rank);
        let hashes = contributed.values().filter(|(len, _)| *len > 0).map(|(_, hash)| mix(*hash, 0, 0));
        check(format!("rank {rank} contributed:"), total(hashes))?;
    }
    Ok(())
}
