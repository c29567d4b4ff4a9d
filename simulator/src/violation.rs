//! Violations reported by oracles.

use serde::Serialize;
use thiserror::Error;

/// Violation and its event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Error)]
#[error("event {event}: {kind}")]
pub struct Violation {
    /// Number of the event, from 0.
    pub event: u64,
    /// Kind of the violation.
    #[source]
    #[serde(rename = "wrong")]
    pub kind: ViolationKind,
}

/// Kind of a violation.
///
/// Ranks are numbers from 0; the number after the last is the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Error)]
#[non_exhaustive]
pub enum ViolationKind {
    /// A send has another SSN, or other bytes, than without failures.
    #[error("rank {rank} sends message {number} to {to}, which differs from that of a run without failures")]
    Send {
        /// Sender.
        rank: u32,
        /// Receiver.
        to: u32,
        /// Message SSN.
        number: u64,
    },
    /// A log surviving its process has other bytes under an SSN than the execution repeating it.
    #[error("rank {rank} repeats message {number} to {to} with other bytes")]
    Repeat {
        /// Sender.
        rank: u32,
        /// Receiver.
        to: u32,
        /// Message SSN.
        number: u64,
    },
    /// A replacement diverges from its predecessor's send at the same place: another SSN, another receiver, or other
    /// bytes.
    #[error("rank {rank} sends message {number} to {to}, where its predecessor had sent something else")]
    Diverged {
        /// Sender.
        rank: u32,
        /// Receiver.
        to: u32,
        /// Message SSN.
        number: u64,
    },
    /// A replacement receives in another order than its predecessor, under a rule repeating the order.
    #[error("rank {rank} receives message {number} of {from}, where its predecessor had received another one")]
    OtherOrder {
        /// Receiver.
        rank: u32,
        /// Sender.
        from: u32,
        /// Message SSN.
        number: u64,
    },
    /// A message is delivered twice in one execution.
    #[error("rank {rank} receives message {number} of {from} twice")]
    Duplicate {
        /// Receiver.
        rank: u32,
        /// Sender.
        from: u32,
        /// Message SSN.
        number: u64,
    },
    /// A message is taken out of order, or with wrong bytes.
    #[error("rank {rank} takes message {number} of {from}, which is damaged or not the next with tag {tag}")]
    Take {
        /// Receiver.
        rank: u32,
        /// Sender.
        from: u32,
        /// Stream tag.
        tag: i32,
        /// Message SSN.
        number: u64,
    },
    /// A collective call has another result than without failures, than at another rank, or comes out of order.
    #[error("rank {rank} completes collective call {number} out of order, or with a wrong result")]
    Result {
        /// Rank with the result.
        rank: u32,
        /// Call number.
        number: u64,
    },
    /// At the end, a message was taken, but not sent so in its sender's current timeline.
    #[error("rank {rank} has taken message {number} of {from} from an execution that is undone")]
    Undone {
        /// Receiver.
        rank: u32,
        /// Sender.
        from: u32,
        /// Message SSN.
        number: u64,
    },
    /// At the end, no order of all operations has every message sent before it is taken; or, in a recovery, a message
    /// sent again depends on its own receipt.
    #[error("what rank {rank} did, up to its operation {operation}, is before itself")]
    Cycle {
        /// Rank on the cycle.
        rank: u32,
        /// Operation at which it can't proceed, counting sends, receipts and takes.
        operation: u64,
    },
    /// In a recovery, a rank acts on something dependent on an orphan: a received message its rolled back sender has
    /// yet to send again.
    #[error(
        "rank {rank} goes on too early: it depends on message {number} of {from} to {to}, which is yet to be sent again"
    )]
    TooEarly {
        /// Acting rank.
        rank: u32,
        /// Sender of the orphan.
        from: u32,
        /// Receiver of the orphan.
        to: u32,
        /// Message SSN.
        number: u64,
    },
    /// At the end, not every message was sent, received and taken once.
    #[error("of {} from {from} to {to}: {sent} sent, {received} received, {taken} taken", messages(*expected))]
    Incomplete {
        /// Sender.
        from: u32,
        /// Receiver.
        to: u32,
        /// Number of messages without failures.
        expected: u64,
        /// Number sent.
        sent: u64,
        /// Number received.
        received: u64,
        /// Number taken.
        taken: u64,
    },
    /// A recovery line rolls a rank back further than necessary.
    #[error("the recovery line takes rank {rank} back to epoch {epoch}, where {enough:?} is enough")]
    LineTooLow {
        /// Rank concerned.
        rank: u32,
        /// Epoch in the line.
        epoch: u32,
        /// Sufficient epoch; `None` if it could stay.
        enough: Option<u32>,
    },
    /// A recovery line leaves a rank without a message, and the message is not sent again.
    #[error(
        "where the recovery line leaves it, rank {rank} lacks message {number} of {from}, which is neither logged nor sent again"
    )]
    LineTooHigh {
        /// Receiver lacking it.
        rank: u32,
        /// Sender.
        from: u32,
        /// Message SSN.
        number: u64,
    },
    /// Nothing can happen any more, and these ranks are not at the end of their programs.
    #[error("{} for ever", waiting(ranks))]
    Deadlock {
        /// Waiting ranks.
        ranks: Vec<u32>,
    },
    /// Nothing can happen any more, and these nodes are still recovering.
    #[error("{} recovering for ever", going_on(nodes))]
    Recovering {
        /// Nodes concerned.
        nodes: Vec<u32>,
    },
    /// Nothing can happen any more, and the coordinator waits for ever.
    #[error("the coordinator waits for ever: {what}")]
    Unsettled {
        /// The coordinator's wait condition.
        what: String,
    },
    /// The run doesn't end.
    #[error("the run doesn't end within {events} events")]
    Endless {
        /// Limit of events.
        events: u64,
    },
    /// Records lacking in a restorable checkpoint are freed.
    #[error("rank {rank} frees messages to {peer} up to {upto}, but only {covered} are covered")]
    FreedTooMuch {
        /// Rank with the log.
        rank: u32,
        /// Receiver.
        peer: u32,
        /// Last freed record.
        upto: u64,
        /// Last record that may be freed.
        covered: u64,
    },
    /// A replay asks for a freed record.
    #[error("rank {rank} is to transmit message {number} to {peer}, which was freed")]
    Freed {
        /// Rank with the log.
        rank: u32,
        /// Receiver.
        peer: u32,
        /// First missing record.
        number: u64,
    },
    /// At the end, a lane holds more than after a run without failures.
    #[error("rank {rank} keeps {} to {peer}, where {level} would do", messages(*records))]
    Retained {
        /// Rank with the log.
        rank: u32,
        /// Receiver.
        peer: u32,
        /// Number of records held.
        records: u64,
        /// Number of records allowed.
        level: u64,
    },
    /// At the end, a table is larger than live messages require: it would grow forever.
    #[error("rank {rank} has {rows} in {table} about {peer}, where {live} would do")]
    Grown {
        /// Rank with the table.
        rank: u32,
        /// Peer described by the table.
        peer: u32,
        /// Name: SPE, NonAck, RPP or receive epochs.
        table: &'static str,
        /// Number of rows, or messages.
        rows: u64,
        /// Largest number allowed.
        live: u64,
    },
    /// A rank begins an epoch not below the newest durable one of a rank in the next cluster.
    #[error("rank {rank} begins epoch {epoch}, and rank {other} of the next cluster has begun {its}")]
    ClustersMeet {
        /// Rank taking the checkpoint.
        rank: u32,
        /// Epoch begun by it.
        epoch: u32,
        /// Rank in the next cluster.
        other: u32,
        /// Epoch of its newest durable checkpoint.
        its: u32,
    },
    /// At the end, a sender doesn't know that its messages in an epoch went from the past to the future.
    #[error("rank {rank} never learns that message {number} to {peer} was received in a later epoch")]
    Unheard {
        /// Sender.
        rank: u32,
        /// Receiver.
        peer: u32,
        /// First message in its epoch.
        number: u64,
    },
    /// At the end, a receipt heard by a sender has had no effect on its log.
    #[error("rank {rank} hears that {peer} has received its messages up to {heard}, and acts on those up to {applied}")]
    Unapplied {
        /// Sender.
        rank: u32,
        /// Receiver.
        peer: u32,
        /// Last message with a heard receipt.
        heard: u64,
        /// Last message with an applied receipt.
        applied: u64,
    },
    /// A checkpoint is restored though not durable, or discarded.
    #[error("rank {rank} restores the checkpoint of epoch {epoch}, which does not exist")]
    NoCheckpoint {
        /// Restoring rank.
        rank: u32,
        /// Epoch begun by it.
        epoch: u32,
    },
    /// The protocol refuses an event, though all parties keep the rules.
    #[error("node {node} refuses an event: {why}")]
    Refused {
        /// Node of the state machine.
        node: u32,
        /// Reason, in the protocol's words.
        why: String,
    },
    /// The protocol asks for an impossible or meaningless action.
    #[error("node {node} asks for the impossible: {what}")]
    Impossible {
        /// Node of the state machine.
        node: u32,
        /// Requested action.
        what: String,
    },
}

/// Formats `1 message`, `2 messages`.
fn messages(number: u64) -> String {
    format!("{number} {}", if number == 1 { "message" } else { "messages" })
}

/// Formats `0`, `0 and 2`, `0, 1 and 2`.
fn list(numbers: &[u32]) -> String {
    let words: Vec<String> = numbers.iter().map(u32::to_string).collect();
    match words.as_slice() {
        [] => "none".to_owned(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn waiting(ranks: &[u32]) -> String {
    if ranks.len() == 1 { format!("rank {} waits", list(ranks)) } else { format!("ranks {} wait", list(ranks)) }
}

fn going_on(nodes: &[u32]) -> String {
    if nodes.len() == 1 { format!("node {} is", list(nodes)) } else { format!("nodes {} are", list(nodes)) }
}

impl ViolationKind {
    /// Returns the variant's name.
    pub fn name(&self) -> &'static str {
        match self {
            ViolationKind::Send { .. } => "Send",
            ViolationKind::Repeat { .. } => "Repeat",
            ViolationKind::Diverged { .. } => "Diverged",
            ViolationKind::OtherOrder { .. } => "OtherOrder",
            ViolationKind::Duplicate { .. } => "Duplicate",
            ViolationKind::Take { .. } => "Take",
            ViolationKind::Result { .. } => "Result",
            ViolationKind::Undone { .. } => "Undone",
            ViolationKind::Cycle { .. } => "Cycle",
            ViolationKind::TooEarly { .. } => "TooEarly",
            ViolationKind::Incomplete { .. } => "Incomplete",
            ViolationKind::LineTooLow { .. } => "LineTooLow",
            ViolationKind::LineTooHigh { .. } => "LineTooHigh",
            ViolationKind::Deadlock { .. } => "Deadlock",
            ViolationKind::Recovering { .. } => "Recovering",
            ViolationKind::Unsettled { .. } => "Unsettled",
            ViolationKind::Endless { .. } => "Endless",
            ViolationKind::FreedTooMuch { .. } => "FreedTooMuch",
            ViolationKind::Freed { .. } => "Freed",
            ViolationKind::Retained { .. } => "Retained",
            ViolationKind::ClustersMeet { .. } => "ClustersMeet",
            ViolationKind::Unheard { .. } => "Unheard",
            ViolationKind::Unapplied { .. } => "Unapplied",
            ViolationKind::Grown { .. } => "Grown",
            ViolationKind::NoCheckpoint { .. } => "NoCheckpoint",
            ViolationKind::Refused { .. } => "Refused",
            ViolationKind::Impossible { .. } => "Impossible",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn singular_and_plural_are_distinguished() {
        let wait = |ranks: &[u32]| ViolationKind::Deadlock { ranks: ranks.to_vec() }.to_string();
        assert_eq!(wait(&[3]), "rank 3 waits for ever");
        assert_eq!(wait(&[0, 1, 4]), "ranks 0, 1 and 4 wait for ever");
        assert_eq!(
            ViolationKind::Recovering { nodes: vec![2, 3] }.to_string(),
            "nodes 2 and 3 are recovering for ever"
        );
        let kept = |records| ViolationKind::Retained { rank: 0, peer: 1, records, level: 0 }.to_string();
        assert_eq!(kept(1), "rank 0 keeps 1 message to 1, where 0 would do");
        assert_eq!(kept(2), "rank 0 keeps 2 messages to 1, where 0 would do");
    }
}
