//! Properties of a rule, by which its drivers differ.

/// What a driver has to know about a rule, whatever its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Part of a lost execution that its replacement repeats.
    pub repeats: Repetition,
    /// Records that senders keep.
    pub keeps: Kept,
    /// A recovery also rolls back ranks that are alive ([`Effect::RollBack`](super::Effect::RollBack)). Then a rank
    /// keeps its checkpoints until [`Effect::KeepCheckpoints`](super::Effect::KeepCheckpoints); under other rules, each
    /// durable checkpoint replaces the one before.
    pub rolls_back_survivors: bool,
    /// After the loss of a rank all others save their state and exit
    /// ([`Effect::SaveAndExit`](super::Effect::SaveAndExit)), and the whole job is started again. Only for programs
    /// that rebuild what was lost.
    pub restarts_job: bool,
    /// Then the states of the ranks are in memory that outlives their processes: no rank saves anything, and one is
    /// lost only if it was changing its state when it was killed.
    pub keeps_states_in_memory: bool,
    /// There is a process apart from the ranks: a [`Coordinator`](super::Coordinator).
    pub has_coordinator: bool,
    /// The coordinator acts when a driver [asks it to](super::Coordinator::begin_collection): it collects, or begins a
    /// line of checkpoints.
    pub collects: bool,
    /// Collective calls that the rule plans as a whole.
    pub native_collectives: NativeCollectives,
    /// Programs have to be send-deterministic: what a rank sends doesn't depend on the order of its receives.
    pub needs_send_determinism: bool,
    /// Messages of one channel may be presented out of order, as where a driver presents them when the application
    /// takes them.
    pub allows_overtaking: bool,
    /// Frames of an older connection may arrive after a newer one is made, until its Hello was handled; the interface
    /// rules it out for others.
    pub allows_late_frames: bool,
    /// The rule distinguishes checkpoints that are due by the clock of each rank
    /// ([`wants_due_checkpoint`](super::Protocol::wants_due_checkpoint)), and may be refused those that it asks for.
    pub knows_due_checkpoints: bool,
}

impl Properties {
    /// Properties that most rules have in common: the sender logs, each killed rank is replaced alone, and collectives
    /// are messages.
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

    /// Properties that rules have in common which take all ranks back to a line of checkpoints, and keep no records.
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

/// Collective calls that a rule plans as a whole ([`CollectivePlan`](super::CollectivePlan)); others run as messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeCollectives {
    /// None.
    None,
    /// Those whose result is the same at every rank ([`CollectiveCall::uniform`](super::CollectiveCall::uniform)).
    Uniform,
    /// All.
    All,
}

/// Part of its predecessor's execution that a replacement repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// Nothing: peers may roll back too, and messages may be sent anew.
    Nothing,
    /// Its sends: destinations, order and bytes.
    Sends,
    /// Its sends, and the order in which it receives. The outcome of each receive follows from that order and is no
    /// choice.
    SendsAndReceives,
}

/// Records that senders keep for a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All, for ever.
    All,
    /// All that no durable checkpoint of the receiver covers. A replay has no gap.
    UntilCovered,
    /// Of these, only the logged ones once they are acknowledged; the sender rolls back with the receiver of others. A
    /// replay skips those.
    Logged,
    /// None: a record is gone once it was transmitted ([`Outgoing::keep_record`](super::Outgoing::keep_record) is
    /// `false` for every message).
    Nothing,
}
