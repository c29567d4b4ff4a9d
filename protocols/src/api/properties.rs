//! Properties of a rule, by which its drivers differ.

/// What a driver has to know about a rule, whatever its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Part of a lost execution that its replacement repeats.
    pub repeats: Repetition,
    /// Records that senders keep.
    pub keeps: Kept,
    /// A recovery also rolls back ranks that are alive ([`Effect::RollBack`](super::Effect::RollBack)). Then a rank keeps its checkpoints until
    /// [`Effect::KeepCheckpoints`](super::Effect::KeepCheckpoints); under other rules, each durable checkpoint replaces the one before.
    pub rolls_back_survivors: bool,
    /// There is a process apart from the ranks: a [`Coordinator`](super::Coordinator).
    pub has_coordinator: bool,
}

/// Part of its predecessor's execution that a replacement repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// Nothing: peers may roll back too, and messages may be sent anew.
    Nothing,
    /// Its sends: destinations, order and bytes.
    Sends,
    /// Its sends, and the order in which it receives. The outcome of each receive follows from that order and is no choice.
    SendsAndReceives,
}

/// Records that senders keep for a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All, for ever.
    All,
    /// All that no durable checkpoint of the receiver covers. A replay has no gap.
    UntilCovered,
    /// Of these, only the logged ones once they are acknowledged; the sender rolls back with the receiver of others. A replay skips those.
    Logged,
    /// None: a record is gone once it was transmitted ([`Outgoing::keep_record`](super::Outgoing::keep_record) is `false` for every message).
    Nothing,
}
