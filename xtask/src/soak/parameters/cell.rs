//! Cells of the matrix of kills.

use super::{Call, Pattern, Workload};

/// Cell of the matrix of kills; the other parameters of a run are random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::soak) struct Cell {
    pub(super) workload: Workload,
    pub(super) rule: RuleName,
    pub(super) pattern: Pattern,
}

/// Recovery protocol, without its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleName {
    SenderBased,
    Pessimistic,
    SendDeterministic,
    UserLevel,
    Coordinated,
    EventLogging,
    MessageTagging,
}

pub(super) const PATTERNS: [Pattern; 10] = [
    Pattern::OneRank,
    Pattern::SameRankAgain,
    Pattern::TwoAtOnce,
    Pattern::DuringRepair,
    Pattern::DuringRecovery,
    Pattern::InCall(Call::Send),
    Pattern::InCall(Call::Receive),
    Pattern::InCall(Call::Collective),
    Pattern::InCall(Call::Checkpoint),
    Pattern::PowerCut,
];
pub(super) const RULES: [RuleName; 7] = [
    RuleName::SenderBased,
    RuleName::Pessimistic,
    RuleName::SendDeterministic,
    RuleName::UserLevel,
    RuleName::Coordinated,
    RuleName::EventLogging,
    RuleName::MessageTagging,
];
pub(super) const WORKLOADS: [Workload; 9] = [
    Workload::Ring,
    Workload::Cg,
    Workload::MasterWorker,
    Workload::Ft,
    Workload::Laplace,
    Workload::Gauss,
    Workload::Neurons,
    Workload::Matmul,
    Workload::Disks,
];
/// Distance of successive cells; coprime to their number.
const STRIDE: usize = 101;

impl Cell {
    /// Returns the cells of a protocol, or of all.
    pub(in crate::soak) fn of(protocol: Option<&str>) -> Vec<Self> {
        let is_wanted = |cell: &Self| protocol.is_none_or(|protocol| protocol == cell.rule.name());
        Self::all().into_iter().filter(is_wanted).collect()
    }

    /// Returns the cells in an order in which every few successive ones have several workloads, rules and patterns.
    pub(in crate::soak) fn all() -> Vec<Self> {
        let mut cells = Vec::new();
        for pattern in PATTERNS {
            for workload in WORKLOADS {
                for rule in RULES {
                    let is_impossible = (rule == RuleName::SendDeterministic && !workload.is_send_deterministic())
                        || matches!(pattern, Pattern::InCall(call) if !workload.makes(call));
                    if !is_impossible {
                        cells.push(Self { workload, rule, pattern });
                    }
                }
            }
        }
        (0..cells.len()).map(|at| cells[at * STRIDE % cells.len()]).collect()
    }
}

impl RuleName {
    /// Returns the name in command lines and tables.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::SenderBased => "sender-based",
            Self::Pessimistic => "pessimistic",
            Self::SendDeterministic => "send-deterministic",
            Self::UserLevel => "user-level",
            Self::Coordinated => "coordinated",
            Self::EventLogging => "event-logging",
            Self::MessageTagging => "message-tagging",
        }
    }
}

/// Returns the names of all protocols.
pub(in crate::soak) fn protocols() -> Vec<&'static str> {
    RULES.map(RuleName::name).to_vec()
}
