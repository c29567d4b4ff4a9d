//! Book chapters written by the program itself: a part of each, between two marks.
//!
//! With `COUNTERFOIL_WRITE_BOOK=1` the parts are written instead of compared.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/book/src/reference");
const BEGIN: &str = "<!-- begin: written by cli/tests/cli/book.rs -->\n";
const END: &str = "<!-- end -->\n";

/// Compares the chapter's part with its expected text, or writes it.
fn check(chapter: &str, expected: &str) {
    let path = Path::new(REFERENCE).join(chapter);
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (part, after) = rest.split_once(END).unwrap();
    if env::var_os("COUNTERFOIL_WRITE_BOOK").is_some() {
        fs::write(&path, format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
    } else {
        assert_eq!(part, expected, "{chapter} is old: run this test with COUNTERFOIL_WRITE_BOOK=1");
    }
}

fn output(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    let (names, empty) = (env::vars_os().map(|(name, _)| name), env::temp_dir());
    names.filter(|name| name.to_string_lossy().starts_with("COUNTERFOIL_")).for_each(|name| {
        command.env_remove(name);
    });
    // The help is as wide as the terminal, or as this says.
    command.env_remove("COLUMNS");
    let output = command.args(arguments).current_dir(empty).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Adds the help of a command and its subcommands.
fn add_help(names: &[&str], chapter: &mut String) {
    let help = output(&[names, &["--help"]].concat());
    let title = [&["counterfoil"], names].concat().join(" ");
    writeln!(chapter, "\n## {title}\n\n```text\n{}\n```", help.trim_end()).unwrap();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // Continuation lines are indented further.
    let below = commands.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    for name in below.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        add_help(&[names, &[name]].concat(), chapter);
    }
}

#[test]
fn the_chapter_of_commands_has_the_help_of_each() {
    let mut chapter = String::new();
    add_help(&[], &mut chapter);
    check("commands.md", &chapter);
}

#[test]
fn the_chapter_of_settings_has_each_with_its_default() {
    let mut chapter = "\n| setting | default | environment | meaning |\n|---|---|---|---|\n".to_owned();
    let text = output(&["config"]);
    let mut lines = text.lines();
    let head = lines.next().unwrap();
    let columns = ["setting", "value", "from", "environment", "meaning"].map(|name| head.find(name).unwrap());
    for line in lines.take_while(|line| !line.contains("file:")) {
        let cell = |column: usize| {
            let end = columns.get(column + 1).map_or(line.len(), |end| (*end).min(line.len()));
            line[columns[column]..end].trim()
        };
        let default = if cell(1) == "-" { String::new() } else { format!("`{}`", cell(1)) };
        writeln!(chapter, "| `{}` | {default} | `{}` | {} |", cell(0), cell(3), cell(4)).unwrap();
    }
    chapter.push('\n');
    check("settings.md", &chapter);
}
