//! Whose an option is: this command's, or mpirun's.
//!
//! The argument parser knows options or refuses them. Here those that it doesn't know go to mpirun, values and all, in the order in
//! which they stand; so they are put into an option that it knows before it sees them.

use std::ffi::OsString;

use clap::{ArgAction, Args, Command};

use super::RunArguments;

/// The option that carries a word for mpirun.
pub(super) const CARRIER: &str = "mpirun-option";

/// A command line, with what belongs to mpirun carried; of a command other than `run`, as it is.
pub(crate) fn carry(line: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut line = line.into_iter();
    let mut carried: Vec<OsString> = line.by_ref().take(2).collect();
    if carried.get(1).is_none_or(|command| command != "run") {
        carried.extend(line);
        return carried;
    }
    let known = RunArguments::augment_args(Command::new("run"));
    while let Some(word) = line.next() {
        if word == "--" {
            carried.push(word);
            break;
        }
        match takes_value(&known, &word) {
            Some(false) => carried.push(word),
            Some(true) => {
                carried.push(word);
                carried.extend(line.next());
            }
            None => {
                let mut whole = OsString::from(format!("--{CARRIER}="));
                whole.push(word);
                carried.push(whole);
            }
        }
    }
    carried.extend(line);
    carried
}

/// Whether a word is an option whose value is the next word; `None` if it is no option of ours.
fn takes_value(known: &Command, word: &OsString) -> Option<bool> {
    let word = word.to_str()?;
    if matches!(word, "-h" | "--help") {
        return Some(false);
    }
    let (name, has_value) = word.split_once('=').map_or((word, false), |(name, _)| (name, true));
    let of = known.get_arguments().find(|option| {
        option.get_long().is_some_and(|long| name.strip_prefix("--") == Some(long))
            || option
                .get_short()
                .is_some_and(|short| name.strip_prefix('-').is_some_and(|name| name.chars().eq([short])))
    })?;
    Some(!has_value && matches!(of.get_action(), ArgAction::Set | ArgAction::Append))
}

/// How many ranks mpirun is told to start, in its own spellings.
pub(super) fn ranks_in(options: &[OsString]) -> Option<u32> {
    let at = options.iter().position(|word| ["-np", "--np", "-c", "--n"].iter().any(|name| word == name))?;
    options.get(at + 1)?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(line: &str) -> String {
        let words = carry(line.split(' ').map(OsString::from));
        words.iter().map(|word| word.to_str().unwrap().replace("--mpirun-option=", "@")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_is_not_known_is_mpiruns_and_what_is_behind_is_the_programs() {
        assert_eq!(
            carried(
                "counterfoil run --mca btl self,tcp -n 3 --keep=all -x A=b --tier volatile --json -- ./a --mca -n 5"
            ),
            "counterfoil run @--mca @btl @self,tcp -n 3 --keep=all @-x @A=b --tier volatile --json -- ./a --mca -n 5"
        );
        assert_eq!(carried("counterfoil run -np 2 --help"), "counterfoil run @-np @2 --help");
        assert_eq!(carried("counterfoil run --ranks"), "counterfoil run --ranks");
        assert_eq!(carried("counterfoil demo --nope run --mca"), "counterfoil demo --nope run --mca");
        assert_eq!(carried("counterfoil"), "counterfoil");
    }

    #[test]
    fn mpiruns_own_count_is_understood() {
        let ranks = |line: &str| ranks_in(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(ranks("--mca a b -np 7"), Some(7));
        assert_eq!(ranks("--np 3"), Some(3));
        assert_eq!(ranks("-np"), None);
        assert_eq!(ranks("--mca a b"), None);
    }
}
