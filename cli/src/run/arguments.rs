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
    if word.strip_prefix("-n").is_some_and(|ranks| !ranks.is_empty() && ranks.bytes().all(|byte| byte.is_ascii_digit()))
    {
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

/// What stands between two programs that are one job.
pub(super) const NEXT_PROGRAM: &str = ":";

/// How many ranks a job has, as far as options say it: our own, mpirun's, and those of programs behind a `:`.
pub(super) fn ranks_of(own: Option<u32>, options: &[OsString], program: &[OsString]) -> u32 {
    let others = program.split(|word| word == NEXT_PROGRAM).skip(1).filter_map(ranks_in);
    own.or_else(|| ranks_in(options)).into_iter().chain(others).fold(0, u32::saturating_add)
}

/// How many ranks mpirun is told to start, in its own spellings.
fn ranks_in(options: &[OsString]) -> Option<u32> {
    let at = options.iter().position(|word| ["-n", "-np", "--np", "-c", "--n"].iter().any(|name| word == name))?;
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
    fn a_count_may_stand_right_behind_its_option() {
        assert_eq!(
            carried("counterfoil run -n2 -np 3 -nolocal -- ./a"),
            "counterfoil run -n2 @-np @3 @-nolocal -- ./a"
        );
    }

    #[test]
    fn mpiruns_own_counts_are_understood_and_those_of_all_programs_are_added() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let ranks = |own, options: &str, program: &str| ranks_of(own, &words(options), &words(program));
        assert_eq!(ranks(None, "--mca a b -np 7", "./a"), 7);
        assert_eq!(ranks(None, "--np 3", "./a -n 9"), 3, "the program's own options are the program's");
        assert_eq!(ranks(Some(2), "-np", "./a"), 2);
        assert_eq!(ranks(None, "--mca a b", "./a"), 0);
        assert_eq!(ranks(Some(2), "--mca a b", "./a 10 : -n 3 ./b : --wdir / -np 4 ./c : ./d"), 9);
    }
}
