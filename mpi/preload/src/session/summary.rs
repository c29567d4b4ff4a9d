//! The account of one rank, as JSON, for `counterfoil run` to put together.

use serde_json::{Map, Value, json};

use super::{Ended, Session};
use crate::Operation;
use crate::say::say;

/// Writes it where the user wants it, if so.
pub(super) fn write(session: &Session, ended: Ended) {
    let Some(dir) = &session.settings.summary_dir else { return };
    let path = dir.join(format!("rank-{}.json", session.rank));
    if let Err(error) = std::fs::write(&path, account(session, ended).to_string()) {
        say(format_args!("its account can't be written to {}: {error}", path.display()));
    }
}

fn account(session: &Session, ended: Ended) -> Value {
    let ledger = &session.ledger;
    let sum =
        |of: &[super::ledger::Traffic]| of.iter().fold((0, 0), |sum, one| (sum.0 + one.messages, sum.1 + one.bytes));
    let (logged, logged_bytes) = sum(&ledger.logged);
    let (received, received_bytes) = sum(&ledger.received);
    let mut kinds = Map::new();
    for (operation, count) in Operation::ALL.iter().zip(&ledger.collectives).filter(|(_, count)| **count > 0) {
        kinds.insert(operation.name().to_owned(), json!(count));
    }
    json!({
        "rank": session.rank,
        "ranks": session.ranks,
        "aborted": ended == Ended::Aborted,
        "messages_logged": logged,
        "bytes_logged": logged_bytes,
        "messages_received": received,
        "bytes_received": received_bytes,
        "collectives": ledger.collectives.iter().sum::<u64>(),
        "collectives_by_kind": kinds,
        "contributions": ledger.contributions,
        "determinants": ledger.determinants,
        "memory_peak_bytes": ledger.memory_peak,
        "spilled_bytes": ledger.spilled,
        "waited_s": ledger.waited.as_secs_f64(),
        "logging_stopped": ledger.has_stopped,
        "gave_up": ledger.gave_up,
        "wall_s": session.wall().as_secs_f64(),
        "sent_to": ledger.logged,
        "received_from": ledger.received,
    })
}
