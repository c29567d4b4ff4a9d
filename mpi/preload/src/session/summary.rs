//! A rank's summary, gathered by `counterfoil run`.

use counterfoil_profile::{Ended, RankEnd, RankSummary, Traffic};

use super::Session;
use crate::Operation;
use crate::say::say;

/// Writes the summary into the user's directory, if any.
pub(super) fn write(session: &Session, ended: Ended) {
    if session.host.is_none() {
        write_of(session, session.rank(), of(session, ended).to_json().as_bytes());
    }
}

/// Writes a rank's summary, also another one's.
pub(super) fn write_of(session: &Session, rank: u32, json: &[u8]) {
    let Some(dir) = &session.settings.summary_dir else { return };
    if let Err(error) = RankSummary::write(dir, rank, json) {
        say(format_args!("the summary of rank {rank} is missing: {error}"));
    }
}

/// Summarises the session.
pub(super) fn of(session: &Session, ended: Ended) -> RankSummary {
    let ledger = &session.ledger;
    let (sent_to, received_from) = (ledger.all_logged(), ledger.all_received());
    let [logged, received] = [&sent_to, &received_from].map(|all| Traffic::sum(all.iter().copied()));
    let kinds = Operation::ALL.iter().zip(&ledger.collectives).filter(|(_, one)| one.messages > 0);
    RankSummary {
        rank: session.logger.rank(),
        messages_logged: logged.messages,
        bytes_logged: logged.bytes,
        messages_received: received.messages,
        bytes_received: received.bytes,
        collectives: ledger.all_collectives(),
        contributions: ledger.contributions,
        determinants: session.logger.determinants(),
        unacknowledged: None,
        memory_bytes: None,
        memory_peak_bytes: ledger.memory_peak as u64,
        spilled_bytes: ledger.spilled,
        waited_s: ledger.waited.as_secs_f64(),
        sent_to,
        received_from,
        kept: session.settings.log_dir.as_ref().map(|_| session.not_kept.is_none()),
        not_kept: session.not_kept.clone(),
        end: Some(RankEnd {
            ranks: session.logger.ranks(),
            aborted: ended == Ended::Aborted,
            collectives_by_kind: kinds.map(|(operation, one)| (operation.name().to_owned(), one.messages)).collect(),
            late_commit_bytes: ledger.late_commit as u64,
            spill_cpu_s: ledger.spill_cpu.as_secs_f64(),
            sends_refused: ledger.sends_refused,
            logging_stopped: ledger.has_stopped,
            gave_up: ledger.gave_up.clone(),
            gaps: ledger.gaps().map(|gap| gap.to_string()).collect(),
            host: session.host.as_ref().map(|_| counterfoil_settings::host_name()),
            wall_s: session.wall().as_secs_f64(),
        }),
    }
}
