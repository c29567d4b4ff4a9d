//! Choices of a log, and the word for each: the same in command options, in the environment and in files.

use std::fmt;
use std::str::FromStr;

/// Storage of the sender log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Tier {
    /// Anonymous memory: lost with the process.
    #[default]
    Volatile,
    /// A private shared-memory file: committed records survive a `kill -9`.
    ProcessCrashSafe,
    /// Anonymous memory for new records, and a [store](crate::StoreOptions) on node-local disk for retained ones.
    ///
    /// The log may be many times larger than its memory, and everything in a checkpoint survives a power cut.
    NodeLocal,
}

/// Retention of acknowledged messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Keep {
    /// Keep a message until it is acknowledged, for retransmission only.
    ///
    /// A dead receiver can't be replayed.
    Acked,
    /// Keep a message until a durable checkpoint of its receiver covers it.
    ///
    /// Any rank can die and be replayed.
    #[default]
    Checkpoint,
    /// Keep all messages, for replaying one rank after the run.
    All,
}

/// What a sender does when the log refuses a claim, for drivers of a log.
///
/// The log itself has [`Options::stops_logging`](crate::Options::stops_logging) only. A claim first takes the spare
/// chunks of all lanes, and in the node-local tier it moves records to the disk, unacknowledged ones last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum OnFull {
    /// Wait.
    ///
    /// The sender continues to receive, acknowledge and [`collect`](crate::Log::collect), and tries again for as long
    /// as it sees fit.
    #[default]
    Block,
    /// Let the log free all retained records and retain nothing any more.
    ///
    /// Unacknowledged records stay; if they alone fill the budget, the sender waits as with [`Block`](Self::Block).
    StopLogging,
    /// Fail with the log's error.
    Fail,
}

/// Error for an unknown word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be one of {}", .words.join(", "))]
pub struct UnknownWord {
    /// All valid words.
    pub words: &'static [&'static str],
}

/// Maps each value of an enum to its word.
macro_rules! words {
    ($choice:ident { $($value:ident => $word:literal,)+ }) => {
        impl $choice {
            /// All values.
            pub const ALL: &'static [$choice] = &[$($choice::$value),+];

            /// Returns the value's word.
            pub const fn word(self) -> &'static str {
                match self {
                    $($choice::$value => $word,)+
                }
            }
        }

        impl fmt::Display for $choice {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.word())
            }
        }

        impl FromStr for $choice {
            type Err = UnknownWord;

            fn from_str(word: &str) -> Result<$choice, UnknownWord> {
                match word {
                    $($word => Ok($choice::$value),)+
                    _ => Err(UnknownWord { words: &[$($word),+] }),
                }
            }
        }
    };
}

words!(Tier {
    Volatile => "volatile",
    ProcessCrashSafe => "process-crash-safe",
    NodeLocal => "node-local",
});

words!(Keep {
    Acked => "acked",
    Checkpoint => "checkpoint",
    All => "all",
});

words!(OnFull {
    Block => "block",
    StopLogging => "stop-logging",
    Fail => "fail",
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_names_its_value() {
        assert!(Tier::ALL.iter().all(|tier| tier.to_string().parse() == Ok(*tier)));
        assert!(Keep::ALL.iter().all(|keep| keep.to_string().parse() == Ok(*keep)));
        assert!(OnFull::ALL.iter().all(|on_full| on_full.to_string().parse() == Ok(*on_full)));
        for wrong in ["", "Acked", " acked", "ack"] {
            let error = wrong.parse::<Keep>().unwrap_err();
            assert_eq!(error.to_string(), "must be one of acked, checkpoint, all", "{wrong:?}");
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn serde_uses_the_same_words() {
        fn assert_word(choice: impl serde::Serialize + fmt::Display) {
            assert_eq!(serde_json::to_value(&choice).unwrap(), choice.to_string());
        }
        Tier::ALL.iter().for_each(assert_word);
        Keep::ALL.iter().for_each(assert_word);
        OnFull::ALL.iter().for_each(assert_word);
    }
}
