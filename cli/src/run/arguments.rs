//! Separation of this command's options from mpirun's.
//!
//! The argument parser rejects unknown options. Here they belong to mpirun, with their values and in their order; so
//! each word is wrapped in an option known to the parser.

use std::ffi::OsString;

use clap::{ArgAction, Args, Command};

use super::RunArguments;

/// Option wrapping a word for mpirun.
pub(super) const WRAPPER: &str = "mpirun-option";

/// Wraps the words for mpirun in a `run` command line; returns other command lines unchanged.
pub(crate) fn wrap_mpirun_options(line: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut line = line.into_iter();
    let mut wrapped: Vec<OsString> = line.by_ref().take(2).collect();
    if wrapped.get(1).is_none_or(|command| command != "run") {
        wrapped.extend(line);
        return wrapped;
    }
    let known = RunArguments::augment_args(Command::new("run"));
    while let Some(word) = line.next() {
        if word == "--" {
            wrapped.push(word);
            break;
        }
        match takes_value(&known, &word) {
            Some(false) => wrapped.push(word),
            Some(true) => {
                wrapped.push(word);
                wrapped.extend(line.next());
            }
            None => {
                let mut whole = OsString::from(format!("--{WRAPPER}="));
                whole.push(word);
                wrapped.push(whole);
            }
        }
    }
    wrapped.extend(line);
    wrapped
}

/// Returns whether an option's value is the next word; `None` if the option isn't known.
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

/// Returns this command's option that an option for mpirun resembles.
pub(super) fn resembled(word: &OsString) -> Option<String> {
    let name = word.to_str()?.strip_prefix("--")?;
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    let known = RunArguments::augment_args(Command::new("run"));
    let near = |long: &&str| long.len() > 3 && strsim::osa_distance(name, long) <= 2;
    known.get_arguments().filter_map(|option| option.get_long()).find(near).map(str::to_owned)
}

/// Separator between the programs of an MPMD job.
pub(super) const NEXT_PROGRAM: &str = ":";

/// Returns the total number of ranks requested by our option, mpirun's options and the further programs' options.
pub(super) fn ranks_of(own: Option<u32>, options: &[OsString], program: &[OsString]) -> u32 {
    let others = program.split(|word| word == NEXT_PROGRAM).skip(1).filter_map(ranks_in);
    own.or_else(|| ranks_in(options)).into_iter().chain(others).fold(0, u32::saturating_add)
}

/// Returns the number of ranks requested in mpirun's syntax.
fn ranks_in(options: &[OsString]) -> Option<u32> {
    let at = options.iter().position(|word| ["-n", "-np", "--np", "-c", "--n"].iter().any(|name| word == name))?;
    options.get(at + 1)?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(line: &str) -> String {
        let words = wrap_mpirun_options(line.split(' ').map(OsString::from));
        words.iter().map(|word| word.to_str().unwrap().replace("--mpirun-option=", "@")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn unknown_options_are_mpiruns_and_words_after_the_separator_the_programs() {
        assert_eq!(
            wrapped(
                "counterfoil run --mca btl self,tcp -n 3 --keep=all -x A=b --tier volatile --json -- ./a --mca -n 5"
            ),
            "counterfoil run @--mca @btl @self,tcp -n 3 --keep=all @-x @A=b --tier volatile --json -- ./a --mca -n 5"
        );
        assert_eq!(wrapped("counterfoil run -np 2 --help"), "counterfoil run @-np @2 --help");
        assert_eq!(wrapped("counterfoil run --ranks"), "counterfoil run --ranks");
        assert_eq!(wrapped("counterfoil demo --nope run --mca"), "counterfoil demo --nope run --mca");
        assert_eq!(wrapped("counterfoil"), "counterfoil");
    }

    #[test]
    fn a_misspelt_option_resembles_one_of_this_command() {
        let resembled = |word: &str| resembled(&OsString::from(word));
        assert_eq!(resembled("--recovr").as_deref(), Some("recover"));
        assert_eq!(resembled("--spare=2").as_deref(), Some("spares"));
        for word in
            ["--mca", "--map-by", "--oversubscribe", "--host", "--hostfile", "--np", "--timeout", "-x", "--bind-to"]
        {
            assert_eq!(resembled(word), None, "{word}");
        }
    }

    #[test]
    fn a_count_may_be_attached_to_its_option() {
        assert_eq!(
            wrapped("counterfoil run -n2 -np 3 -nolocal -- ./a"),
            "counterfoil run -n2 @-np @3 @-nolocal -- ./a"
        );
    }

    #[test]
    fn counts_in_mpiruns_syntax_are_summed_over_all_programs() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let ranks = |own, options: &str, program: &str| ranks_of(own, &words(options), &words(program));
        assert_eq!(ranks(None, "--mca a b -np 7", "./a"), 7);
        assert_eq!(ranks(None, "--np 3", "./a -n 9"), 3, "options after the program are its own");
        assert_eq!(ranks(Some(2), "-np", "./a"), 2);
        assert_eq!(ranks(None, "--mca a b", "./a"), 0);
        assert_eq!(ranks(Some(2), "--mca a b", "./a 10 : -n 3 ./b : --wdir / -np 4 ./c : ./d"), 9);
    }
}
