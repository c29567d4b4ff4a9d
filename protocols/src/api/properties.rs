//! Rule properties, by which drivers differ.

/// State-independent facts about a rule for its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Part of a lost execution repeated by its replacement.
    pub repeats: Repetition,
    /// Records kept by senders.
    pub keeps: Kept,
    /// A recovery also rolls back live ranks ([`Effect::RollBack`](super::Effect::RollBack)). Then a rank keeps its
    /// checkpoints until [`Effect::KeepCheckpoints`](super::Effect::KeepCheckpoints); under other rules, each durable
    /// checkpoint replaces the one before.
    pub rolls_back_survivors: bool,
    /// After the loss of a rank all others save their state and exit
    /// ([`Effect::SaveAndExit`](super::Effect::SaveAndExit)), and the whole job is started again. Only for programs
    /// that rebuild lost state.
    pub restarts_job: bool,
    /// Then rank states are in memory outliving the processes: no rank saves anything, and one is lost only if it was
    /// changing its state when killed.
    pub keeps_states_in_memory: bool,
    /// There is a process apart from the ranks: a [`Coordinator`](super::Coordinator).
    pub has_coordinator: bool,
    /// The coordinator acts when a driver [asks it to](super::Coordinator::begin_collection): it collects, or begins a
    /// line of checkpoints.
    pub collects: bool,
    /// Collective calls planned as a whole by the rule.
    pub native_collectives: NativeCollectives,
    /// Programs have to be send-deterministic: a rank's sends don't depend on the order of its receives.
    pub needs_send_determinism: bool,
    /// Messages on one channel may be presented out of order, as where a driver presents them when the application
    /// takes them.
    pub allows_overtaking: bool,
    /// Frames from an older connection may arrive after a newer one is made, until its Hello was handled; the interface
    /// rules it out for others.
    pub allows_late_frames: bool,
    /// The rule distinguishes checkpoints due by each rank's clock
    /// ([`wants_due_checkpoint`](super::Protocol::wants_due_checkpoint)), and may be refused requested ones.
    pub knows_due_checkpoints: bool,
}

impl Properties {
    /// Properties common to most rules: the sender logs, each killed rank is replaced alone, and collectives are
    /// messages.
    pub const LOGGED_BY_SENDERS: Properties = Properties {
        repeats: Repetition::Sends,
        keeps: Kept::UntilCovered,
        rolls_back_survivors: false,
        restarts_job: false,
        keeps_states_in_memory: false,
        has_coordinator: false,
        collects: false,
        native_collectives: NativeCollectives::None,
        needs_send_determinism: false,
        allows_overtaking: false,
        allows_late_frames: false,
        knows_due_checkpoints: false,
    };

    /// Properties common to rules that take all ranks back to a checkpoint line, and keep no records.
    pub const LINES_OF_ALL: Properties = Properties {
        repeats: Repetition::Nothing,
        keeps: Kept::Nothing,
        rolls_back_survivors: true,
        has_coordinator: true,
        native_collectives: NativeCollectives::All,
        ..Properties::LOGGED_BY_SENDERS
    };

    /// Returns `true` if a job of any program survives the death of a rank.
    pub const fn recovers(&self) -> bool {
        self.rolls_back_survivors || !matches!(self.keeps, Kept::Nothing)
    }

    /// Returns `true` if the ranks take checkpoints only when the coordinator begins a line.
    pub const fn checkpoints_when_asked(&self) -> bool {
        self.collects && matches!(self.keeps, Kept::Nothing)
    }
}

/// Collective calls planned as a whole by a rule ([`CollectivePlan`](super::CollectivePlan)); others run as messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeCollectives {
    /// None.
    None,
    /// Calls with the same result at every rank ([`CollectiveCall::uniform`](super::CollectiveCall::uniform)).
    Uniform,
    /// All.
    All,
}

/// Part of the predecessor's execution repeated by a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// Nothing: peers may roll back too, and messages may be sent anew.
    Nothing,
    /// Its sends: destinations, order and bytes.
    Sends,
    /// Its sends, and its receive order. The outcome of each receive follows from this order and is no choice.
    SendsAndReceives,
}

/// Records kept by senders for a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All, for ever.
    All,
    /// All records not covered by a durable checkpoint of the receiver. A replay has no gap.
    UntilCovered,
    /// Like `UntilCovered`, but once acknowledged only the logged ones; for others, the sender rolls back with the
    /// receiver. A replay skips those.
    Logged,
    /// None: a record is gone once it was transmitted ([`Outgoing::keep_record`](super::Outgoing::keep_record) is
    /// `false` for every message).
    Nothing,
}
