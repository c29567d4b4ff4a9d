//! The book's tutorials: what a reader types is run, and prints what they say.
//!
//! A block with `file=NAME` is a file. In a block `console`, a line beginning with `$` is a command, and the lines
//! after it are lines of its output, in this order; `…` stands for anything, and alone for any lines.

use std::ffi::OsString;
use std::path::Path;
use std::{env, fs, iter};

use counterfoil_test_support::note_untested;

use super::sandbox::{Sandbox, mpi_available};

const CHAPTERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/book/src/start");

/// A tutorial command, and its expected output.
#[derive(Debug, PartialEq)]
struct Typed {
    command: String,
    expected: Vec<String>,
}

/// Returns a tutorial's files and commands.
fn parse(text: &str) -> (Vec<(String, String)>, Vec<Typed>) {
    let (mut files, mut commands): (Vec<(String, String)>, Vec<Typed>) = Default::default();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```").filter(|kind| !kind.is_empty()) else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        if let Some((_, name)) = kind.split_once("file=") {
            files.push((name.to_owned(), block.iter().fold(String::new(), |text, line| text + line + "\n")));
        }
        for line in block.into_iter().filter(|_| kind == "console") {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push(Typed { command: command.to_owned(), expected: Vec::new() }),
                (None, Some(last)) => last.expected.push(line.to_owned()),
                (None, None) => panic!("{line:?} is no command"),
            }
        }
    }
    (files, commands)
}

/// Returns `true` if a line is the expected one, in which `…` stands for anything.
fn fits(expected: &str, line: &str) -> bool {
    let Some((first, rest)) = expected.split_once('…') else { return expected == line };
    let (middle, last) = rest.rsplit_once('…').unwrap_or(("", rest));
    let between = line.strip_prefix(first).and_then(|line| line.strip_suffix(last));
    let after = |line: &str, part: &str| line.find(part).map(|at| line[at + part.len()..].to_owned());
    between.is_some_and(|line| middle.split('…').try_fold(line.to_owned(), |line, part| after(&line, part)).is_some())
}

/// Returns the first expected line missing in the output.
fn missing<'a>(expected: &'a [String], output: &str) -> Option<&'a String> {
    let mut lines = output.lines().map(str::trim_end);
    let mut expected = expected.iter().filter(|expected| *expected != "…");
    expected.find(|expected| !lines.by_ref().any(|line| fits(expected.trim_end(), line)))
}

/// Returns `PATH`, preceded by the directories with the reader's commands.
fn path() -> OsString {
    let installed = ["MPICC", "COUNTERFOIL_MPIRUN"].into_iter().filter_map(|name| env::var(name).ok());
    let programs = iter::once(env!("CARGO_BIN_EXE_counterfoil").to_owned()).chain(installed);
    let own = programs.filter_map(|program| Path::new(&program).parent().map(Path::to_owned));
    env::join_paths(own.chain(env::split_paths(&env::var_os("PATH").unwrap_or_default()))).unwrap()
}

/// Types what a tutorial says, after the files of others.
fn follow(sandbox: &Sandbox, chapter: &str) {
    let text = fs::read_to_string(Path::new(CHAPTERS).join(chapter)).unwrap();
    let (files, commands) = parse(&text);
    files.iter().for_each(|(name, text)| fs::write(sandbox.path().join(name), text).unwrap());
    assert!(!commands.is_empty(), "{chapter} has no commands");
    let mut code = 0;
    for Typed { command, expected } in commands {
        // Progress isn't part of the output, nor is the order of the two streams.
        let script = format!("(exit {code}); {{ {command}; }} 2>&1");
        let output = sandbox.limited().args(["sh", "-c", &script]).env("PATH", path()).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        code = output.status.code().unwrap_or(-1);
        let missing = missing(&expected, &printed);
        assert!(missing.is_none(), "{chapter}: `{command}` ends with {code}, without {missing:?}:\n{printed}");
    }
}

#[test]
fn each_tutorial_does_what_it_says() {
    if !mpi_available() {
        return;
    }
    let sandbox = Sandbox::new();
    let refused = sandbox.counterfoil(&["run", "-n", "1", "--", "true"]).stderr;
    if refused.contains("a program can be run with --recover") {
        note_untested("tutorials: over this MPI programs are recovered and not only logged");
        return;
    }
    follow(&sandbox, "log.md");
    follow(&sandbox, "recover.md");
    follow(&sandbox, "replay.md");
}

#[test]
fn a_tutorial_has_files_commands_and_output() {
    let text = "text\n```c file=a.c\nint a;\n```\n```console\n$ run it\none\n…\n$ next\n```\n```sh\nnot typed\n```\n";
    let (files, commands) = parse(text);
    assert_eq!(files, [("a.c".to_owned(), "int a;\n".to_owned())]);
    let of = |typed: &Typed| (typed.command.clone(), typed.expected.len());
    assert_eq!(commands.iter().map(of).collect::<Vec<_>>(), [("run it".to_owned(), 2), ("next".to_owned(), 0)]);
}

#[test]
fn expected_lines_are_found_in_order() {
    assert!(fits("a … c", "a b c") && fits("a…", "abc") && fits("…", "") && !fits("a …", "b c") && !fits("a", "ab"));
    assert!(!fits("a … c", "a b c d") && fits("a…b…c", "a1b2c") && !fits("a…b…c", "a1c2b"));
    let expected = ["one", "…", "t…e"].map(str::to_owned);
    assert_eq!(missing(&expected, "one\ntwo\nthree\n"), None);
    assert_eq!(missing(&expected, "three\none\ntwo\n"), Some(&expected[2]));
}
