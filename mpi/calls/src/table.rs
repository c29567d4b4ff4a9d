//! Parser for the table.

use thiserror::Error;

use crate::{Argument, Call, Class, Form, Kind};

/// Error in a line of the table.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line} of the table of calls: {what}")]
pub struct TableError {
    /// Line number, from 1.
    pub line: usize,
    /// Error description.
    pub what: String,
}

/// Returns this crate's table, with all forms of each call.
///
/// # Errors
/// [`TableError`]; a test checks that there is none.
pub fn table() -> Result<Vec<Call>, TableError> {
    parse(include_str!("../calls.txt"))
}

/// Parses a table.
///
/// # Errors
/// [`TableError`] for the first malformed line.
pub fn parse(text: &str) -> Result<Vec<Call>, TableError> {
    let mut calls: Vec<Call> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        for call in forms(line).map_err(|what| TableError { line: index + 1, what })? {
            if calls.iter().any(|known| known.name == call.name) {
                return Err(TableError { line: index + 1, what: format!("{} appears twice", call.name) });
            }
            calls.push(call);
        }
    }
    Ok(calls)
}

/// Expands a line to its calls.
fn forms(line: &str) -> Result<Vec<Call>, String> {
    let mut words = line.split_whitespace();
    let class = words.next().unwrap_or_default();
    let class: Class = class.parse().map_err(|()| format!("there is no class `{class}`"))?;
    let marked = words.next().ok_or("it has no name")?;
    let base = marked.trim_end_matches(['+', '*']);
    let (has_large, has_three) = (marked.contains('+'), marked.ends_with('*'));
    if has_three != class.is_collective() {
        return Err(format!("{base} is marked with a * and isn't collective, or the reverse"));
    }
    let arguments = words.map(argument).collect::<Result<Vec<_>, _>>()?;
    if has_large && !arguments.iter().any(|argument| argument.kind.widens()) {
        return Err(format!("{base} has no count that could be large"));
    }
    let forms: &[Form] = if has_three { &[Form::Plain, Form::Immediate, Form::Persistent] } else { &[Form::Plain] };
    let mut calls = Vec::new();
    for form in forms {
        for is_large in [false, true] {
            if is_large && !has_large {
                continue;
            }
            calls.push(Call {
                name: format!("{}{}", name(base, *form), if is_large { "_c" } else { "" }),
                base: base.to_owned(),
                class,
                form: *form,
                is_large,
                arguments: arguments.iter().cloned().chain(added_arguments(*form)).collect(),
            });
        }
    }
    Ok(calls)
}

fn argument(word: &str) -> Result<Argument, String> {
    let (name, kind) = word.split_once(':').ok_or_else(|| format!("`{word}` is not name:kind"))?;
    let kind = kind.parse().map_err(|()| format!("there is no kind `{kind}`"))?;
    Ok(Argument { name: name.to_owned(), kind })
}

fn name(base: &str, form: Form) -> String {
    match form {
        Form::Plain => base.to_owned(),
        Form::Immediate => format!("I{}", base.to_lowercase()),
        Form::Persistent => format!("{base}_init"),
    }
}

/// Returns a form's additional arguments, after the operation's.
fn added_arguments(form: Form) -> Vec<Argument> {
    let info = || Argument { name: "info".to_owned(), kind: Kind::Info };
    let request = || Argument { name: "request".to_owned(), kind: Kind::RequestOut };
    match form {
        Form::Plain => Vec::new(),
        Form::Immediate => vec![request()],
        Form::Persistent => vec![info(), request()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_valid_and_uses_every_class() {
        let calls = table().unwrap();
        for class in Class::ALL {
            assert!(calls.iter().any(|call| call.class == *class), "{}", class.name());
        }
        for call in &calls {
            let is_rust =
                |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') && name != "type";
            let bad = call.arguments.iter().find(|argument| !is_rust(&argument.name) && argument.name != "type");
            assert!(bad.is_none(), "{}: {bad:?}", call.name);
            let mut names: Vec<&str> = call.arguments.iter().map(|argument| argument.name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), call.arguments.len(), "{}: two arguments of one name", call.name);
        }
    }

    #[test]
    fn a_collective_has_six_forms() {
        let calls = table().unwrap();
        let names: Vec<&str> =
            calls.iter().filter(|call| call.base == "Neighbor_alltoallw").map(|call| &*call.name).collect();
        assert_eq!(
            names,
            [
                "Neighbor_alltoallw",
                "Neighbor_alltoallw_c",
                "Ineighbor_alltoallw",
                "Ineighbor_alltoallw_c",
                "Neighbor_alltoallw_init",
                "Neighbor_alltoallw_init_c"
            ]
        );
        let persistent = calls.iter().find(|call| call.name == "Bcast_init_c").unwrap();
        assert_eq!(
            persistent.prototype(),
            "int MPI_Bcast_init_c(void *buf, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Info info, \
             MPI_Request *request)"
        );
    }

    #[test]
    fn a_malformed_line_is_rejected_with_its_number() {
        for (text, what) in [
            ("send", "no name"),
            ("# x\n\nsnd Send", "no class `snd`"),
            ("send Send buf", "`buf` is not name:kind"),
            ("send Send buf:inn", "no kind `inn`"),
            ("send Send+ comm:comm", "no count"),
            ("send Send* comm:comm", "isn't collective"),
            ("barrier Barrier comm:comm", "the reverse"),
            ("finalize Finalize\nfinalize Finalize", "appears twice"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.what.contains(what), "{text}: {error}");
            assert_eq!(error.line, text.lines().count());
        }
    }
}
