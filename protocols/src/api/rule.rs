//! Rules by name: what drivers and commands know of a rule before a job runs under it.

use std::fmt;
use std::hash::{Hash, Hasher};

use counterfoil_ack_piggyback::AckPolicy;
use counterfoil_log_core::{Incarnation, Rank};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Coordinator, Properties, Protocol, ProtocolError};

/// Rule of recovery that the ranks of a job follow: a row of [`RULES`](crate::RULES), with the options of the job.
///
/// A program may make rows of its own. Rules are equal if name and options are.
///
/// ```
/// use counterfoil_protocols::api::Rule;
///
/// let rule = Rule::named("send-deterministic").ok_or("unknown")?;
/// assert!(rule.properties.rolls_back_survivors);
/// assert!(rule.with_clusters(2) != rule);
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy)]
pub struct Rule {
    /// Name on command lines and in reports.
    pub name: &'static str,
    /// Paper that it comes from.
    pub paper: &'static str,
    /// Summary for users: what is logged, what a failure costs, and the programs that it suits.
    pub summary: &'static str,
    /// Properties by which drivers distinguish rules.
    pub properties: Properties,
    /// Options that make a difference to it.
    pub takes: &'static [RuleOption],
    /// Values of the options; drivers ignore those that it doesn't take.
    pub options: RuleOptions,
    /// Makes the state machine of a rank that has done nothing.
    pub make_rank: &'static MakeRank,
    /// Makes the process apart from the ranks, if there is one.
    pub make_coordinator: Option<&'static MakeCoordinator>,
}

/// Maker of a rank's state machine. The incarnation is the number of times that the rank was replaced.
pub type MakeRank = dyn Fn(Rank, Incarnation, &RuleSettings) -> Result<Box<dyn Protocol>, ProtocolError> + Send + Sync;

/// Maker of a coordinator, or of the replacement of so many that were lost, which knows nothing of them.
pub type MakeCoordinator = dyn Fn(u32, &RuleSettings) -> Box<dyn Coordinator> + Send + Sync;

/// Settings of a job, from which its state machines are made.
#[derive(Clone, Copy, Debug)]
pub struct RuleSettings {
    /// Number of ranks.
    pub ranks: u32,
    /// Timing of acknowledgements.
    pub policy: AckPolicy,
    /// Distance in epochs between clusters: a cluster may be this many checkpoints ahead of the next; at least 2.
    pub cluster_gap: u32,
    /// Options of the rule.
    pub options: RuleOptions,
}

/// Option of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleOption {
    /// [`RuleOptions::clusters`].
    Clusters,
    /// [`RuleOptions::bits`].
    Bits,
    /// [`RuleOptions::moment`].
    Moment,
}

/// Values of the rules' options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RuleOptions {
    /// Number of clusters of neighbouring ranks, of nearly equal sizes; 0 is no division.
    pub clusters: u32,
    /// Transport of the two bits of a collective call.
    pub bits: Bits,
    /// Moment of a checkpoint that is asked for.
    pub moment: Moment,
}

impl RuleSettings {
    /// Returns the settings of jobs: default acknowledgements, and clusters 8 epochs apart.
    pub fn new(ranks: u32, options: RuleOptions) -> RuleSettings {
        RuleSettings { ranks, policy: AckPolicy::default(), cluster_gap: 8, options }
    }
}

impl RuleOptions {
    /// The defaults: no clusters, bits exchanged, checkpoints at any time.
    pub const DEFAULT: RuleOptions = RuleOptions { clusters: 0, bits: Bits::Exchanged, moment: Moment::AnyTime };
}

/// Transport of colour and amLogging to the participants of a collective call that get data (C3, section 5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Bits {
    /// An exchange of their own before the call.
    #[default]
    Exchanged,
    /// On the data of the call.
    Piggybacked,
}

impl Bits {
    /// All values.
    pub const ALL: [Bits; 2] = [Bits::Exchanged, Bits::Piggybacked];

    /// Returns the name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Bits::Exchanged => "exchanged",
            Bits::Piggybacked => "piggybacked",
        }
    }
}

/// Moment at which a rank takes the checkpoint that it was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Moment {
    /// The next moment at which the driver can take one, even while the program waits.
    #[default]
    AnyTime,
    /// The next place where the program offers one: *potentialCheckpoint* (C3, Figure 3).
    Offered,
}

impl Moment {
    /// All values.
    pub const ALL: [Moment; 2] = [Moment::AnyTime, Moment::Offered];

    /// Returns the name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Moment::AnyTime => "any-time",
            Moment::Offered => "offered",
        }
    }
}

impl Rule {
    /// Returns the rule of this name, with the default options.
    pub fn named(name: &str) -> Option<Rule> {
        crate::RULES.into_iter().find(|rule| rule.name == name)
    }

    /// Returns the rule with the ranks divided into so many clusters.
    #[must_use]
    pub const fn with_clusters(mut self, clusters: u32) -> Rule {
        self.options.clusters = clusters;
        self
    }

    /// Returns the rule with another transport of a call's bits.
    #[must_use]
    pub const fn with_bits(mut self, bits: Bits) -> Rule {
        self.options.bits = bits;
        self
    }

    /// Returns the rule with another moment of checkpoints.
    #[must_use]
    pub const fn with_moment(mut self, moment: Moment) -> Rule {
        self.options.moment = moment;
        self
    }

    /// Makes the state machine of a rank in a job of `ranks` ranks. `incarnation`: number of times that it was
    /// replaced.
    ///
    /// # Errors
    /// [`ProtocolError`] for settings that the rule refuses.
    pub fn protocol(&self, rank: u32, ranks: u32, incarnation: u32) -> Result<Box<dyn Protocol>, ProtocolError> {
        (self.make_rank)(Rank(rank), Incarnation(incarnation), &RuleSettings::new(ranks, self.options))
    }

    /// Makes the process apart from the ranks; `None` if the rule has none. `replaced`: number of earlier ones, which
    /// were lost.
    pub fn coordinator(&self, ranks: u32, replaced: u32) -> Option<Box<dyn Coordinator>> {
        self.make_coordinator.map(|make| make(replaced, &RuleSettings::new(ranks, self.options)))
    }

    /// Returns `true` if the option makes a difference.
    pub fn takes(&self, option: RuleOption) -> bool {
        self.takes.contains(&option)
    }
}

/// The first of [`RULES`](crate::RULES).
impl Default for Rule {
    fn default() -> Rule {
        crate::RULES[0]
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        for option in self.takes {
            match option {
                RuleOption::Clusters => write!(f, " clusters={}", self.options.clusters)?,
                RuleOption::Bits => write!(f, " bits={}", self.options.bits.name())?,
                RuleOption::Moment => write!(f, " moment={}", self.options.moment.name())?,
            }
        }
        Ok(())
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Rule) -> bool {
        (self.name, self.options) == (other.name, other.options)
    }
}

impl Eq for Rule {}

impl Hash for Rule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.name, self.options).hash(state);
    }
}

/// Writes name and options.
impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.name, self.options).serialize(serializer)
    }
}

/// Finds the rule by its name: it has to be one of [`RULES`](crate::RULES).
impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rule, D::Error> {
        let (name, options) = <(String, RuleOptions)>::deserialize(deserializer)?;
        let rule = Rule::named(&name).ok_or_else(|| D::Error::custom(format_args!("no rule has the name {name:?}")))?;
        Ok(Rule { options, ..rule })
    }
}
