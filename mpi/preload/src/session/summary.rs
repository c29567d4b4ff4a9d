//! The summary of a rank, as JSON, which `counterfoil run` gathers.

use counterfoil_profile::Ended;
use serde_json::{Map, Value, json};

use super::Session;
use super::live::Traffic;
use crate::Operation;
use crate::say::say;

/// Writes the summary into the directory that the user gave, if any.
pub(super) fn write(session: &Session, ended: Ended) {
    if session.host.is_none() {
        write_of(session, session.rank(), account(session, ended).to_string().as_bytes());
    }
}

/// Writes the summary of a rank, also of another one.
pub(super) fn write_of(session: &Session, rank: u32, account: &[u8]) {
    let Some(dir) = &session.settings.summary_dir else { return };
    let path = dir.join(format!("rank-{rank}.json"));
    if let Err(error) = std::fs::write(&path, account) {
        say(format_args!("the account of rank {rank} can't be written to {}: {error}", path.display()));
    }
}

pub(super) fn account(session: &Session, ended: Ended) -> Value {
    let ledger = &session.ledger;
    let (sent_to, received_from) = (ledger.all_logged(), ledger.all_received());
    let [logged, received] = [&sent_to, &received_from].map(|of| Traffic::sum(of.iter().copied()));
    let mut kinds = Map::new();
    for (operation, one) in Operation::ALL.iter().zip(&ledger.collectives).filter(|(_, one)| one.messages > 0) {
        kinds.insert(operation.name().to_owned(), json!(one.messages));
    }
    json!({
        "rank": session.logger.rank(),
        "ranks": session.logger.ranks(),
        "aborted": ended == Ended::Aborted,
        "messages_logged": logged.messages,
        "bytes_logged": logged.bytes,
        "messages_received": received.messages,
        "bytes_received": received.bytes,
        "collectives": ledger.all_collectives(),
        "collectives_by_kind": kinds,
        "contributions": ledger.contributions,
        "determinants": session.logger.determinants(),
        "memory_peak_bytes": ledger.memory_peak,
        "late_commit_bytes": ledger.late_commit,
        "spilled_bytes": ledger.spilled,
        "spill_cpu_s": ledger.spill_cpu.as_secs_f64(),
        "waited_s": ledger.waited.as_secs_f64(),
        "sends_refused": ledger.sends_refused,
        "logging_stopped": ledger.has_stopped,
        "gave_up": ledger.gave_up,
        "gaps": ledger.gaps().map(|gap| gap.to_string()).collect::<Vec<_>>(),
        "kept": session.settings.log_dir.as_ref().map(|_| session.not_kept.is_none()),
        "not_kept": session.not_kept,
        "host": session.host.as_ref().map(|_| host_name()),
        "wall_s": session.wall().as_secs_f64(),
        "sent_to": sent_to,
        "received_from": received_from,
    })
}

/// Returns the name of this host.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}
