//! Rules by name: what drivers and commands know about a rule before a job runs under it.

use std::fmt;
use std::hash::{Hash, Hasher};

use counterfoil_ack_piggyback::AckPolicy;
use counterfoil_log_core::{Incarnation, Rank};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Coordinator, Properties, Protocol, ProtocolError};

/// Recovery rule for the ranks of a job: a row of [`RULES`](crate::RULES), with the options of the job.
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
    /// Source paper.
    pub paper: &'static str,
    /// Summary for users: what is logged, what a failure costs, and suitable programs.
    pub summary: &'static str,
    /// Properties distinguishing rules for drivers.
    pub properties: Properties,
    /// Options with an effect on it.
    pub takes: &'static [RuleOption],
    /// Option values; drivers ignore options it doesn't take.
    pub options: RuleOptions,
    /// Makes the initial state machine of a rank.
    pub make_rank: &'static MakeRank,
    /// Makes the process apart from the ranks, if there is one.
    pub make_coordinator: Option<&'static MakeCoordinator>,
}

/// Maker of rank state machines.
///
/// The incarnation is the replacement count of the rank.
pub type MakeRank = dyn Fn(Rank, Incarnation, &RuleSettings) -> Result<Box<dyn Protocol>, ProtocolError> + Send + Sync;

/// Maker of a coordinator, or of a replacement after this many lost ones, without knowledge of them.
pub type MakeCoordinator = dyn Fn(u32, &RuleSettings) -> Box<dyn Coordinator> + Send + Sync;

/// Job settings, from which its state machines are made.
#[derive(Clone, Copy, Debug)]
pub struct RuleSettings {
    /// Rank count.
    pub ranks: u32,
    /// Acknowledgement timing.
    pub policy: AckPolicy,
    /// Distance in epochs between clusters: a cluster may be this many checkpoints ahead of the next; at least 2.
    pub cluster_gap: u32,
    /// Rule options.
    pub options: RuleOptions,
}

/// Rule option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleOption {
    /// [`RuleOptions::clusters`].
    Clusters,
    /// [`RuleOptions::bits`].
    Bits,
    /// [`RuleOptions::moment`].
    Moment,
}

/// Rule option values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RuleOptions {
    /// Number of clusters of neighbouring ranks, nearly equal in size; 0 is no division.
    pub clusters: u32,
    /// Transport for the two bits of a collective call.
    pub bits: Bits,
    /// Timing of a requested checkpoint.
    pub moment: Moment,
}

impl RuleSettings {
    /// Returns the default job settings: default acknowledgements, and clusters 8 epochs apart.
    pub fn new(ranks: u32, options: RuleOptions) -> RuleSettings {
        RuleSettings { ranks, policy: AckPolicy::default(), cluster_gap: 8, options }
    }
}

impl RuleOptions {
    /// The defaults: no clusters, bits exchanged, checkpoints at any time.
    pub const DEFAULT: RuleOptions = RuleOptions { clusters: 0, bits: Bits::Exchanged, moment: Moment::AnyTime };
}

/// Transport of colour and amLogging to the data recipients of a collective call (C3, section 5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Bits {
    /// A separate exchange before the call.
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

/// Moment at which a rank takes a requested checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Moment {
    /// The next moment possible for the driver, even while the program waits.
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
    /// Returns the rule with this name and the default options.
    pub fn named(name: &str) -> Option<Rule> {
        crate::RULES.into_iter().find(|rule| rule.name == name)
    }

    /// Returns the rule with the ranks divided into so many clusters.
    #[must_use]
    pub const fn with_clusters(mut self, clusters: u32) -> Rule {
        self.options.clusters = clusters;
        self
    }

    /// Returns the rule with another transport for call bits.
    #[must_use]
    pub const fn with_bits(mut self, bits: Bits) -> Rule {
        self.options.bits = bits;
        self
    }

    /// Returns the rule with another checkpoint timing.
    #[must_use]
    pub const fn with_moment(mut self, moment: Moment) -> Rule {
        self.options.moment = moment;
        self
    }

    /// Makes the state machine of a rank in a job of `ranks` ranks.
    ///
    /// `incarnation`: number of its replacements.
    ///
    /// # Errors
    /// [`ProtocolError`] for settings refused by the rule.
    pub fn protocol(&self, rank: u32, ranks: u32, incarnation: u32) -> Result<Box<dyn Protocol>, ProtocolError> {
        (self.make_rank)(Rank(rank), Incarnation(incarnation), &RuleSettings::new(ranks, self.options))
    }

    /// Makes the separate process; `None` if the rule has none.
    ///
    /// `replaced`: number of earlier, lost ones.
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

/// Finds the rule by its name, which must be in [`RULES`](crate::RULES).
impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rule, D::Error> {
        let (name, options) = <(String, RuleOptions)>::deserialize(deserializer)?;
        let rule = Rule::named(&name).ok_or_else(|| D::Error::custom(format_args!("no rule has the name {name:?}")))?;
        Ok(Rule { options, ..rule })
    }
}
