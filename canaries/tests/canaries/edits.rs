//! Source edits, as made by the build script.

use super::place::{Edit, edited};

const SOURCE: &str = "fn f(n: u32) -> u32 {\n    log();\n    n + 1\n}\n";

/// Returns an edit to `right`, by one of `wrong` and `with`.
fn edit(right: &str, wrong: Option<&str>, with: Option<&str>) -> Edit {
    let [wrong, with] = [wrong, with].map(|text| text.map(str::to_owned));
    Edit { file: "f.rs".into(), right: right.to_owned(), wrong, with }
}

fn wrong(right: &str, wrong: &str) -> Edit {
    edit(right, Some(wrong), None)
}

#[test]
fn an_expression_and_statements_become_alternatives_and_other_text_is_replaced() {
    let edits = [wrong("n + 1", "n"), wrong("log();", ""), edit("n: u32", None, Some("n: u32, _: u8"))];
    let named: Vec<(&str, &Edit)> = ["A", "B", "C"].into_iter().zip(&edits).collect();
    let expected = "fn f(n: u32, _: u8) -> u32 {\n    if planted!(B) {  } else { log(); }\n    \
                    (if planted!(A) { n } else { n + 1 })\n}\n";
    assert_eq!(edited(SOURCE, &named).as_deref(), Ok(expected));
    assert_eq!(edited(SOURCE, &[]).as_deref(), Ok(SOURCE));
}

#[test]
fn mistakes_of_one_place_are_alternatives_of_each_other() {
    let (one, two) = (wrong("n + 1", "n"), wrong("n + 1", "n + 2"));
    let text = edited(SOURCE, &[("A", &one), ("B", &two)]).unwrap();
    assert!(text.contains("(if planted!(A) { n } else if planted!(B) { n + 2 } else { n + 1 })"), "{text}");
}

#[test]
fn an_edit_that_is_not_one_place_of_the_source_is_refused() {
    let refused = |edits: &[(&str, &Edit)]| edited(SOURCE, edits).unwrap_err();
    assert_eq!(refused(&[("A", &wrong("n + 2", "n"))]), "A: `n + 2` is there 0 times");
    assert_eq!(refused(&[("A", &wrong("u32", "u8"))]), "A: `u32` is there 2 times");
    let (outer, inner) = (wrong("log();\n    n + 1", "n"), wrong("n + 1", "n"));
    assert_eq!(refused(&[("A", &outer), ("B", &inner)]), "B: `n + 1` overlaps another edit");
}

#[test]
fn an_edit_is_either_wrong_or_with_and_the_second_is_alone() {
    let is_refused = |edits: &[(&str, &Edit)]| edited(SOURCE, edits).is_err_and(|error| error.contains("either"));
    assert!(is_refused(&[("A", &edit("n + 1", None, None))]));
    assert!(is_refused(&[("A", &edit("n + 1", Some("n"), Some("n")))]));
    assert!(is_refused(&[("A", &wrong("n + 1", "n")), ("B", &edit("n + 1", None, Some("n")))]));
}
