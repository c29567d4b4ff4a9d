//! What an oracle finds wrong.

use serde::Serialize;
use thiserror::Error;

/// Something that must not happen, and when it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Error)]
#[error("event {event}: {wrong}")]
pub struct Violation {
    /// The number of the event, from 0.
    pub event: u64,
    /// What is wrong.
    #[source]
    pub wrong: Wrong,
}

/// What must not happen. Ranks are numbers from 0; the number after the last is the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Error)]
#[non_exhaustive]
pub enum Wrong {
    /// A send has another number, or other bytes, than without failures.
    #[error("rank {rank} sends message {number} to {to}, which differs from that of a run without failures")]
    Send {
        /// Who sends.
        rank: u32,
        /// To whom.
        to: u32,
        /// Its number on the channel.
        number: u64,
    },
    /// A log that survived its process has other bytes under a number than the execution that repeats it.
    #[error("rank {rank} repeats message {number} to {to} with other bytes")]
    Repeat {
        /// Who sends.
        rank: u32,
        /// To whom.
        to: u32,
        /// Its number on the channel.
        number: u64,
    },
    /// A replacement sends something else than its predecessor had sent at that place: another message, to somebody else, or
    /// other bytes.
    #[error("rank {rank} sends message {number} to {to}, where its predecessor had sent something else")]
    Diverged {
        /// Who sends.
        rank: u32,
        /// To whom.
        to: u32,
        /// Its number on the channel.
        number: u64,
    },
    /// A replacement receives in another order than its predecessor, under a rule that repeats the order.
    #[error("rank {rank} receives message {number} of {from}, where its predecessor had received another one")]
    OtherOrder {
        /// Who receives.
        rank: u32,
        /// From whom.
        from: u32,
        /// Its number on the channel.
        number: u64,
    },
    /// A message is let in that was let in before, by the same execution.
    #[error("rank {rank} receives message {number} of {from} twice")]
    Duplicate {
        /// Who receives.
        rank: u32,
        /// From whom.
        from: u32,
        /// Its number on the channel.
        number: u64,
    },
    /// A message is taken out of turn, or with bytes that it never had.
    #[error("rank {rank} takes message {number} of {from}, which is damaged or not the next with tag {tag}")]
    Take {
        /// Who takes it.
        rank: u32,
        /// From whom.
        from: u32,
        /// The tag.
        tag: i32,
        /// Its number on the channel.
        number: u64,
    },
    /// At the end, a message was taken that no execution of its sender that counts has sent so.
    #[error("rank {rank} has taken message {number} of {from} from an execution that is undone")]
    Undone {
        /// Who took it.
        rank: u32,
        /// From whom.
        from: u32,
        /// Its number on the channel.
        number: u64,
    },
    /// At the end, no order of all that counts has every message sent before it is taken; or, in a recovery, a message was sent
    /// again that depends on its own receipt.
    #[error("what rank {rank} did, up to its operation {operation}, is before itself")]
    Cycle {
        /// A rank on the cycle.
        rank: u32,
        /// Where it can't go on, counting what it sent, received and took.
        operation: u64,
    },
    /// In a recovery, a rank goes on with what depends on an orphan: a message that counts as received, and that its sender, who
    /// went back, has yet to send again.
    #[error(
        "rank {rank} goes on too early: it depends on message {number} of {from} to {to}, which is yet to be sent again"
    )]
    TooEarly {
        /// Who goes on.
        rank: u32,
        /// Who has to send the orphan again.
        from: u32,
        /// Who has received it.
        to: u32,
        /// Its number on the channel.
        number: u64,
    },
    /// At the end, not everything that was to be sent was sent, received and taken once.
    #[error("of {} from {from} to {to}: {sent} sent, {received} received, {taken} taken", messages(*expected))]
    Incomplete {
        /// The sender.
        from: u32,
        /// The receiver.
        to: u32,
        /// How many there are without failures.
        expected: u64,
        /// How many were sent.
        sent: u64,
        /// How many were received.
        received: u64,
        /// How many were taken.
        taken: u64,
    },
    /// A recovery line takes a rank further back than it must.
    #[error("the recovery line takes rank {rank} back to epoch {epoch}, where {enough:?} is enough")]
    LineTooLow {
        /// Which.
        rank: u32,
        /// To where.
        epoch: u32,
        /// To where it must; `None`: it could stay.
        enough: Option<u32>,
    },
    /// A recovery line leaves a rank where it lacks a message that nobody sends again.
    #[error(
        "where the recovery line leaves it, rank {rank} lacks message {number} of {from}, which is neither logged nor sent again"
    )]
    LineTooHigh {
        /// Who lacks it.
        rank: u32,
        /// Who has sent it.
        from: u32,
        /// Its number on the channel.
        number: u64,
    },
    /// Nothing can happen any more, and these ranks are not at the end of their programs.
    #[error("{} for ever", waiting(ranks))]
    Deadlock {
        /// Who waits.
        ranks: Vec<u32>,
    },
    /// Nothing can happen any more, and these nodes are still recovering.
    #[error("{} recovering for ever", going_on(nodes))]
    Recovering {
        /// Which.
        nodes: Vec<u32>,
    },
    /// The run doesn't end.
    #[error("the run doesn't end within {events} events")]
    Endless {
        /// The limit.
        events: u64,
    },
    /// Records are freed that a checkpoint which can still be restored lacks.
    #[error("rank {rank} frees messages to {peer} up to {upto}, but only {covered} are covered")]
    FreedTooMuch {
        /// Whose log.
        rank: u32,
        /// The receiver.
        peer: u32,
        /// The last that is freed.
        upto: u64,
        /// The last that may be.
        covered: u64,
    },
    /// A replay asks for a record that was freed.
    #[error("rank {rank} is to transmit message {number} to {peer}, which was freed")]
    Freed {
        /// Whose log.
        rank: u32,
        /// The receiver.
        peer: u32,
        /// The first that is missing.
        number: u64,
    },
    /// At the end, a lane holds more than a run without failures would leave in it.
    #[error("rank {rank} keeps {} to {peer}, where {level} would do", messages(*records))]
    Retained {
        /// Whose log.
        rank: u32,
        /// The receiver.
        peer: u32,
        /// How many it holds.
        records: u64,
        /// How many it may hold.
        level: u64,
    },
    /// At the end, a table is larger than what is live makes necessary: it would grow for ever.
    #[error("rank {rank} has {rows} in {table} about {peer}, where {live} would do")]
    Grown {
        /// Whose table.
        rank: u32,
        /// About whom.
        peer: u32,
        /// Which: SPE, NonAck or RPP.
        table: &'static str,
        /// How many rows, or messages, it has.
        rows: u64,
        /// How many it may have.
        live: u64,
    },
    /// At the end, a sender doesn't know that what it sent in an epoch went from the past to the future.
    #[error("rank {rank} never hears that message {number} to {peer} was received in a later epoch")]
    Unheard {
        /// The sender.
        rank: u32,
        /// The receiver.
        peer: u32,
        /// Its number on the channel: the first of those of its epoch.
        number: u64,
    },
    /// A checkpoint is restored that isn't durable, or was discarded.
    #[error("rank {rank} goes back to the checkpoint of epoch {epoch}, which there isn't")]
    NoCheckpoint {
        /// Whose.
        rank: u32,
        /// The epoch that it began.
        epoch: u32,
    },
    /// The protocol refuses an event, though all parties keep the rules.
    #[error("node {node} refuses an event: {why}")]
    Refused {
        /// Whose state machine.
        node: u32,
        /// In its words.
        why: String,
    },
    /// The protocol asks for what the simulator can't do, or for what makes no sense.
    #[error("node {node} asks for the impossible: {what}")]
    Impossible {
        /// Whose state machine.
        node: u32,
        /// What it asks for.
        what: String,
    },
}

/// `1 message`, `2 messages`.
fn messages(number: u64) -> String {
    format!("{number} {}", if number == 1 { "message" } else { "messages" })
}

/// `0`, `0 and 2`, `0, 1 and 2`.
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

impl Wrong {
    /// What kind it is: the variant's name.
    pub fn name(&self) -> &'static str {
        match self {
            Wrong::Send { .. } => "Send",
            Wrong::Repeat { .. } => "Repeat",
            Wrong::Diverged { .. } => "Diverged",
            Wrong::OtherOrder { .. } => "OtherOrder",
            Wrong::Duplicate { .. } => "Duplicate",
            Wrong::Take { .. } => "Take",
            Wrong::Undone { .. } => "Undone",
            Wrong::Cycle { .. } => "Cycle",
            Wrong::TooEarly { .. } => "TooEarly",
            Wrong::Incomplete { .. } => "Incomplete",
            Wrong::LineTooLow { .. } => "LineTooLow",
            Wrong::LineTooHigh { .. } => "LineTooHigh",
            Wrong::Deadlock { .. } => "Deadlock",
            Wrong::Recovering { .. } => "Recovering",
            Wrong::Endless { .. } => "Endless",
            Wrong::FreedTooMuch { .. } => "FreedTooMuch",
            Wrong::Freed { .. } => "Freed",
            Wrong::Retained { .. } => "Retained",
            Wrong::Unheard { .. } => "Unheard",
            Wrong::Grown { .. } => "Grown",
            Wrong::NoCheckpoint { .. } => "NoCheckpoint",
            Wrong::Refused { .. } => "Refused",
            Wrong::Impossible { .. } => "Impossible",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_said_as_several() {
        let wait = |ranks: &[u32]| Wrong::Deadlock { ranks: ranks.to_vec() }.to_string();
        assert_eq!(wait(&[3]), "rank 3 waits for ever");
        assert_eq!(wait(&[0, 1, 4]), "ranks 0, 1 and 4 wait for ever");
        assert_eq!(Wrong::Recovering { nodes: vec![2, 3] }.to_string(), "nodes 2 and 3 are recovering for ever");
        let kept = |records| Wrong::Retained { rank: 0, peer: 1, records, level: 0 }.to_string();
        assert_eq!(kept(1), "rank 0 keeps 1 message to 1, where 0 would do");
        assert_eq!(kept(2), "rank 0 keeps 2 messages to 1, where 0 would do");
    }
}
