//! Many changes in one program: the switch function guards each of them, and an environment variable selects one.
//!
//! Mutant schemata (R. Untch, A. Offutt, M. Harrold: Mutation Analysis Using Mutant Schemata, ISSTA 1993): one build in
//! place of one for each change.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::list::{Mutant, Position};

/// Change number and list index.
pub(super) type Id = usize;

/// Configurations in which the tests aren't built.
const OTHER_CONFIGURATIONS: [&str; 3] = ["counterfoil_loom", "counterfoil_shuttle", "miri"];

/// Returns the source of the module `mutation_switch`, added to the changed crate.
///
/// `is` returns `true` if this process runs with the change `id`. If `COUNTERFOIL_MUTANTS_REACHED` names a file
/// instead, the number of each reached change is added to that file, once for each process.
pub(super) fn module(changes: usize) -> String {
    format!(
        r#"use std::fs::File;
use std::io::Write;
use std::sync::LazyLock;
use std::sync::atomic::{{AtomicBool, Ordering}};

static CHOSEN: LazyLock<Option<usize>> =
    LazyLock::new(|| std::env::var("COUNTERFOIL_MUTANT").ok().and_then(|id| id.parse().ok()));
// Stays open: a test may use up the descriptors.
static FILE: LazyLock<Option<File>> = LazyLock::new(|| {{
    let name = std::env::var_os("COUNTERFOIL_MUTANTS_REACHED")?;
    Some(File::options().append(true).create(true).open(name).unwrap())
}});
static REACHED: [AtomicBool; {changes}] = [const {{ AtomicBool::new(false) }}; {changes}];

pub fn is(id: usize) -> bool {{
    if let Some(chosen) = *CHOSEN {{
        return id == chosen;
    }}
    if let Some(mut file) = FILE.as_ref() && !REACHED[id].swap(true, Ordering::Relaxed) {{
        file.write_all(format!("{{id}}\n").as_bytes()).unwrap();
    }}
    false
}}
"#
    )
}

/// A source file with changes.
#[derive(Debug)]
pub(super) struct Switched {
    pub(super) text: String,
    /// Text range of each change, and, without a number of its own, the whole expression around it.
    regions: Vec<(Range<usize>, Vec<Id>)>,
    /// Changes that a switch can't make: in constants, in code compiled by no test build, and match arms not covered by
    /// another arm.
    pub(super) left_out: Vec<Id>,
}

impl Switched {
    /// Returns the changes in the smallest region around the bytes: the subject of a compiler message there.
    pub(super) fn changes_at(&self, bytes: &Range<usize>) -> &[Id] {
        let around = self.regions.iter().filter(|(region, _)| region.start <= bytes.start && bytes.end <= region.end);
        around.min_by_key(|(region, _)| region.len()).map_or(&[], |(_, ids)| ids)
    }
}

/// Puts the changes into the source.
///
/// `changes` are those for this file.
///
/// # Errors
/// See the parser.
pub(super) fn switch(source: &str, changes: &[(Id, &Mutant)]) -> syn::Result<Switched> {
    let file = syn::parse_file(source)?;
    let lines = line_starts(source);
    let mut wanted: HashMap<usize, Vec<(Id, &Mutant)>> = HashMap::new();
    for &(id, mutant) in changes {
        wanted.entry(offset(source, &lines, mutant.start)).or_default().push((id, mutant));
    }
    let mut finder = Finder { source, wanted, places: Vec::new(), constant: 0, has_catch_all: false };
    finder.visit_file(&file);
    let left_out = finder.wanted.into_values().flatten().map(|(id, _)| id).collect();
    let mut places = finder.places;
    // An outer place comes before the places in it, and an insertion before a place starting there.
    places.sort_by_key(|place| (place.at.start, !place.at.is_empty(), usize::MAX - place.at.end));
    let mut writer = Writer { source, places: &places, text: String::new(), regions: Vec::new() };
    writer.copy(0..source.len(), &mut 0);
    Ok(Switched { text: writer.text, regions: writer.regions, left_out })
}

fn line_starts(source: &str) -> Vec<usize> {
    std::iter::once(0).chain(source.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

fn offset(source: &str, lines: &[usize], (line, column): Position) -> usize {
    let start = lines.get(line.wrapping_sub(1)).copied().unwrap_or(source.len());
    let in_line = source[start..].char_indices().nth(column.saturating_sub(1));
    in_line.map_or(source.len(), |(at, _)| start + at)
}

/// A place for changes in the source.
struct Place {
    /// Replaced expression, or the empty range of an insertion.
    at: Range<usize>,
    kind: Kind,
    /// Text of each change, with the source's operands.
    others: Vec<(Id, String)>,
}

#[derive(Clone, Copy)]
enum Kind {
    /// An expression, which stays the last alternative.
    Expression,
    /// Beginning of a body: another value is returned.
    Body,
    /// Pattern without a condition.
    Pattern,
}

/// Finds the changes' places in a syntax tree.
struct Finder<'a> {
    source: &'a str,
    /// Changes by the start of their text.
    ///
    /// Found changes are removed.
    wanted: HashMap<usize, Vec<(Id, &'a Mutant)>>,
    places: Vec<Place>,
    /// Depth of constant expressions, in which the switch can't be called.
    constant: usize,
    /// The enclosing match has an arm for every value, so that another arm can be left out.
    has_catch_all: bool,
}

impl<'a> Finder<'a> {
    fn take(&mut self, at: usize, genre: &str) -> Vec<(Id, &'a Mutant)> {
        if self.constant > 0 {
            return Vec::new();
        }
        let Some(found) = self.wanted.get_mut(&at) else { return Vec::new() };
        let (taken, kept) = std::mem::take(found).into_iter().partition(|(_, mutant)| mutant.genre == genre);
        *found = kept;
        taken
    }

    /// Adds a place for the changes starting at `at`, if there are any; `text` makes each change's text from its
    /// replacement.
    fn add(&mut self, at: usize, genre: &str, place: (Range<usize>, Kind), text: impl Fn(&str) -> String) {
        let others = self.take(at, genre).into_iter().map(|(id, mutant)| (id, text(&mutant.replacement)));
        let others: Vec<_> = others.collect();
        if !others.is_empty() {
            self.places.push(Place { at: place.0, kind: place.1, others });
        }
    }

    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let is_constant = usize::from(signature.constness.is_some());
        self.constant += is_constant;
        if let Some(first) = block.stmts.first() {
            let at = first.span().byte_range().start;
            // A body that returns an iterator of another type doesn't compile.
            let opaque =
                matches!(&signature.output, syn::ReturnType::Type(_, of) if matches!(**of, syn::Type::ImplTrait(_)));
            if !opaque {
                self.add(at, "FnValue", (at..at, Kind::Body), |value| format!("return {value};"));
            }
        }
        visit::visit_block(self, block);
        self.constant -= is_constant;
    }

    fn in_constant(&mut self, visit: impl FnOnce(&mut Self)) {
        self.constant += 1;
        visit(self);
        self.constant -= 1;
    }
}

/// Visits constants as a whole.
macro_rules! in_constants {
    ($($visit:ident: $node:ident),* $(,)?) => {
        $(fn $visit(&mut self, node: &'ast syn::$node) {
            self.in_constant(|finder| visit::$visit(finder, node));
        })*
    };
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Trait(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if is_built(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.body(&item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_built(&item.attrs) {
            self.body(&item.sig, &item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.body(&item.sig, block);
        }
    }

    in_constants! {
        visit_item_const: ItemConst, visit_item_static: ItemStatic, visit_impl_item_const: ImplItemConst,
        visit_trait_item_const: TraitItemConst, visit_item_enum: ItemEnum, visit_type: Type,
        visit_generic_argument: GenericArgument, visit_expr_const: ExprConst,
    }

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
        self.in_constant(|finder| finder.visit_expr(&repeat.len));
    }

    fn visit_pat(&mut self, pattern: &'ast syn::Pat) {
        if let syn::Pat::Guard(guarded) = pattern {
            return self.visit_expr(&guarded.guard);
        }
        self.in_constant(|finder| visit::visit_pat(finder, pattern));
    }

    fn visit_expr_binary(&mut self, expression: &'ast syn::ExprBinary) {
        let operator = expression.op.span().byte_range();
        // A pattern is no value that an `if` could yield.
        let has_pattern = contains_let(&expression.left) || contains_let(&expression.right);
        if !has_pattern {
            let source = self.source;
            let (left, right) = (expression.left.span().byte_range(), expression.right.span().byte_range());
            let place = (left.start..right.end, Kind::Expression);
            let text = |other: &str| format!("{} {other} {}", &source[left.clone()], &source[right.clone()]);
            self.add(operator.start, "BinaryOperator", place, text);
        }
        visit::visit_expr_binary(self, expression);
    }

    fn visit_expr_unary(&mut self, expression: &'ast syn::ExprUnary) {
        let (at, source) = (expression.span().byte_range(), self.source);
        let operand = &source[expression.expr.span().byte_range()];
        self.add(at.start, "UnaryOperator", (at, Kind::Expression), |_| operand.to_owned());
        visit::visit_expr_unary(self, expression);
    }

    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        let around = self.has_catch_all;
        self.has_catch_all = expression.arms.iter().any(|arm| is_catch_all(&arm.pat));
        visit::visit_expr_match(self, expression);
        self.has_catch_all = around;
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let start = arm.span().byte_range().start;
        match &arm.pat {
            syn::Pat::Guard(syn::PatGuard { guard, .. }) if !contains_let(guard) => {
                let at = guard.span().byte_range();
                // An omitted arm comes before the other changes in its condition, which are inside it.
                self.add(start, "MatchArm", (at.clone(), Kind::Expression), |_| "false".to_owned());
                self.add(at.start, "MatchArmGuard", (at, Kind::Expression), str::to_owned);
            }
            syn::Pat::Guard(_) => {}
            pattern if self.has_catch_all => {
                let end = pattern.span().byte_range().end;
                self.add(start, "MatchArm", (end..end, Kind::Pattern), |_| "false".to_owned());
            }
            _ => {}
        }
        visit::visit_arm(self, arm);
    }
}

/// Returns `true` if the pattern matches every value: `_`, or a variable's name, which unlike a constant's begins with
/// a small letter.
fn is_catch_all(pattern: &syn::Pat) -> bool {
    match pattern {
        syn::Pat::Wild(_) => true,
        syn::Pat::Ident(named) => {
            named.subpat.is_none() && named.ident.to_string().starts_with(|c: char| c.is_lowercase() || c == '_')
        }
        _ => false,
    }
}

/// Returns `true` if test builds include an item with these attributes.
fn is_built(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).all(|attribute| {
        let condition = attribute.parse_args::<syn::Meta>();
        condition.map_or(true, |condition| holds(&condition) != Some(false))
    })
}

/// Evaluates a `cfg` condition; `None` if its value isn't known.
fn holds(condition: &syn::Meta) -> Option<bool> {
    match condition {
        syn::Meta::Path(name) => OTHER_CONFIGURATIONS.iter().any(|other| name.is_ident(other)).then_some(false),
        syn::Meta::List(list) => {
            let parser = syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated;
            let parts: Vec<_> = list.parse_args_with(parser).ok()?.iter().map(holds).collect();
            let all = |wanted| parts.iter().all(|part| *part == Some(wanted)).then_some(wanted);
            let any = |wanted| parts.contains(&Some(wanted)).then_some(wanted);
            match &list.path {
                path if path.is_ident("not") => parts.first().copied().flatten().map(|value| !value),
                path if path.is_ident("all") => any(false).or_else(|| all(true)),
                path if path.is_ident("any") => any(true).or_else(|| all(false)),
                _ => None,
            }
        }
        syn::Meta::NameValue(_) => None,
    }
}

/// Returns `true` if a pattern is matched in the condition itself, as by `let` in a chain.
fn contains_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => contains_let(&binary.left) || contains_let(&binary.right),
        _ => false,
    }
}

/// Writes the source with the changes.
struct Writer<'a> {
    source: &'a str,
    places: &'a [Place],
    text: String,
    regions: Vec<(Range<usize>, Vec<Id>)>,
}

impl Writer<'_> {
    /// Copies a part of the source.
    ///
    /// `next` is the first place possibly inside it, and afterwards the first one after it.
    fn copy(&mut self, part: Range<usize>, next: &mut usize) {
        let mut from = part.start;
        while let Some(place) = self.places.get(*next).filter(|place| place.at.end <= part.end) {
            self.text.push_str(&self.source[from..place.at.start]);
            from = place.at.end;
            *next += 1;
            let begin = self.text.len();
            self.place(place, next);
            self.regions.push((begin..self.text.len(), place.others.iter().map(|(id, _)| *id).collect()));
        }
        self.text.push_str(&self.source[from..part.end]);
    }

    /// Writes a place.
    ///
    /// The last alternative, the source's own, contains the changes inside the place.
    fn place(&mut self, place: &Place, next: &mut usize) {
        let (before, otherwise) = match place.kind {
            Kind::Expression => ("(", "else "),
            Kind::Body => ("", ""),
            Kind::Pattern => (" if (", "else "),
        };
        self.text.push_str(before);
        for (id, text) in &place.others {
            self.text.push_str(&format!("if crate::mutation_switch::is({id}) {{ "));
            let begin = self.text.len();
            self.text.push_str(text);
            self.regions.push((begin..self.text.len(), vec![*id]));
            self.text.push_str(&format!(" }} {otherwise}"));
        }
        match place.kind {
            Kind::Expression => {
                self.text.push_str("{ ");
                self.copy(place.at.clone(), next);
                self.text.push_str(" })");
            }
            Kind::Body => {}
            Kind::Pattern => self.text.push_str("{ true })"),
        }
    }
}

/// Groups the changes by file; `library` is included even without any.
///
/// Each change's number is its list index.
pub(super) fn by_file<'a>(mutants: &'a [Mutant], library: &'a Path) -> BTreeMap<&'a Path, Vec<(Id, &'a Mutant)>> {
    let mut files: BTreeMap<_, Vec<_>> = BTreeMap::from([(library, Vec::new())]);
    for (id, mutant) in mutants.iter().enumerate() {
        files.entry(mutant.file.as_path()).or_default().push((id, mutant));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a change to the text following `before` in the source.
    fn change(source: &str, before: &str, genre: &str, replacement: &str) -> Mutant {
        let at = source.find(before).unwrap() + before.len();
        let line = source[..at].matches('\n').count() + 1;
        let column = source[..at].rsplit('\n').next().unwrap().chars().count() + 1;
        let (name, replacement) = (replacement.to_owned(), replacement.to_owned());
        Mutant { name, file: "src/lib.rs".into(), genre: genre.to_owned(), start: (line, column), replacement }
    }

    fn switched(source: &str, changes: &[Mutant]) -> Switched {
        let switched = switch(source, &changes.iter().enumerate().collect::<Vec<_>>()).unwrap();
        syn::parse_file(&switched.text).unwrap();
        switched
    }

    #[test]
    fn changes_of_one_expression_are_alternatives_and_those_in_it_stay_possible() {
        let source = "fn f() -> bool { /* ö */ a + b < c * d }";
        let changes = [
            change(source, "/* ö */ ", "FnValue", "true"),
            change(source, "b ", "BinaryOperator", "<="),
            change(source, "a ", "BinaryOperator", "-"),
            change(source, "b ", "BinaryOperator", "=="),
            change(source, "c ", "BinaryOperator", "/"),
        ];
        let made = switched(source, &changes);
        assert_eq!(
            made.text.replace("crate::mutation_switch::", ""),
            "fn f() -> bool { /* ö */ if is(0) { return true; } \
             (if is(1) { a + b <= c * d } else if is(3) { a + b == c * d } \
             else { (if is(2) { a - b } else { a + b }) < (if is(4) { c / d } else { c * d }) }) }"
        );
        assert!(made.left_out.is_empty());
    }

    #[test]
    fn a_message_is_about_the_change_whose_text_it_is_in_or_about_all_of_the_expression() {
        let source = "fn f() -> bool { a < b }";
        let changes = ["==", ">"].map(|other| change(source, "a ", "BinaryOperator", other));
        let made = switched(source, &changes);
        let at = |text: &str| made.text.find(text).map(|at| at..at + text.len()).unwrap();
        assert_eq!(made.changes_at(&at("a == b")), [0]);
        assert_eq!(made.changes_at(&at("a > b")), [1]);
        assert_eq!(made.changes_at(&at("a < b")), [0, 1]);
        assert!(made.changes_at(&at("fn f")).is_empty());
    }

    #[test]
    fn operators_and_arms_are_left_out_and_conditions_replaced() {
        let source = "fn f(x: u8) -> bool { match x { 1 => !g(), 2 if h(!x) => false, _ => true } }";
        let changes = [
            change(source, "match x { ", "MatchArm", ""),
            change(source, "1 => ", "UnaryOperator", ""),
            change(source, "!g(), ", "MatchArm", ""),
            change(source, "2 if ", "MatchArmGuard", "true"),
            change(source, "2 if ", "MatchArmGuard", "false"),
            change(source, "h(", "UnaryOperator", ""),
        ];
        let made = switched(source, &changes);
        assert_eq!(
            made.text.replace("crate::mutation_switch::", ""),
            "fn f(x: u8) -> bool { match x { \
             1 if (if is(0) { false } else { true }) => (if is(1) { g() } else { !g() }), \
             2 if (if is(2) { false } else { (if is(3) { true } else if is(4) { false } \
             else { h((if is(5) { x } else { !x })) }) }) => false, _ => true } }"
        );
        assert!(made.left_out.is_empty());
    }

    #[test]
    fn an_arm_that_no_other_one_covers_is_not_left_out() {
        let source =
            "fn f(x: bool) -> u8 { match x { _ if g(match x { true => 1, y => 2 }) => 3, None => 4, false => 5 } }";
        let arms = ["(match x { ", "2 }) => 3, ", "=> 4, "].map(|before| change(source, before, "MatchArm", ""));
        let made = switched(source, &arms);
        assert_eq!(
            made.text.replace("crate::mutation_switch::", ""),
            "fn f(x: bool) -> u8 { match x { \
             _ if g(match x { true if (if is(0) { false } else { true }) => 1, y => 2 }) => 3, None => 4, false => 5 } }"
        );
        assert_eq!(made.left_out.into_iter().collect::<std::collections::BTreeSet<_>>(), [1, 2].into());
    }

    #[test]
    fn constants_other_configurations_and_patterns_in_conditions_are_left_out() {
        let source = "const A: u8 = 1 + 2;
            const fn f() -> u8 { 3 + 4 }
            #[cfg(all(test, counterfoil_loom))] fn g() -> u8 { 5 + 6 }
            #[cfg(not(counterfoil_loom))] fn h() -> u8 { if let 7 = x && y { 8 } else { [9; 10 + 11][0] } }";
        let changes = ["1 ", "3 ", "5 ", "= x ", "10 "].map(|before| change(source, before, "BinaryOperator", "-"));
        let made = switched(source, &changes);
        assert_eq!(made.text, source);
        assert_eq!(made.left_out.iter().copied().collect::<std::collections::BTreeSet<_>>(), (0..5).collect());
        let built = change(source, "fn h() -> u8 { ", "FnValue", "0");
        assert!(switched(source, &[built]).left_out.is_empty());
    }
}
