//! The papers' rules under the simulator.

/// Implements [`SimRule`](super::SimRule) for the rules of a crate: of `counterfoil_protocols`, or of `counterfoil_canaries`, where mistakes can
/// be planted.
macro_rules! rules {
    ($protocols:ident) => {
        use std::marker::PhantomData;

        use counterfoil_canaries::Rule;
        use counterfoil_log_core::{Incarnation, Rank};
        use counterfoil_protocols::api::{Coordinator as _, Properties};
        use $protocols::chandy_lamport::{self, ChandyLamport, Identification, LineCoordinator};
        use $protocols::coordinated::{self, Bits, Initiator, Moment};
        use $protocols::event_logging::EventLogs;
        use $protocols::message_tagging::Tags;
        use $protocols::send_deterministic::{self, Clusters, ClustersError, RecoveryProcess, SendDeterministic};
        use $protocols::{pessimistic, sender_based, user_level};

        use crate::program::Pattern;
        use crate::rule::{CLUSTER_GAP, NoCoordinator, POLICY, ProcessSettings, Refusal, SimRule, TableSizes, planted};
        use crate::schedule::Canary;

        /// The [pessimistic rule](pessimistic). It isn't asked which message a receive takes, so programs need not name that.
        #[derive(Debug)]
        pub struct Pessimistic;

        impl SimRule for Pessimistic {
            type Planted = planted::Pessimistic;
            type Rank = pessimistic::Pessimistic;
            type Coordinator = NoCoordinator;

            const RULE: Option<Rule> = Some(Rule::Pessimistic);
            const PROPERTIES: Properties = pessimistic::Pessimistic::PROPERTIES;

            /// Returns `false` for mistakes about outcomes: the recorded order determines what a receive takes, so none is
            /// asked for or recorded.
            fn is_affected_by(canary: Canary) -> bool {
                canary != Canary::ForgetChoices && canary.can_be_of(Self::RULE)
            }

            fn rank(rank: Rank, settings: &ProcessSettings) -> Result<Self::Rank, Refusal> {
                Ok(pessimistic::Pessimistic::new(core(rank, settings))?)
            }
        }

        /// The [send-deterministic rule](send_deterministic), with its recovery process as the coordinator.
        #[derive(Debug)]
        pub struct SendDet;

        impl SimRule for SendDet {
            type Planted = planted::SendDet;
            type Rank = SendDeterministic;
            type Coordinator = RecoveryProcess;

            const RULE: Option<Rule> = Some(Rule::SendDeterministic);
            const PROPERTIES: Properties = SendDeterministic::PROPERTIES;
            const LATE: bool = true;

            /// Returns `false` for mistakes about outcomes, which aren't recorded, and about frames that a dead incarnation has
            /// left under way, which end with its connection (but with [`Schedule::late`](crate::Schedule::late)).
            fn is_affected_by(canary: Canary) -> bool {
                !matches!(canary, Canary::ForgetChoices | Canary::DeliverDead) && canary.can_be_of(Self::RULE)
            }

            fn rank(rank: Rank, settings: &ProcessSettings) -> Result<Self::Rank, Refusal> {
                let config = send_deterministic::Config::new(rank, settings.ranks);
                let (first_epoch, ceiling) = clusters(settings)?
                    .map_or((config.first_epoch, config.ceiling), |clusters| clusters.epochs_of(rank));
                let incarnation = settings.incarnation;
                let config = send_deterministic::Config { incarnation, policy: POLICY, first_epoch, ceiling, ..config };
                Ok(SendDeterministic::new(config)?)
            }

            fn coordinator(settings: &ProcessSettings) -> Result<RecoveryProcess, Refusal> {
                let (ranks, clusters) = (settings.ranks, clusters(settings)?);
                Ok(match settings.incarnation {
                    Incarnation(0) => RecoveryProcess::new(ranks, clusters),
                    Incarnation(incarnation) => RecoveryProcess::replacement(ranks, clusters, incarnation),
                })
            }

            fn table_sizes(rank: &SendDeterministic, peer: Rank) -> Option<TableSizes> {
                let sizes = rank.table_sizes().find(|sizes| sizes.peer == peer)?;
                Some(TableSizes {
                    spe: sizes.spe as u64,
                    unacknowledged: sizes.unacknowledged,
                    rpp: sizes.rpp as u64,
                    receive_epochs: sizes.receive_epochs as u64,
                })
            }

            fn reported_round(rank: &SendDeterministic) -> Option<u64> {
                rank.reported_round()
            }
        }

        /// The [user-level rule](user_level).
        #[derive(Debug)]
        pub struct UserLevel;

        impl SimRule for UserLevel {
            type Planted = planted::UserLevel;
            type Rank = user_level::UserLevel;
            type Coordinator = NoCoordinator;

            const RULE: Option<Rule> = Some(Rule::UserLevel);
            const PROPERTIES: Properties = user_level::UserLevel::PROPERTIES;
            const OVERTAKING: bool = true;

            fn patterns() -> Vec<Pattern> {
                Pattern::ALL.into_iter().chain(Pattern::ALL.map(|_| Pattern::Calls)).collect()
            }

            fn rank(rank: Rank, settings: &ProcessSettings) -> Result<Self::Rank, Refusal> {
                Ok(user_level::UserLevel::new(core(rank, settings))?)
            }
        }

        /// Returns the configuration of the core that two rules build on.
        fn core(rank: Rank, settings: &ProcessSettings) -> sender_based::Config {
            let ProcessSettings { ranks, incarnation, .. } = *settings;
            sender_based::Config { rank, ranks, incarnation, policy: POLICY }
        }

        fn clusters(settings: &ProcessSettings) -> Result<Option<Clusters>, ClustersError> {
            (settings.clusters > 0)
                .then(|| Clusters::contiguous(settings.ranks, settings.clusters, CLUSTER_GAP))
                .transpose()
        }

        /// Message identification, and the rule that it is of.
        pub trait LineRule: Identification {
            /// The same, where mistakes can be planted.
            type Planted: planted::LineRule;

            /// The rule.
            const RULE: Rule;
        }

        impl LineRule for EventLogs {
            type Planted = counterfoil_canaries::event_logging::EventLogs;
            const RULE: Rule = Rule::EventLogging;
        }

        impl LineRule for Tags {
            type Planted = counterfoil_canaries::message_tagging::Tags;
            const RULE: Rule = Rule::MessageTagging;
        }

        /// A rule of the [frame after Chandy and Lamport](chandy_lamport), with the coordinator of its lines.
        #[derive(Debug)]
        pub struct Lines<I>(PhantomData<I>);

        impl<I: LineRule> SimRule for Lines<I> {
            type Planted = planted::Lines<I::Planted>;
            type Rank = ChandyLamport<I>;
            type Coordinator = LineCoordinator;

            const RULE: Option<Rule> = Some(I::RULE);
            const PROPERTIES: Properties = ChandyLamport::<I>::PROPERTIES;
            const COLLECTS: bool = false;
            const CLOCKS: bool = true;

            fn patterns() -> Vec<Pattern> {
                Pattern::ALL.into_iter().chain(Pattern::OF_CALLS).collect()
            }

            /// Returns `false` for mistakes about records, which are neither kept nor replayed.
            fn is_affected_by(canary: Canary) -> bool {
                let of_records =
                    [Canary::DropRecord, Canary::ForgetLog, Canary::FreeOneMore, Canary::SkipOne, Canary::FreeNothing];
                !of_records.contains(&canary) && canary.can_be_of(Self::RULE)
            }

            fn rank(rank: Rank, settings: &ProcessSettings) -> Result<ChandyLamport<I>, Refusal> {
                let ProcessSettings { ranks, incarnation, .. } = *settings;
                Ok(ChandyLamport::new(chandy_lamport::Config { rank, ranks, incarnation })?)
            }

            fn coordinator(settings: &ProcessSettings) -> Result<LineCoordinator, Refusal> {
                Ok(LineCoordinator::new(settings.ranks, settings.incarnation.0))
            }
        }

        /// The [coordinated rule](coordinated), with its initiator as the coordinator, for each moment of checkpoints and both ways of a call's bits.
        /// With `ANY_TIME`, every line that is begun has to be committed, or undone.
        #[derive(Debug)]
        pub struct Coordinated<const ANY_TIME: bool, const PIGGYBACKED: bool>;

        impl<const ANY_TIME: bool, const PIGGYBACKED: bool> SimRule for Coordinated<ANY_TIME, PIGGYBACKED> {
            type Planted = planted::Coordinated<ANY_TIME, PIGGYBACKED>;
            type Rank = coordinated::Coordinated;
            type Coordinator = Initiator;

            const RULE: Option<Rule> = Some(Rule::Coordinated);
            const PROPERTIES: Properties = coordinated::Coordinated::PROPERTIES;
            const OVERTAKING: bool = true;

            fn patterns() -> Vec<Pattern> {
                Pattern::ALL.into_iter().chain(Pattern::OF_CALLS).collect()
            }

            /// Returns `false` for mistakes about records of senders, which aren't kept, about outcomes, which the rule keeps in a log of its own, and
            /// about duplicates and messages of dead processes: a rank executes only after the Hellos of all peers, and nothing is sent twice.
            fn is_affected_by(canary: Canary) -> bool {
                let of_the_log =
                    canary.is_of_a_rule() || [Canary::ForgetPending, Canary::DurableEarly].contains(&canary);
                of_the_log && canary.can_be_of(Self::RULE)
            }

            fn rank(rank: Rank, settings: &ProcessSettings) -> Result<Self::Rank, Refusal> {
                let ProcessSettings { ranks, incarnation, .. } = *settings;
                let moment = if ANY_TIME { Moment::AnyTime } else { Moment::Offered };
                let bits = if PIGGYBACKED { Bits::Piggybacked } else { Bits::Exchanged };
                Ok(coordinated::Coordinated::new(coordinated::Config { rank, ranks, incarnation, moment, bits })?)
            }

            fn coordinator(settings: &ProcessSettings) -> Result<Initiator, Refusal> {
                Ok(Initiator::new(settings.ranks, settings.incarnation.0))
            }

            fn phase_of_line(rank: &Self::Rank) -> u32 {
                rank.phase_of_line()
            }

            fn waits_for(initiator: &Initiator) -> Option<String> {
                let (epoch, ranks) = initiator.open_line().filter(|_| ANY_TIME && !initiator.is_recovering())?;
                Some(format!("the line that begins {epoch}, for {ranks:?}"))
            }
        }
    };
}
pub(super) use rules;
